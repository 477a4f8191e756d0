"""Entries of transaction logs and snapshots of transaction buffers as JSON.

A log entry is `{"batched", "records"}`, and each record has the fields of its .proto. A snapshot has the
fields of Pulsar's class. Batches and entry frames begin with the same bytes, so only --type can distinguish
them.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

from google.protobuf.message import Message

from pulsar_meta.codecs.documents.value import ORDER_KEPT, Value
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import safe, shown
from pulsar_meta.codecs.names import LogKind, SnapshotKind
from pulsar_meta.codecs.protobuf.from_json import json_to_message, message_shape
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.shapes import Members, many
from pulsar_meta.codecs.transactions.log_entries import (
    LogEntry,
    decode_log_entry,
    encode_log_entry,
    possible_readings,
    txn_of,
)
from pulsar_meta.codecs.transactions.snapshots import SHAPES, decode_snapshot, encode_snapshot
from pulsar_meta.proto.TransactionLogs_pb2 import PendingAckMetadataEntry, TransactionMetadataEntry

_LOGS: Final[dict[str, tuple[LogKind, type[Message]]]] = {
    "TransactionLogEntry": ("transaction-log", TransactionMetadataEntry),
    "PendingAckLogEntry": ("pending-acks", PendingAckMetadataEntry),
}
_SNAPSHOTS: Final[dict[str, SnapshotKind]] = {
    "TransactionBufferSnapshot": "snapshot",
    "TransactionBufferSnapshotIndexes": "indexes",
    "TransactionBufferSnapshotSegment": "segment",
}


class LogMeaning(TypedDict, total=False):
    """The transactions of a log entry, as `most:least`."""

    transactions: list[str]


def shapes() -> dict[str, Any]:
    """Return the JSON type of each kind."""
    logs = {kind: _entry_shape(kind, record) for kind, (_, record) in _LOGS.items()}
    return {**logs, **{kind: _snapshot_shape(kind, SHAPES[name]) for kind, name in _SNAPSHOTS.items()}}


def _entry_shape(kind: str, record: type[Message]) -> Members:
    members = {"batched": bool, "records": many(message_shape(record)), ORDER_KEPT: bool}
    return Members(kind, "A log entry; each record has the fields of its .proto.", lambda: members)


def _snapshot_shape(kind: str, snapshot: Members) -> Members:
    return Members(kind, snapshot.about, lambda: {**snapshot.of(), ORDER_KEPT: bool})


def decode_value(kind: str, data: bytes) -> Value:
    """Decode a value of `kind`. If it is broken, the result has only an error."""
    try:
        if kind in _SNAPSHOTS:
            value = safe(decode_snapshot(_SNAPSHOTS[kind], data))
            meaning: LogMeaning = {}
        else:
            entry = decode_log_entry(_LOGS[kind][0], data)
            value = {
                "batched": entry.batched,
                "records": [message_to_json(record) for record in entry.records],
            }
            meaning = {"transactions": list(dict.fromkeys(str(txn_of(record)) for record in entry.records))}
        return Value(value, meaning, encode_value(kind, value) == data)
    except DecodeError as error:
        return Value(None, error=error)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Encode a value of `kind`. Raises DecodeError, naming the path of an invalid member."""
    if kind in _SNAPSHOTS:
        return encode_snapshot(_SNAPSHOTS[kind], value, path)
    if not isinstance(value, dict) or value.keys() - {"batched", "records"}:
        raise DecodeError(f"{path}: expected an object with batched and records, found {shown(value)}")
    batched, records = value.get("batched"), value.get("records")
    if not isinstance(batched, bool):
        raise DecodeError(f"{path}.batched: expected true or false, found {shown(batched)}")
    if not isinstance(records, list) or not (batched or len(records) == 1):
        raise DecodeError(f"{path}.records: expected a list, with exactly one record if `batched` is false")
    log, message = _LOGS[kind]
    messages: list[Any] = [
        json_to_message(message, record, f"{path}.records[{at}]") for at, record in enumerate(records)
    ]
    return encode_log_entry(LogEntry(log, batched, messages))


def fitting(data: bytes) -> list[str]:
    """Return the kinds of log entries that `data` fits completely and without unknown fields."""
    readings = {reading.kind for reading in possible_readings(data)}
    return [kind for kind, (log, _) in _LOGS.items() if log in readings]
