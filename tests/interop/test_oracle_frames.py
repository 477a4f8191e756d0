"""Pulsar's Commands and ours make the same of entry frames, of batches and of broker entry metadata."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pulsar_meta.codecs.compression import CODECS, compress
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import join_batch, open_entry, why_unopened
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.PulsarApi_pb2 import (
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from tests.interop.generated import SEED, messages
from tests.servers.jvm import Jvm
from tests.servers.pulsar import release
from tests.servers.versions import size

pytestmark = pytest.mark.interop

MODULE = "tests.interop.oracle.frames"
CAPTURES = ("pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-5.0.0-M1")


@cache
def captured_frames(capture: Callable[[str], Path]) -> list[bytes]:
    """Every frame on the bookies' disks, and the other entries that lie there (cursors, schemas)."""
    frames: set[bytes] = set()
    for name in CAPTURES:
        with open_entries([f"bookie-disk:{capture(name) / 'bookie0'}"]) as source:
            for ledger in source.ledgers():
                for entry in source.read_many(ledger):
                    frames.add(bytes(decode_bookie_entry(entry.data, "CRC32C").data))
    return sorted(frames)


def random_metadata(count: int, oracle: Jvm) -> Iterator[MessageMetadata]:
    """Yield messages of the fields that this version has (4.2 no hash ranges yet, 4.0 no schema ids).

    Unsigned numbers stay below 2³¹: LightProto counts five bytes for larger ones and writes ten.
    """
    known = oracle.call("tests.interop.oracle.managed:wire_field_numbers", "MessageMetadata")
    newer = [
        field.name for field in MessageMetadata.DESCRIPTOR.fields if field.name.replace("_", "") not in known
    ]
    for metadata in messages(MessageMetadata, count):
        for name in newer:
            metadata.ClearField(name)
        for field, value in metadata.ListFields():
            if field.type == field.TYPE_UINT32 and not field.is_repeated:
                setattr(metadata, field.name, value % 2**31)
        yield metadata


def generated_frames(count: int, oracle: Jvm) -> list[bytes]:
    """Frames of all four shapes, some with a wrong checksum."""
    source, frames = random.Random(SEED), []
    brokers, metadata = messages(BrokerEntryMetadata, count), random_metadata(count, oracle)
    for broker, message in zip(brokers, metadata, strict=True):
        chosen = broker if source.random() < 0.5 else None
        payload, checked = source.randbytes(source.randrange(60)), source.random() < 0.7
        frame = bytearray(encode_frame(message, payload, broker_metadata=chosen, checksum=checked))
        if payload and source.random() < 0.2:
            frame[-1] ^= 1
        frames.append(bytes(frame))
    return frames


def generated_batches(count: int, oracle: Jvm) -> list[tuple[bytes, bytes]]:
    """(MessageMetadata, payload) of batches with every codec."""
    source, batches = random.Random(SEED), []
    for metadata in random_metadata(count, oracle):
        singles = [(single, source.randbytes(source.randrange(40))) for single in messages(
            SingleMessageMetadata, source.randrange(1, 9), seed=source.randrange(2**32))]  # fmt: skip
        raw, codec = join_batch(singles), source.choice(CODECS)
        metadata.compression = CompressionType.Value(codec.upper())  # type: ignore[assignment]
        metadata.uncompressed_size, metadata.num_messages_in_batch = len(raw), len(singles)
        for field in ("encryption_keys", "marker_type", "num_chunks_from_msg", "compacted_batch_indexes"):
            metadata.ClearField(field)
        batches.append((metadata.SerializeToString(), compress(codec, raw)))
    return batches


def known_bytes(message: Message | None) -> bytes | None:
    if message is None:
        return None
    message.DiscardUnknownFields()
    return message.SerializeToString()


