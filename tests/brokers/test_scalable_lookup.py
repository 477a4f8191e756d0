"""Looking up the segments of a scalable topic, with answers recorded from a real broker."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pulsar_meta.access.sockets import TlsSettings
from pulsar_meta.brokers.lookup import Connect, LookupRequest, SegmentOf, ask_segments
from pulsar_meta.brokers.lookup_session import LookupOutcome, LookupSession
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.wire.commands import decode_commands, encode_command, parse_service_url
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
    """CONNECTED and the answer for a topic that was migrated and split, then both for a missing topic."""
    return [frame.command for frame in decode_commands(RECORDED.read_bytes())]


def play(replies: Iterable[BaseCommand], topic: str = TOPIC) -> tuple[list[SegmentOf], list[BaseCommand]]:
    """Run the question against replies; return the segments and the commands that were sent."""
    protocol = ask_segments(parse_service_url("pulsar://b"), LookupRequest(topic))
    remaining, commands, sent = iter(replies), list[BaseCommand](), cast(Any, None)
    try:
        while True:
            step: Any = protocol.send(sent)
            if isinstance(step, Connect):
                sent = step.addresses[0]
            else:
                commands.append(step.command)
                sent = next(remaining)
    except StopIteration as end:
        return end.value, commands


def test_segments_come_from_the_brokers_answer(recorded: list[BaseCommand]) -> None:
    segments, commands = play(recorded[:2])
    assert [(segment.topic, segment.state) for segment in segments] == [
        ("persistent://public/default/moved", "SEALED"),
        ("segment://public/default/moved/0000-ffff-1", "SEALED"),
        ("segment://public/default/moved/0000-7fff-2", "ACTIVE"),
        ("segment://public/default/moved/8000-ffff-3", "ACTIVE"),
    ]
    assert {segment.scalable_topic for segment in segments} == {TOPIC}
    assert commands[0].connect.feature_flags.supports_scalable_topics
    assert commands[1].scalableTopicLookup.topic == TOPIC


def test_the_controller_is_named_if_the_broker_names_it(recorded: list[BaseCommand]) -> None:
    assert {segment.controller for segment in play(recorded[:2])[0]} == {None}
    recorded[1].scalableTopicUpdate.dag.controller_broker_url = "pulsar://c:6650"
    assert {segment.controller for segment in play(recorded[:2])[0]} == {"pulsar://c:6650"}


def test_a_missing_scalable_topic_is_not_found(recorded: list[BaseCommand]) -> None:
    with pytest.raises(NotFoundError, match="Scalable topic not found: topic://public/default/nix"):
        play(recorded[2:], "topic://public/default/nix")


def test_an_older_broker_gets_no_question(recorded: list[BaseCommand]) -> None:
    flags = recorded[0].connected.feature_flags
    flags.supports_scalable_topics = False
    with pytest.raises(UnreachableError, match="has no scalable topics"):
        play(recorded[:1])


def test_nonsense_is_refused(recorded: list[BaseCommand]) -> None:
    dag = recorded[1].scalableTopicUpdate.dag
    dag.segments[2].hash_start = 0x9000
    with pytest.raises(DecodeError, match="segment 2 has an invalid hash range"):
        play(recorded[:2])
    del dag.segments[:]
    with pytest.raises(DecodeError, match="expected the segments"):
        play(recorded[:2])
    with pytest.raises(DecodeError, match="expected SCALABLE_TOPIC_UPDATE"):
        play([recorded[0], recorded[0]])


class Broker:
    """Answers like 5.0.0-M1. `topic://…/moved` is scalable; `topics` has the partition counts of others."""

    def __init__(self, recorded: list[BaseCommand], topics: dict[str, int]) -> None:
        self.hello, self.update, _, self.absent = recorded
        self.hello.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
        self.topics, self.refuses = topics, False

    def serve(self, client: socket.socket) -> None:
        while data := client.recv(65536):
            for frame in decode_commands(data):
                client.sendall(encode_command(self.answer(frame.command)))

    def answer(self, command: BaseCommand) -> BaseCommand:
        if command.type == BaseCommand.CONNECT:
            return self.hello
        if command.type == BaseCommand.SCALABLE_TOPIC_LOOKUP:
            if self.refuses:
                self.absent.scalableTopicUpdate.error = ServerError.AuthorizationError
            known = command.scalableTopicLookup.topic == TOPIC and not self.refuses
            return self.update if known else self.absent
        if command.type == BaseCommand.PARTITIONED_METADATA:
            return self.partitions(command.partitionMetadata.topic)
        reply = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        reply.lookupTopicResponse.request_id = 1
        reply.lookupTopicResponse.response = CommandLookupTopicResponse.Connect
        reply.lookupTopicResponse.brokerServiceUrl = "pulsar://127.0.0.1:6650"
        return reply

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
    with tcp_server(broker.serve) as port:
        session = LookupSession(parse_service_url(f"pulsar://127.0.0.1:{port}"), TlsSettings(), 20.0)
        return list(session.look_up_all(LookupRequest(topic), lambda text: None, short=short))


def test_a_short_name_means_all_segments(recorded: list[BaseCommand]) -> None:
    old = "persistent://public/default/moved"
    for existing in ({}, {old: 0}):
        outcomes = look_up(Broker(recorded, existing), old, short=True)
        assert [outcome.request.topic[-1] for outcome in outcomes] == ["d", "1", "2", "3"]
        documents = [outcome.document() for outcome in outcomes]
        assert {(document["scalable_topic"], document["status"]) for document in documents} == {
            (TOPIC, "found")
        }
        assert [document["segment_state"] for document in documents] == [
            "SEALED",
            "SEALED",
            "ACTIVE",
            "ACTIVE",
        ]


def test_a_short_name_that_fits_two_topics_is_refused(recorded: list[BaseCommand]) -> None:
    other = "persistent://public/default/moved"
    recorded[1].scalableTopicUpdate.dag.segments[0].legacy_topic_name = ""
    (outcome,) = look_up(Broker(recorded, {other: 0}), other, short=True)
    assert isinstance(outcome.error, UsageError)
    assert str(outcome.error) == f"two topics have this name; use {other} or {TOPIC}"
    # Its full name is not ambiguous.
    (outcome,) = look_up(Broker(recorded, {other: 0}), other, short=False)
    assert (outcome.error, outcome.notes(), outcome.segment) == (None, [], None)


def test_a_full_name_gets_a_note_that_it_is_the_sealed_part(recorded: list[BaseCommand]) -> None:
    old = "persistent://public/default/moved"
    (outcome,) = look_up(Broker(recorded, {old: 0}), old, short=False)
    note = f"{old} is only the sealed old part of {TOPIC}, which has 3 more segments"
    assert (outcome.document()["notes"], outcome.document()["segment_state"]) == ([note], "SEALED")
    part = f"{old}-partition-1"
    recorded[1].scalableTopicUpdate.dag.segments[0].legacy_topic_name = part
    (outcome,) = look_up(Broker(recorded, {old: 2}), part, short=False)
    assert outcome.document()["notes"] == [note.replace(old, part)]


def test_notes_tell_what_the_broker_could_not_answer(recorded: list[BaseCommand]) -> None:
    missing = "persistent://public/default/nix"
    (outcome,) = look_up(Broker(recorded, {}), missing, short=True)
    assert outcome.error is None
    assert outcome.notes() == [
        f"the topic {missing} doesn't exist yet; brokers also answer lookups of unused names"
    ]
    broker = Broker(recorded, {"persistent://public/default/moved": 0})
    broker.refuses = True
    (outcome,) = look_up(broker, "persistent://public/default/moved", short=True)
    (note,) = outcome.notes()
    assert outcome.error is None
    assert note.startswith(f"cannot find out if {TOPIC} exists: ")
    assert "AuthorizationError" in note
