"""Which segments a scalable topic has: what a real broker answered, and what is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pulsar_meta.access.tls import TlsSettings
from pulsar_meta.brokers.lookup import Connect, LookupRequest
from pulsar_meta.brokers.lookup_session import LookupOutcome, LookupSession
from pulsar_meta.brokers.scalable_lookup import SegmentOf, ask_segments
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.wire.commands import decode_commands, encode_command
from pulsar_meta.codecs.wire.service_url import parse_service_url
from pulsar_meta.proto.PulsarApi_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)
from tests.servers.scripted import tcp_server

RECORDED: Final = (
    Path(__file__).parents[2] / "fixtures" / "commands" / "answers" / "scalable-topic-lookup.bin"
)
TOPIC: Final = "topic://public/default/moved"


@pytest.fixture
def recorded() -> list[BaseCommand]:
    """CONNECTED and the answer for a topic that was migrated and split, then for one that is not there."""
    return [frame.command for frame in decode_commands(RECORDED.read_bytes())]


def play(replies: Iterable[BaseCommand], topic: str = TOPIC) -> tuple[list[SegmentOf], list[BaseCommand]]:
    """Run the question against replies; return the segments and what was sent."""
    talk = ask_segments(parse_service_url("pulsar://b"), LookupRequest(topic))
    waiting, asked, sent = iter(replies), list[BaseCommand](), cast(Any, None)
    try:
        while True:
            step: Any = talk.send(sent)
            if isinstance(step, Connect):
                sent = step.addresses[0]
            else:
                asked.append(step.command)
                sent = next(waiting)
    except StopIteration as end:
        return end.value, asked


def test_the_segments_are_those_that_the_broker_names(recorded: list[BaseCommand]) -> None:
    segments, asked = play(recorded[:2])
    assert [(one.topic, one.state) for one in segments] == [
        ("persistent://public/default/moved", "SEALED"),
        ("segment://public/default/moved/0000-ffff-1", "SEALED"),
        ("segment://public/default/moved/0000-7fff-2", "ACTIVE"),
        ("segment://public/default/moved/8000-ffff-3", "ACTIVE"),
    ]
    assert {one.scalable_topic for one in segments} == {TOPIC}
    assert asked[0].connect.feature_flags.supports_scalable_topics
    assert asked[1].scalableTopicLookup.topic == TOPIC


def test_who_decides_is_named_where_the_broker_says_it(recorded: list[BaseCommand]) -> None:
    assert {one.controller for one in play(recorded[:2])[0]} == {None}
    recorded[1].scalableTopicUpdate.dag.controller_broker_url = "pulsar://c:6650"
    assert {one.controller for one in play(recorded[:2])[0]} == {"pulsar://c:6650"}


def test_what_is_not_there_is_not_found(recorded: list[BaseCommand]) -> None:
    with pytest.raises(NotFoundError, match="Scalable topic not found: topic://public/default/nix"):
        play(recorded[2:], "topic://public/default/nix")


def test_an_older_broker_is_not_asked(recorded: list[BaseCommand]) -> None:
    flags = recorded[0].connected.feature_flags
    flags.supports_scalable_topics = False
    with pytest.raises(UnreachableError, match="has no scalable topics"):
        play(recorded[:1])


def test_nonsense_is_refused(recorded: list[BaseCommand]) -> None:
    dag = recorded[1].scalableTopicUpdate.dag
    dag.segments[2].hash_start = 0x9000
    with pytest.raises(DecodeError, match="segment 2 has no range of hashes"):
        play(recorded[:2])
    del dag.segments[:]
    with pytest.raises(DecodeError, match="expected the segments"):
        play(recorded[:2])
    with pytest.raises(DecodeError, match="expected SCALABLE_TOPIC_UPDATE"):
        play([recorded[0], recorded[0]])


class Broker:
    """Answers as 5.0.0-M1: `topic://…/moved` is scalable; `topics` has persistent ones, by partitions."""

    def __init__(self, recorded: list[BaseCommand], topics: dict[str, int]) -> None:
        self.hello, self.update, _, self.absent = recorded
        self.hello.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        self.topics, self.refuses = topics, False

    def talk(self, client: socket.socket) -> None:
        while data := client.recv(65536):
            for frame in decode_commands(data):
                client.sendall(encode_command(self.answer(frame.command)))

    def answer(self, asked: BaseCommand) -> BaseCommand:
        if asked.type == BaseCommand.CONNECT:
            return self.hello
        if asked.type == BaseCommand.SCALABLE_TOPIC_LOOKUP:
            if self.refuses:
                self.absent.scalableTopicUpdate.error = ServerError.AuthorizationError
            known = asked.scalableTopicLookup.topic == TOPIC and not self.refuses
            return self.update if known else self.absent
        if asked.type == BaseCommand.PARTITIONED_METADATA:
            return self.partitions(asked.partitionMetadata.topic)
        found = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        found.lookupTopicResponse.request_id = 1
        found.lookupTopicResponse.response = CommandLookupTopicResponse.Connect
        found.lookupTopicResponse.brokerServiceUrl = "pulsar://127.0.0.1:6650"
        return found

    def partitions(self, topic: str) -> BaseCommand:
        reply = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
        answer = reply.partitionMetadataResponse
        answer.request_id, answer.response = 1, CommandPartitionedTopicMetadataResponse.Success
        if topic in self.topics:
            answer.partitions = self.topics[topic]
        else:
            answer.response = CommandPartitionedTopicMetadataResponse.Failed
            answer.error, answer.message = ServerError.TopicNotFound, ""
        return reply


def look_up(broker: Broker, topic: str, *, short: bool) -> list[LookupOutcome]:
    with tcp_server(broker.talk) as port:
        session = LookupSession(parse_service_url(f"pulsar://127.0.0.1:{port}"), TlsSettings(), 20.0)
        return list(session.look_up_all(LookupRequest(topic), lambda text: None, short=short))


def test_a_short_name_stands_for_the_segments(recorded: list[BaseCommand]) -> None:
    old = "persistent://public/default/moved"
    for there in ({}, {old: 0}):
        found = look_up(Broker(recorded, there), old, short=True)
        assert [one.request.topic[-1] for one in found] == ["d", "1", "2", "3"]
        documents = [one.document() for one in found]
        assert {(one["scalable_topic"], one["status"]) for one in documents} == {(TOPIC, "found")}
        assert [one["segment_state"] for one in documents] == ["SEALED", "SEALED", "ACTIVE", "ACTIVE"]


def test_a_short_name_of_two_topics_is_refused(recorded: list[BaseCommand]) -> None:
    other = "persistent://public/default/moved"
    recorded[1].scalableTopicUpdate.dag.segments[0].legacy_topic_name = ""
    (found,) = look_up(Broker(recorded, {other: 0}), other, short=True)
    assert isinstance(found.error, UsageError)
    assert str(found.error) == f"two topics have this name: say {other} or {TOPIC}"
    # Its full name leaves nothing open.
    (found,) = look_up(Broker(recorded, {other: 0}), other, short=False)
    assert (found.error, found.notes(), found.segment) == (None, [], None)


def test_a_full_name_says_that_it_is_the_old_part(recorded: list[BaseCommand]) -> None:
    old = "persistent://public/default/moved"
    (found,) = look_up(Broker(recorded, {old: 0}), old, short=False)
    said = f"{old} is but the sealed old part of {TOPIC}, which has 3 segments more"
    assert (found.document()["notes"], found.document()["segment_state"]) == ([said], "SEALED")
    part = f"{old}-partition-1"
    recorded[1].scalableTopicUpdate.dag.segments[0].legacy_topic_name = part
    (found,) = look_up(Broker(recorded, {old: 2}), part, short=False)
    assert found.document()["notes"] == [said.replace(old, part)]


def test_what_is_not_known_of_a_name_is_said(recorded: list[BaseCommand]) -> None:
    nobody = "persistent://public/default/nix"
    (found,) = look_up(Broker(recorded, {}), nobody, short=True)
    assert found.error is None
    assert found.notes() == [
        f"there is no topic {nobody} yet: brokers answer for a name that nobody uses, too"
    ]
    broker = Broker(recorded, {"persistent://public/default/moved": 0})
    broker.refuses = True
    (found,) = look_up(broker, "persistent://public/default/moved", short=True)
    (note,) = found.notes()
    assert found.error is None
    assert note.startswith(f"whether {TOPIC} is there is not known: ")
    assert "AuthorizationError" in note
