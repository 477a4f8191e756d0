"""What upstream's specification of scalable topics says about stored data, checked on data of 5.0.0-M1.

The numbers in the names of the tests are those of the requirements in apache/pulsar, spec/scalable-topics/
conformance.md; the layout is in wire-protocol.md, sections 2 and 3, and the routing in client-behavior.md,
section 2. What that page asks of clients only (C3 to C9, C11 to C14) leaves no trace in stored data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import LAST_HASH, TopicName
from pulsar_meta.jobs.topics.related import scalable_topics
from pulsar_meta.proto.PulsarApi_pb2 import BaseCommand
from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment, pulsar_meta_here

# The catalog of wire-protocol.md, section 1.
COMMANDS = {
    70: "SCALABLE_TOPIC_LOOKUP",
    71: "SCALABLE_TOPIC_UPDATE",
    72: "SCALABLE_TOPIC_CLOSE",
    73: "SCALABLE_TOPIC_SUBSCRIBE",
    74: "SCALABLE_TOPIC_SUBSCRIBE_RESPONSE",
    75: "SCALABLE_TOPIC_ASSIGNMENT_UPDATE",
    76: "WATCH_SCALABLE_TOPICS",
    77: "WATCH_SCALABLE_TOPICS_UPDATE",
    78: "WATCH_SCALABLE_TOPICS_CLOSE",
    79: "WATCH_TC_ASSIGNMENTS",
    80: "WATCH_TC_ASSIGNMENTS_UPDATE",
    81: "WATCH_TC_ASSIGNMENTS_CLOSE",
}
CAPTURES = ["pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running"]


@pytest.fixture(scope="module", params=CAPTURES)
def folder(request: pytest.FixtureRequest, capture: Callable[[str], Path]) -> Path:
    return capture(request.param)


def topics(folder: Path) -> Iterator[ScalableTopic]:
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store:
        yield from scalable_topics(store)


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records of scalable topics as the broker told them."""
    truth = orjson.loads((folder / "truth.json").read_bytes())
    return {name: stated["record"] for name, stated in truth.items() if name.startswith("topic://")}


def test_c1_every_command_of_the_catalog_is_known() -> None:
    assert {number: BaseCommand.Type.Name(number) for number in COMMANDS} == COMMANDS


def test_c1_active_segments_divide_the_ring(folder: Path) -> None:
    for topic in topics(folder):
        active = sorted((segment.start, segment.end) for segment in topic.segments if segment.is_active)
        assert (active[0][0], active[-1][1]) == (0, LAST_HASH), topic.name
        assert all(left[1] + 1 == right[0] for left, right in pairwise(active)), topic.name


def test_c1_a_segment_is_as_old_as_the_change_that_made_it(folder: Path) -> None:
    """Layouts are numbered, and a child begins in the layout in which its parents are sealed."""
    for name, record in records(folder).items():
        segments = record["segments"]
        for segment in segments.values():
            assert 0 <= segment["createdAtEpoch"] <= record["epoch"], name
            sealed = {segments[str(parent)]["sealedAtEpoch"] for parent in segment["parentIds"]}
            assert sealed <= {segment["createdAtEpoch"]}, name
            assert (segment["state"] == "ACTIVE") == (segment["sealedAtEpoch"] == -1), name


def test_c1_the_name_of_a_segment_is_its_range_and_its_id(folder: Path) -> None:
    for topic in topics(folder):
        for segment in topic.segments:
            described = f"{segment.start:04x}-{segment.end:04x}-{segment.segment_id}"
            expected = f"segment://{str(topic.name).removeprefix('topic://')}/{described}"
            assert segment.is_migrated or str(segment.topic) == expected
            assert TopicName.parse(str(segment.topic)).path == segment.topic.path


def test_c2_a_key_is_in_the_segment_of_its_hash(folder: Path, tmp_path: Path) -> None:
    """Producers of 5.0.0-M1 wrote each message to the segment that had its key's hash at that time."""
    found = 0
    for topic in topics(folder):
        for segment in topic.segments:
            for key in keys(folder, segment.topic, tmp_path):
                assert segment.start <= murmur3_32(key.encode()) & LAST_HASH <= segment.end, (key, segment)
                found += 1
    assert found > 1000


def test_c2_partitions_before_a_migration_were_chosen_by_javas_hash(folder: Path, tmp_path: Path) -> None:
    """compatibility.md names Murmur3 here, but the Java client's default for partitions is JavaStringHash."""
    parts = [
        part.topic
        for topic in topics(folder)
        for part in topic.segments
        if part.is_migrated and part.topic.partitioned
    ]
    placed = [(number, key) for number, part in enumerate(parts) for key in keys(folder, part, tmp_path)]
    assert len(parts) == 2
    assert len(placed) > 50
    assert all(java_hash(key) % len(parts) == number for number, key in placed)


def java_hash(text: str) -> int:
    """Return Java's String.hashCode of a text without surrogates, with the sign bit cleared."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def keys(folder: Path, topic: TopicName, state: Path) -> list[str]:
    """Return the keys of the messages in a segment, one for each message that has a key."""
    where = (
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
    )
    done = pulsar_meta_here("dump-entries", topic, *where, "--deep", "-o", "ndjson", env=environment(state))
    assert done.returncode in (0, 3), done.stderr
    entries = map(json.loads, done.stdout.splitlines())
    metadata = (message["metadata"] for entry in entries for message in entry["messages"])
    return [fields["key"] for fields in metadata if "key" in fields]


def murmur3_32(data: bytes) -> int:
    """Return the MurmurHash3 (x86, 32 bits, seed 0) of bytes, as Pulsar's Murmur3_32Hash computes it."""
    whole = len(data) // 4 * 4
    value = 0
    for at in range(0, whole, 4):
        value = _rotated(value ^ _mixed(data[at : at + 4]), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    value ^= _mixed(data[whole:]) ^ len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return (value ^ value >> 16) & 0x7FFFFFFF


def _mixed(part: bytes) -> int:
    block = int.from_bytes(part, "little") * 0xCC9E2D51 & 0xFFFFFFFF
    return _rotated(block, 15) * 0x1B873593 & 0xFFFFFFFF


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("text", "expected"), [(b"", 0), (b"hello", 0x248BFA47), (b"hello, world", 0x149BBB7F)]
)
def test_the_hash_is_murmur3(text: bytes, expected: int) -> None:
    """The published values of MurmurHash3_x86_32 for seed 0."""
    assert murmur3_32(text) == expected & 0x7FFFFFFF
