"""Snapshots of transaction buffers in Avro: real ones are decoded and broken ones refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import SnapshotKind, snapshot_kind
from pulsar_meta.codecs.transactions.snapshots import decode_snapshot

TOPIC = "persistent://public/default/txn"


def real_snapshot() -> bytes:
    """Return the message in ledger 300 of the capture pulsar-4.2.4."""
    return bytes.fromhex("0204065600001c56060000305602") + bytes([2 * len(TOPIC)]) + TOPIC.encode()


def test_a_snapshot_of_4_2_4_is_decoded() -> None:
    assert decode_snapshot("snapshot", real_snapshot()) == {
        "aborts": [
            {"entryId": 3, "ledgerId": 43, "txnIdLeastBits": 0, "txnIdMostBits": 0},
            {"entryId": 14, "ledgerId": 43, "txnIdLeastBits": 3, "txnIdMostBits": 0},
        ],
        "maxReadPositionEntryId": 24,
        "maxReadPositionLedgerId": 43,
        "topicName": TOPIC,
    }


def test_a_truncated_snapshot_is_a_decode_error() -> None:
    snapshot = real_snapshot()
    for size in range(len(snapshot)):
        with pytest.raises(DecodeError):
            decode_snapshot("snapshot", snapshot[:size])


def test_extra_bytes_after_a_snapshot_are_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="1 bytes follow"):
        decode_snapshot("snapshot", real_snapshot() + b"\0")


def test_a_list_that_claims_too_many_elements_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="claims"):
        decode_snapshot("segment", bytes.fromhex("02feffffffff1f00"))


@given(st.binary(max_size=64), st.sampled_from(("snapshot", "indexes", "segment")))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes, kind: SnapshotKind) -> None:
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
def test_the_topic_name_determines_the_kind(name: str, kind: SnapshotKind | None) -> None:
    assert snapshot_kind(name) == kind
