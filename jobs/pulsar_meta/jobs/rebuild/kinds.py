"""What a ledger holds, by its entries: nobody's record says so any more. Needs NumPy.

Sources: apache/pulsar RawMessageImpl.java (compacted data), MLDataFormats.proto (cursors),
SchemaStorageFormat.proto, TxnLogBufferedWriter.java, DelayedMessageIndexBucketSegment.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, get_args

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.frames.raw_message import decode_raw_message
from pulsar_meta.codecs.metadata.cursor import decode_position_info
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields
from pulsar_meta.codecs.protobuf.wire_fields import BYTES, VARINT, Field, split_fields
from pulsar_meta.codecs.transactions.log_entries import LogKind, possible_readings
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaEntry

Kind = Literal[
    "data",
    "compacted",
    "transaction-log",
    "pending-acks",
    "cursor",
    "schema",
    "delayed-index-bucket",
    "unknown",
]

# Entries that are looked at: the first ones and the last.
LOOKED_AT: Final = 4
_MAX_POSITION: Final = 2**62
# Milliseconds since the epoch, from 2001 to 2286.
_TIMES: Final = range(10**12, 10**13)


def kind_of(source: EntrySource, ledger_id: int, last: int, digest_type: DigestType | None) -> Kind:
    """Return what all the entries looked at are, "unknown" where they are not all of one kind."""
    kinds: set[Kind] | None = None
    for entry_id in sorted({*range(min(LOOKED_AT, last + 1)), last}):
        try:
            raw = source.read(ledger_id, entry_id)
            data = decode_bookie_entry(raw.data, digest_type).data
        except (DecodeError, NotFoundError):
            continue
        found = set(_readings(data, entry_id))
        kinds = found if kinds is None else kinds & found
    if not kinds:
        return "unknown"
    return next(kind for kind in _ORDER if kind in kinds)


# What can be read as several is the first of these.
_ORDER: Final[tuple[Kind, ...]] = get_args(Kind)


def _readings(data: memoryview, entry_id: int) -> Iterator[Kind]:
    """Yield what an entry can be."""
    logs: set[LogKind] = {entry.kind for entry in possible_readings(data)}
    yield from logs
    if _is_frame(data):
        yield "data"
    if _is_compacted(data):
        yield "compacted"
    if not logs and _is_position(data):
        yield "cursor"
    if _is_schema(data):
        yield "schema"
    if _is_bucket(data, entry_id):
        yield "delayed-index-bucket"


def _is_frame(data: memoryview) -> bool:
    try:
        frame = decode_frame(data)
    except DecodeError:
        return False
    return frame.checksum == "ok" or frame.metadata.publish_time in _TIMES


def _is_compacted(data: memoryview) -> bool:
    try:
        return _is_frame(decode_raw_message(data).frame)
    except DecodeError:
        return False


def _is_position(data: memoryview) -> bool:
    try:
        state = decode_position_info(data)
    except DecodeError:
        return False
    ids = 0 <= state.ledgerId < _MAX_POSITION and -1 <= state.entryId < _MAX_POSITION
    return ids and not has_unknown_fields(state)


def _is_schema(data: memoryview) -> bool:
    try:
        entry = parse_message(SchemaEntry, data)
    except DecodeError:
        return False
    return bool(entry.schema_data) and not has_unknown_fields(entry)


def _is_bucket(data: memoryview, entry_id: int) -> bool:
    """Return whether this is the list of a bucket's segments (its first entry), or a segment."""
    wanted = {1, 2, 3} if entry_id else {2, 3}
    content = bytes(data)
    try:
        parts = [field for field in split_fields(content) if field.number == 1 and field.wire_type == BYTES]
        return bool(parts) and all(wanted <= _numbers(content, part) for part in parts)
    except DecodeError:
        return False


def _numbers(data: bytes, message: Field) -> set[int]:
    """Return which fields of the message in a field are numbers."""
    inner = split_fields(data[message.content : message.end])
    return {field.number for field in inner if field.wire_type == VARINT}
