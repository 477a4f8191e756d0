"""Which segments a scalable topic has: what a real broker answered, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from pulsar_meta.brokers.lookup import Connect, LookupRequest
from pulsar_meta.brokers.scalable_lookup import SegmentOf, ask_segments
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.wire.commands import decode_commands
from pulsar_meta.codecs.wire.service_url import parse_service_url
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand

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
