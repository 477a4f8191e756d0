"""Entries of transaction logs: a coordinator's log, and a subscription's log of pending acks.

An entry is a record, or a batch of records:

    0x0e01, int16 version (1), BatchedTransactionMetadataEntry or BatchedPendingAckMetadataEntry

Entry frames also begin with 0x0e01, so only the ledger's owner tells whether an entry is a batch or a frame.

Sources: apache/pulsar TxnLogBufferedWriter.java (PIP-160), MLTransactionLogImpl.java,
MLPendingAckStore.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypedDict

from google.protobuf.message import Message

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.names import LogKind
from pulsar_meta.codecs.protobuf.from_json import message_shape
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields, message_to_json
from pulsar_meta.codecs.reader import Buffer, Reader
from pulsar_meta.codecs.shapes import Either
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from pulsar_meta.proto.TransactionLogs_pb2 import (
    BatchedPendingAckMetadataEntry,
    BatchedTransactionMetadataEntry,
    PendingAckMetadataEntry,
    TransactionMetadataEntry,
)

LogRecord = TransactionMetadataEntry | PendingAckMetadataEntry

LOG_KINDS: Final[tuple[LogKind, ...]] = ("transaction-log", "pending-acks")
BATCH_MAGIC: Final = 0x0E01
BATCH_VERSION: Final = 1

_PREFIX: Final = struct.Struct(">HH")
_ALWAYS: Final[dict[type[Message], tuple[Any, ...]]] = {
    TransactionMetadataEntry: ("metadata_op", "max_local_txn_id"),
    PendingAckMetadataEntry: ("pending_ack_op", "ack_type"),
}


class TxnId(NamedTuple):
    """A transaction: its coordinator's number, and its number there. Formatted as `most:least`."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"{self.most}:{self.least}"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The records of an entry, in order; `batched` if the entry is a batch."""

    kind: LogKind
    batched: bool
    records: Sequence[LogRecord]


def decode_log_entry(kind: LogKind, data: Buffer) -> LogEntry:
    """Decode an entry of a log (without BookKeeper's header and digest).

    Raises DecodeError if it is broken or a batch has an unknown version.
    """
    reader = Reader(data)
    if reader.left < _PREFIX.size or _PREFIX.unpack_from(reader.view)[0] != BATCH_MAGIC:
        return LogEntry(kind, False, [_record(kind, reader.view)])
    _, version = reader.numbers(_PREFIX, "a batch's prefix")
    if version != BATCH_VERSION:
        raise DecodeError(f"unknown batch version {version}: expected {BATCH_VERSION}", offset=2)
    with decoding(start=reader.at):
        return LogEntry(kind, True, _batch(kind, reader.rest()))


def encode_log_entry(entry: LogEntry) -> bytes:
    """Encode an entry like a broker."""
    if not entry.batched:
        return entry.records[0].SerializeToString()
    records: Any = entry.records
    if entry.kind == "transaction-log":
        batch: Message = BatchedTransactionMetadataEntry(transaction_logs=records)
    else:
        batch = BatchedPendingAckMetadataEntry(pending_ack_logs=records)
    return _PREFIX.pack(BATCH_MAGIC, BATCH_VERSION) + batch.SerializeToString()


def possible_readings(data: Buffer) -> Iterator[LogEntry]:
    """Yield the entry for each kind of log that its bytes fit completely and without unknown fields.

    Records of both kinds begin with the same fields, so an entry may fit both.
    """
    for kind in LOG_KINDS:
        try:
            entry = decode_log_entry(kind, data)
        except DecodeError:
            continue
        if entry.records and all(map(_is_usual, entry.records)):
            yield entry


def _record_shape() -> Either:
    kinds = (TransactionMetadataEntry, PendingAckMetadataEntry)
    return Either(tuple(message_shape(kind, {"txn": str}, name=kind.DESCRIPTOR.name) for kind in kinds))


class LogDocument(TypedDict):
    """A log entry; each record has the fields of its .proto (TransactionLogs.proto) and its `txn`."""

    kind: LogKind
    batched: bool
    records: list[Annotated[dict[str, Any], _record_shape()]]


def log_entry_to_json(entry: LogEntry) -> LogDocument:
    """Convert an entry to JSON. Each record has the fields of its .proto, and its `txn`."""
    records = [{"txn": str(txn_of(record)), **message_to_json(record)} for record in entry.records]
    return {"kind": entry.kind, "batched": entry.batched, "records": records}


def txn_of(record: LogRecord) -> TxnId:
    """Return the transaction of a record."""
    return TxnId(record.txnid_most_bits, record.txnid_least_bits)


def txn_of_message(metadata: MessageMetadata) -> TxnId | None:
    """Return the transaction of a message or marker, or None."""
    if not metadata.HasField("txnid_most_bits") or not metadata.HasField("txnid_least_bits"):
        return None
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)


def _batch(kind: LogKind, data: memoryview) -> Sequence[LogRecord]:
    if kind == "transaction-log":
        return parse_message(BatchedTransactionMetadataEntry, data).transaction_logs
    return parse_message(BatchedPendingAckMetadataEntry, data).pending_ack_logs


def _record(kind: LogKind, data: memoryview) -> LogRecord:
    if kind == "transaction-log":
        return parse_message(TransactionMetadataEntry, data)
    return parse_message(PendingAckMetadataEntry, data)


def _is_usual(record: LogRecord) -> bool:
    """Return True if a record has no unknown fields, and all fields that brokers always write."""
    always = ("txnid_most_bits", "txnid_least_bits", *_ALWAYS[type(record)])
    return not has_unknown_fields(record) and all(record.HasField(name) for name in always)