def compare_frames(frames: list[bytes], oracle: Jvm) -> int:
    """Compare every part of each frame; return how many both could read."""
    read = 0
    for data, their in zip(frames, oracle.call(f"{MODULE}:parse_frames", frames), strict=True):
        try:
            ours = decode_frame(data)
        except DecodeError:
            # No broker wrote it as a frame: an entry of a cursor ledger or a schema. What Commands makes of
            # it depends on what lies behind the buffer.
            continue
        assert isinstance(their, dict), (data.hex(), their)
        assert their["broker"] == known_bytes(ours.broker_metadata)
        assert their["stored"] == ours.stored_checksum
        if their["stored"] is None:
            assert ours.checksum == "absent"
        else:
            assert ours.checksum == ("ok" if their["stored"] == their["computed"] else "bad")
        assert their["metadata"] == known_bytes(ours.metadata)
        assert their["payload"] == bytes(ours.payload)
        read += 1
    return read


def test_captured_frames_are_read_alike(oracle: Jvm, capture: Callable[[str], Path]) -> None:
    frames = captured_frames(capture)
    assert compare_frames(frames, oracle) > 5000


def test_generated_frames_are_read_alike(oracle: Jvm) -> None:
    frames = generated_frames(size(5000, 20_000), oracle)
    assert compare_frames(frames, oracle) == len(frames)


def test_captured_batches_are_opened_alike(oracle: Jvm, capture: Callable[[str], Path]) -> None:
    batches, ours = [], []
    for data in captured_frames(capture):
        try:
            frame = decode_frame(data)
        except DecodeError:
            continue
        if why_unopened(frame.metadata) is None and frame.metadata.HasField("num_messages_in_batch"):
            batches.append((known_bytes(frame.metadata), bytes(frame.payload)))
            opened = open_entry(frame).messages
            ours.append(
                [(message.metadata.SerializeToString(), bytes(message.payload)) for message in opened]
            )
    assert len(batches) > 1000
    assert oracle.call(f"{MODULE}:open_batches", batches) == ours


def test_generated_batches_are_opened_alike(oracle: Jvm) -> None:
    batches = generated_batches(size(3000, 20_000), oracle)
    theirs = oracle.call(f"{MODULE}:open_batches", batches)
    for (metadata, payload), their in zip(batches, theirs, strict=True):
        frame = decode_frame(encode_frame(MessageMetadata.FromString(metadata), payload))
        opened = open_entry(frame).messages
        assert [(message.metadata.SerializeToString(), bytes(message.payload)) for message in opened] == their


def test_frames_are_made_alike(oracle: Jvm) -> None:
    source = random.Random(SEED)
    parts = [
        (metadata.SerializeToString(), source.randbytes(source.randrange(60)), source.random() < 0.7)
        for metadata in random_metadata(size(3000, 20_000), oracle)
    ]
    ours = [
        encode_frame(MessageMetadata.FromString(head), body, checksum=check) for head, body, check in parts
    ]
    assert oracle.call(f"{MODULE}:make_frames", parts) == ours


@pytest.mark.parametrize(
    "names", [["AppendIndex"], ["AppendBrokerTimestamp"], ["AppendBrokerTimestamp", "AppendIndex"]]
)
def test_broker_entry_metadata_is_written_alike(names: list[str], oracle: Jvm) -> None:
    source = random.Random(SEED)
    given = [
        (encode_frame(metadata, b"payload"), source.randrange(1, 9))
        for metadata in random_metadata(500, oracle)
    ]
    short = [name.removeprefix("Append") for name in names]
    stored, last = oracle.call(f"{MODULE}:add_broker_metadata", given, short), -1
    for (frame, count), their in zip(given, stored, strict=True):
        ours, last = decode_frame(their), last + count
        # Until 2.11 the thread's message is not cleared: an index of another topic's can stay in it.
        if "Index" in short or release(oracle.version) >= (3, 0):
            assert ours.index == (last if "Index" in short else None)
        assert (ours.broker_timestamp is not None) == ("BrokerTimestamp" in short)
        again = encode_frame(ours.metadata, ours.payload, broker_metadata=ours.broker_metadata)
        assert again == their
        assert again.endswith(frame)
