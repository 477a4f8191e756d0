"""Every entry has a document, even if its bytes are damaged, and the damage is reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.cli.render.entries import each_message, entry_view, message_view
from pulsar_meta.codecs.compression import compress
from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.entry_json import PAYLOAD_FORMS
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.codecs.json_text import dumps
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_choice import Bound
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_reading import DataEntry
from pulsar_meta.jobs.entries.filters import EntryFilter, parse_filter
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata
from pulsar_meta.proto.TransactionLogs_pb2 import (
    COMMIT,
    BatchedPendingAckMetadataEntry,
    Individual,
    PendingAckMetadataEntry,
)

ROUNDS = 3_000


def damaged(frame: bytes, chance: random.Random) -> bytes:
    """Change, remove or insert a few bytes of a frame."""
    data = bytearray(frame)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at:at] = chance.randbytes(chance.randint(1, 4))
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case _:
                data[at : at + 1] = bytes([chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))])
    return bytes(data)


def test_every_damaged_frame_has_a_document(capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4')}"]) as source:
        frames = [
            bytes(decode_bookie_entry(entry.data).data)
            for ledger_id in source.ledgers()[::9]
            for entry in source.read_many(ledger_id, 0, 2)
        ]
    chance = random.Random(20_26)
    reported: list[PulsarMetaError] = []
    for number in range(ROUNDS):
        data = memoryview(damaged(chance.choice(frames), chance))
        entry = DataEntry(1, number, data, "absent")
        form = chance.choice(PAYLOAD_FORMS)
        document = describe(entry, EntryFormat(), DumpOptions(deep=True, form=form), reported.append)
        assert dumps(document)
        assert len(entry_view().row(document)) == len(entry_view().columns)
        for row in each_message([document]):
            assert len(message_view(short=True).row(row)) == len(message_view().columns)
    assert len(reported) > ROUNDS / 2
    assert all(str(error) for error in reported)


@pytest.mark.parametrize(
    ("text", "bound"),
    [("0", Bound(0)), ("-10", Bound(-10)), ("7:3", Bound(3, 7)), ("007", Bound(7)), ("21:9:2", Bound(9, 21))],
)
def test_bounds_are_parsed(text: str, bound: Bound) -> None:
    assert Bound.parse(text) == bound


@pytest.mark.parametrize("text", ["", ":", "1:", ":1", "a", "1:-1", "-1:1", "1:2:3:4", "0x1", "1.5"])
def test_invalid_bounds_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="ENTRY or LEDGER:ENTRY"):
        Bound.parse(text)


def test_a_batch_with_too_few_messages_shows_them_and_a_fault() -> None:
    batch = join_batch([(SingleMessageMetadata(payload_size=0), b"payload %d" % number) for number in (0, 1)])
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=3)
    entry = DataEntry(1, 2, memoryview(encode_frame(metadata, batch)), "absent")
    reported: list[PulsarMetaError] = []
    document = describe(entry, EntryFormat(), DumpOptions(deep=True, form="text"), reported.append)
    assert [message["payload"] for message in document["messages"]] == ["payload 0", "payload 1"]
    assert document["unopened"] == "the entry claims 3 messages, its payload has 2"
    assert [str(error) for error in reported] == ["entry 1:2: the entry claims 3 messages, its payload has 2"]


@pytest.mark.parametrize("codec", ["zlib", "zstd", "lz4", "snappy"])
def test_a_truncated_batch_shows_the_messages_before_the_damage(codec: str) -> None:
    chance = random.Random(7)
    # Zstandard decompresses whole blocks of 128 KiB.
    noise = [chance.randbytes(20_000) + bytes(100) for _ in range(20)]
    batch = join_batch([(SingleMessageMetadata(payload_size=0), payload) for payload in noise])
    metadata = MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=20,
        compression=codec.upper(), uncompressed_size=len(batch),
    )  # fmt: skip
    packed = compress(codec, batch)
    frame = encode_frame(metadata, packed[: len(packed) * 2 // 3])
    entry = DataEntry(1, 2, memoryview(frame), "absent")
    reported: list[PulsarMetaError] = []
    document = describe(entry, EntryFormat(), DumpOptions(deep=True, form="hex"), reported.append)
    shown = [message["payload"] for message in document["messages"]]
    assert shown == [payload.hex() for payload in noise[: len(shown)]]
    assert 0 < len(shown) < 20
    assert document["unopened"] == str(reported[0]).partition(": ")[2]
    verdict = EntryFilter(parse_filter("no-such = 'x'")).decide(decode_frame(frame))
    assert (verdict.matches, verdict.why) == (False, "cannot be opened")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff", "not a PendingAckMetadataEntry: broken protobuf"),
        (bytes.fromhex("0e010002"), "unknown batch version 2: expected 1"),
    ],
)
def test_an_invalid_record_of_a_log_is_reported(data: bytes, why: str) -> None:
    form = EntryFormat().of_topic("persistent://public/default/t-s__transaction_pending_ack")
    reported: list[PulsarMetaError] = []
    document = describe(DataEntry(1, 2, memoryview(data), "ok"), form, DumpOptions(), reported.append)
    assert document["unopened"] == "no frame: acknowledgments in transactions"
    assert "log" not in document
    assert [str(error).startswith(f"entry 1:2: {why}") for error in reported] == [True]


def test_an_invalid_snapshot_is_reported_and_a_tombstone_is_not() -> None:
    form = EntryFormat().of_topic("persistent://public/default/__transaction_buffer_snapshot")
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    reported: list[PulsarMetaError] = []
    for payload in (b"", b"\x02"):
        entry = DataEntry(1, 2, memoryview(encode_frame(metadata, payload)), "ok")
        (message,) = describe(entry, form, DumpOptions(deep=True), reported.append)["messages"]
        assert message.get("snapshot") is None
        assert ("snapshot" in message) == (payload == b"")
    assert ["no snapshot of a transaction buffer" in str(error) for error in reported] == [True]


def test_a_frame_with_a_wrong_checksum_may_be_a_batch_of_log_records() -> None:
    batch = (
        bytes.fromhex("0e010001")
        + BatchedPendingAckMetadataEntry(
            pending_ack_logs=[
                PendingAckMetadataEntry(
                    pending_ack_op=COMMIT, ack_type=Individual, txnid_most_bits=0, txnid_least_bits=7
                )
            ]
        ).SerializeToString()
    )
    reported: list[PulsarMetaError] = []
    document = describe(
        DataEntry(1, 2, memoryview(batch), "ok"), EntryFormat(), DumpOptions(), reported.append
    )
    (reading,) = document["readings"]
    assert (reading["kind"], reading["batched"]) == ("pending-acks", True)
    assert [record["txn"] for record in reading["records"]] == ["0:7"]
    assert reported == []
