"""Snapshots of transaction buffers: which transactions of a topic were aborted, and up to where all ended.

They are the messages of system topics in the topic's namespace, under the topic's name as their key:

    __transaction_buffer_snapshot           TransactionBufferSnapshot: the aborted ones
    __transaction_buffer_snapshot_indexes   TransactionBufferSnapshotIndexes: the newest, where segments are
    __transaction_buffer_snapshot_segments  TransactionBufferSnapshotSegment: older ones (`multiple-N-TOPIC`)

Source: apache/pulsar broker/transaction/buffer/metadata (and v2), the schemas that 3.0.7 to 5.0.0-M1 stored.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.shapes import Either
from pulsar_meta.codecs.transactions.avro import Avro, array, decode_whole, long, nullable, record, text

SnapshotKind = Literal["snapshot", "indexes", "segment"]

SNAPSHOTS: Final = "__transaction_buffer_snapshot"
INDEXES: Final = "__transaction_buffer_snapshot_indexes"
SEGMENTS: Final = "__transaction_buffer_snapshot_segments"

_TOPICS: Final[dict[str, SnapshotKind]] = {SNAPSHOTS: "snapshot", INDEXES: "indexes", SEGMENTS: "segment"}
_ABORTED: Final = record(
    "AbortTxnMetadata", dict.fromkeys(("entryId", "ledgerId", "txnIdLeastBits", "txnIdMostBits"), long)
)
_TXN: Final = record("TxnIDData", dict.fromkeys(("leastSigBits", "mostSigBits"), long))
_INDEX: Final = record(
    "TransactionBufferSnapshotIndex",
    dict.fromkeys(
        ("abortedMarkEntryID", "abortedMarkLedgerID", "segmentEntryID", "segmentLedgerID", "sequenceID"), long
    ),
)
_NEWEST: Final = record(
    "TransactionBufferSnapshotIndexesMetadata",
    {"aborts": nullable(array(_TXN)), "maxReadPositionEntryId": long, "maxReadPositionLedgerId": long},
)
_RECORDS: Final[dict[SnapshotKind, Avro]] = {
    "snapshot": record(
        "TransactionBufferSnapshot",
        {
            "aborts": nullable(array(_ABORTED)),
            "maxReadPositionEntryId": long,
            "maxReadPositionLedgerId": long,
            "topicName": nullable(text),
        },
    ),
    "indexes": record(
        "TransactionBufferSnapshotIndexes",
        {"indexList": nullable(array(_INDEX)), "snapshot": nullable(_NEWEST), "topicName": nullable(text)},
    ),
    "segment": record(
        "TransactionBufferSnapshotSegment",
        {
            "aborts": nullable(array(_TXN)),
            "persistentPositionEntryId": long,
            "persistentPositionLedgerId": long,
            "sequenceId": long,
            "topicName": nullable(text),
        },
    ),
}
SHAPES: Final = {kind: avro.shape for kind, avro in _RECORDS.items()}
ANY_SNAPSHOT: Final = Either(tuple(SHAPES.values()))


def snapshot_kind(name: str) -> SnapshotKind | None:
    """Return what kind of snapshots the topic of this name holds, None for other topics.

    Partitions are topics of their own, and hold the same.
    """
    local = name.rpartition("/")[2]
    base, _, number = local.rpartition("-partition-")
    return _TOPICS.get(base if number.isdigit() else local)


def decode_snapshot(kind: SnapshotKind, payload: Buffer) -> dict[str, Any]:
    """Return the snapshot in a message's payload, its fields under the names of Pulsar's classes.

    DecodeError where it does not fit to the byte.
    """
    found: dict[str, Any] = decode_whole(_RECORDS[kind], payload)
    return found


def encode_snapshot(kind: SnapshotKind, value: Any, path: str = "value") -> bytes:
    """Return the payload that says what `decode_snapshot` returned; DecodeError names the wrong place."""
    return _RECORDS[kind].write(value, path)
