"""Filters on entries of stock Java, C++ and Go producers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts, FilterVerdict, Level, parse_filter
from pulsar_meta.proto.PulsarApi_pb2 import EncryptionKeys, KeyValue, MessageMetadata, SingleMessageMetadata
from tests.jobs.captured_frames import frames_of

Capture = Callable[[str], Path]
VERSION = "pulsar-4.2.4"


def verdicts(frames: list[bytes], text: str, level: Level, **options: Any) -> list[FilterVerdict]:
    chosen = EntryFilter(parse_filter(text), level, **options)
    return [chosen.decide(decode_frame(frame)) for frame in frames]


def truth_of(folder: Path, topic: str) -> list[dict[str, Any]]:
    truth = orjson.loads((folder / "truth.json").read_bytes())
    messages: list[dict[str, Any]] = truth[f"persistent://public/default/{topic}"]["messages"]
    return messages


def value_of(messages: list[dict[str, Any]], name: str) -> str:
    """Return a value that some messages have and others do not."""
    values = {message["props"].get(name) for message in messages}
    assert len(values) > 1
    return str(next(value for value in sorted(values - {None})))


@pytest.mark.parametrize("level", ["message", "any"])
@pytest.mark.parametrize("topic", ["orders", "go-lz4", "cpp-lz4"])
def test_matching_messages_are_those_that_a_client_received(
    capture: Capture, topic: str, level: Level
) -> None:
    folder = capture(VERSION)
    messages = truth_of(folder, topic)
    name = sorted(messages[0]["props"])[0]
    value = value_of(messages, name)
    wanted = sum(message["props"].get(name) == value for message in messages)
    decided = verdicts(frames_of(folder, topic), f"'{name}'='{value}'", level)
    matching = [verdict for verdict in decided if verdict.matches]
    assert sum(1 if verdict.messages is None else len(verdict.messages) for verdict in matching) == wanted > 0
    assert all(verdict.why is None for verdict in decided)


def test_java_batches_are_undecided_at_entry_level(capture: Capture) -> None:
    frames = frames_of(capture(VERSION), "orders")
    counts = FilterCounts()
    for frame, verdict in zip(frames, verdicts(frames, "region", "entry"), strict=True):
        counts.add(verdict)
        batch = decode_frame(frame).metadata.HasField("num_messages_in_batch")
        assert verdict.matches is not batch
        assert (verdict.why is not None) is batch
    assert 0 < counts.undecided < counts.entries
    assert "could not be decided" in counts.summary()


def test_go_batches_have_the_properties_of_their_first_message(capture: Capture) -> None:
    frames = frames_of(capture(VERSION), "go-lz4")
    batches = [frame for frame in frames if decode_frame(frame).metadata.num_messages_in_batch > 1]
    assert batches
    for frame in batches:
        in_front = decode_frame(frame).metadata.properties
        everything = " and ".join(f"'{pair.key}'='{pair.value}'" for pair in in_front)
        (at_entry,) = verdicts([frame], everything, "entry")
        assert at_entry.matches
        assert at_entry.why is not None
        (opened,) = verdicts([frame], everything, "message")
        assert opened.messages is not None
        assert opened.messages[0] == 0
        assert len(opened.messages) < decode_frame(frame).metadata.num_messages_in_batch


def test_single_messages_are_decided_without_decompression(capture: Capture) -> None:
    frames = [
        frame
        for frame in frames_of(capture(VERSION), "plain")
        if not decode_frame(frame).metadata.HasField("num_messages_in_batch")
    ]
    assert frames
    assert {verdict.decided_at for verdict in verdicts(frames, "not nowhere", "any")} == {"entry"}


def batch_frame(*values: str, hoist: bool = False, encrypted: bool = False) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.num_messages_in_batch = len(values)
    if hoist:
        metadata.properties.add(key="region", value=values[0])
    if encrypted:
        metadata.encryption_keys.append(EncryptionKeys(key="k", value=b"v"))
    messages = [
        (SingleMessageMetadata(payload_size=0, properties=[KeyValue(key="region", value=value)]), b"x")
        for value in values
    ]
    return encode_frame(metadata, join_batch(messages))


def test_hoisted_properties_decide_if_the_option_names_them() -> None:
    frame = batch_frame("eu", "eu", hoist=True)
    (opened,) = verdicts([frame], "region=eu", "any")
    assert (opened.decided_at, opened.messages) == ("message", (0, 1))
    (hoisted,) = verdicts([frame], "region=eu", "any", hoisted=("region",))
    assert (hoisted.decided_at, hoisted.messages, hoisted.matches) == ("entry", None, True)
    (mixed,) = verdicts([frame], "region=eu and type", "any", hoisted=("region",))
    assert (mixed.decided_at, mixed.matches) == ("message", False)


def test_an_encrypted_batch_is_undecided_but_an_encrypted_message_is_not(capture: Capture) -> None:
    (verdict,) = verdicts([batch_frame("eu", encrypted=True)], "region=eu", "any")
    assert (verdict.matches, verdict.decided_at, verdict.why) == (False, None, "are encrypted")
    frames = frames_of(capture(VERSION), "encrypted")
    singles = [f for f in frames if not decode_frame(f).metadata.HasField("num_messages_in_batch")]
    assert all(verdict.decided_at == "entry" for verdict in verdicts(singles, "not a", "message"))


def test_a_corrupt_payload_leaves_the_entry_undecided() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=3)
    (verdict,) = verdicts([encode_frame(metadata, b"junk")], "a", "any")
    assert (verdict.matches, verdict.why) == (False, "cannot be opened")


def test_markers_match_only_at_entry_level() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, marker_type=21)
    marker = encode_frame(metadata, b"")
    assert [verdicts([marker], "not a", level)[0].matches for level in ("entry", "message", "any")] == [
        True,
        False,
        False,
    ]
