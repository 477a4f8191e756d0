"""Records of scalable topics: those of Pulsar 5 are read, and broken ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.scalable_topic import decode_scalable_topic
from pulsar_meta.codecs.names import TopicName, split_scalable_path
from pulsar_meta.stores.registry import open_store

NAME = TopicName.parse("topic://public/default/t")


@pytest.mark.parametrize("capture_name", ["pulsar-5.0.0-M1-scalable", "pulsar-5.0.0-M1-scalable-running"])
def test_every_record_agrees_with_the_broker(capture_name: str, capture: Callable[[str], Path]) -> None:
    data, seen = capture(capture_name), set()
    truth = orjson.loads((data / "truth.json").read_bytes())
    with open_store(f"snapshot:{data / 'metadata.ndjson'}") as store:
        for value in store.scan("/topics"):
            name = split_scalable_path(value.path)
            if name is None or not value.value:
                continue
            tree = decode_scalable_topic(name, value.value)
            assert name.path == value.path
            listed = truth[str(name)]
            assert {str(segment.segment_id): str(segment.topic) for segment in tree.segments} == listed[
                "segments"
            ]
            assert dict(tree.properties) == listed["record"]["properties"]
            for segment in tree.segments:
                expected = listed["record"]["segments"][str(segment.segment_id)]
                assert [segment.state, list(segment.parents), list(segment.children)] == [
                    expected["state"],
                    expected["parentIds"],
                    expected["childIds"],
                ]
                assert segment.topic.scalable_topic == str(name)
                assert TopicName.from_path(segment.topic.path) == segment.topic
            seen.add(str(name))
    assert seen == {name for name in truth if name.startswith("topic://")}


def record(**changes: Any) -> bytes:
    segment = {"segmentId": 0, "hashRange": {"start": 0, "end": 65535}, "state": "ACTIVE", **changes}
    return json.dumps({"epoch": 0, "segments": {"0": segment}}).encode()


def test_a_segment_has_buckets_of_entries() -> None:
    """The splits of four buckets, as EntryBucketSplits.equalWidth makes them (apache/pulsar#26118)."""
    [segment] = decode_scalable_topic(NAME, record(entryBucketSplits=[16384, 32768, 49152])).segments
    buckets = [f"{start:04x}-{end:04x}" for start, end in segment.entry_buckets]
    assert buckets == ["0000-3fff", "4000-7fff", "8000-bfff", "c000-ffff"]
    assert decode_scalable_topic(NAME, record()).segments[0].entry_buckets == []


def test_a_segment_that_replaced_one_of_the_same_keys_is_rebucketed() -> None:
    """Like SegmentLayout.rebucketSegment of apache/pulsar#26434: sealed, with one child of the same range."""
    hashes = {"start": 0, "end": 65535}
    parent = {"segmentId": 0, "hashRange": hashes, "state": "SEALED", "childIds": [1]}
    child = {"segmentId": 1, "hashRange": hashes, "state": "ACTIVE", "parentIds": [0]}
    value = {"epoch": 1, "segments": {"0": parent, "1": {**child, "entryBucketSplits": [32768]}}}
    tree = decode_scalable_topic(NAME, json.dumps(value).encode())
    assert [tree.rebucketed_from(segment) for segment in tree.segments] == [None, 0]
    half = {**child, "hashRange": {"start": 0, "end": 1}}
    split = {"epoch": 1, "segments": {"0": {**parent, "childIds": [1, 2]}, "1": half}}
    tree = decode_scalable_topic(NAME, json.dumps(split).encode())
    assert [tree.rebucketed_from(segment) for segment in tree.segments] == [None, None]


def test_added_and_absent_fields_are_no_fault() -> None:
    tree = decode_scalable_topic(NAME, record(fieldOfPulsar6=[1, 2]))
    assert [str(segment.topic) for segment in tree.segments] == ["segment://public/default/t/0000-ffff-0"]
    assert tree.segments[0].created_at is tree.segments[0].sealed_at is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\xff{", "not JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"epoch": 0}', "segments: expected an object"),
        (record(hashRange={"start": 0, "end": 65536}), "segments.0.hashRange.end"),
        (record(hashRange={"start": 2, "end": 1}), "ends before it starts"),
        (record(state="GONE"), "segments.0.state: expected ACTIVE or SEALED"),
        (record(segmentId=1), "its segmentId is 1"),
        (record(parentIds=[-1]), "segments.0.parentIds"),
        (record(childIds=7), "segments.0.childIds: expected a list"),
        (record(legacyTopicName="kafka://a"), "segments.0.legacyTopicName"),
        (record(legacyTopicName=5), "segments.0.legacyTopicName"),
        (record(entryBucketSplits=3), "segments.0.entryBucketSplits: expected a list"),
        (record(entryBucketSplits=[0]), "segments.0.entryBucketSplits"),
        (record(entryBucketSplits=[2, 1]), "segments.0.entryBucketSplits: they are not in order"),
    ],
)
def test_an_error_names_the_broken_field(value: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decode_scalable_topic(NAME, value)
