"""Snapshots of transaction buffers in Avro, as brokers wrote them, and broken ones."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.transactions.snapshots import SnapshotKind, decode_snapshot, snapshot_kind

TOPIC = "persistent://public/default/txn"


def real_snapshot() -> bytes:
    """The message in ledger 300 of the capture pulsar-4.2.4."""
    return bytes.fromhex("0204065600001c56060000305602") + bytes([2 * len(TOPIC)]) + TOPIC.encode()


def test_a_snapshot_of_4_2_4() -> None:
    assert decode_snapshot("snapshot", real_snapshot()) == {
        "aborts": [
            {"entryId": 3, "ledgerId": 43, "txnIdLeastBits": 0, "txnIdMostBits": 0},
            {"entryId": 14, "ledgerId": 43, "txnIdLeastBits": 3, "txnIdMostBits": 0},
        ],
        "maxReadPositionEntryId": 24,
        "maxReadPositionLedgerId": 43,
        "topicName": TOPIC,
    }


def test_no_part_of_it_is_one() -> None:
    whole = real_snapshot()
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_snapshot("snapshot", whole[:size])


def test_what_follows_is_a_fault() -> None:
    with pytest.raises(DecodeError, match="1 bytes follow"):
        decode_snapshot("snapshot", real_snapshot() + b"\0")


def test_a_list_cannot_claim_more_than_is_there() -> None:
    with pytest.raises(DecodeError, match="claims"):
        decode_snapshot("segment", bytes.fromhex("02feffffffff1f00"))


@given(st.binary(max_size=64), st.sampled_from(("snapshot", "indexes", "segment")))
def test_only_decode_errors_leave(data: bytes, kind: SnapshotKind) -> None:
    with suppress(DecodeError):
        decode_snapshot(kind, data)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("persistent://my/ns/__transaction_buffer_snapshot", "snapshot"),
        ("persistent://my/ns/__transaction_buffer_snapshot-partition-3", "snapshot"),
        ("my/ns/persistent/__transaction_buffer_snapshot_indexes", "indexes"),
        ("persistent://my/ns/__transaction_buffer_snapshot_segments", "segment"),
        ("persistent://my/ns/__transaction_buffer_snapshots", None),
    ],
)
def test_the_name_decides(name: str, kind: SnapshotKind | None) -> None:
    assert snapshot_kind(name) == kind
