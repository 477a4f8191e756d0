"""Recognise what a ledger holds by its entries, and write plain values as JSON and back.

A dataclass becomes a list of its name and fields, a set a sorted list, a mapping a list of pairs, bytes
base64. Only
the annotated classes are created when reading. Needs NumPy.

Sources: apache/pulsar RawMessageImpl.java (compacted data), MLDataFormats.proto (cursors),
SchemaStorageFormat.proto, TxnLogBufferedWriter.java, DelayedMessageIndexBucketSegment.proto.
"""

from __future__ import annotations

import types
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pulsar_meta.codecs.errors import (
    ConflictError,
    DecodeError,
    GuardError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, decode_raw_message
from pulsar_meta.codecs.metadata.envelope import decode_position_info
from pulsar_meta.codecs.protobuf.parse import BYTES, VARINT, Field, parse_message, split_fields
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields
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


_ERRORS: Final = (ConflictError, GuardError, NotFoundError, PulsarMetaError, UnreachableError, UsageError)
_errors: Final = {one.__name__: one for one in _ERRORS}


def plain(value: Any) -> Any:
    """Return a value as what JSON has."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case PulsarMetaError():
            return [type(value).__name__, value.message, value.source, getattr(value, "offset", None)]
        case frozenset():
            return sorted(map(plain, value))
        case Mapping():
            return [[plain(key), plain(held)] for key, held in value.items()]
        case tuple():
            return list(map(plain, value))
        case _ if is_dataclass(value):
            return [type(value).__name__, *(plain(getattr(value, one.name)) for one in fields(value))]
        case _:
            return value


def read_plain(kind: Any, found: Any) -> Any:
    """Return the value of the annotated type that `plain` made `found` of; ValueError where it made none."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), found)
    if origin is Literal:
        return _checked(found, found in get_args(kind), kind)
    if kind in (int, str, bool, type(None)):
        return _checked(found, type(found) is kind, kind)
    if kind is bytes:
        return b64decode(_checked(found, isinstance(found, str), kind), validate=True)
    return _of_list(kind, origin, _checked(found, isinstance(found, list), kind))


def _of_list(kind: Any, origin: Any, found: list[Any]) -> Any:
    arguments = get_args(kind)
    if origin is frozenset:
        return frozenset(read_plain(arguments[0], one) for one in found)
    if origin is tuple and arguments[1:] == (...,):
        return tuple(read_plain(arguments[0], one) for one in found)
    if origin is tuple:
        return tuple(read_plain(*pair) for pair in zip(arguments, found, strict=True))
    if origin is Mapping:
        key, held = arguments
        return {read_plain(key, one[0]): read_plain(held, one[1]) for one in found}
    if kind is PulsarMetaError:
        return _error(*found)
    if isinstance(kind, type) and is_dataclass(kind):
        _checked(found, found[:1] == [kind.__name__], kind)
        found = found[1:]
    # Of a named tuple only the values are there.
    return kind(*(read_plain(*pair) for pair in zip(_types(kind), found, strict=True)))


def _one_of(kinds: tuple[Any, ...], found: Any) -> Any:
    if found is None and type(None) in kinds:
        return None
    some = [one for one in kinds if one is not type(None)]
    if len(some) > 1:
        some = [one for one in some if isinstance(found, list) and found[:1] == [one.__name__]]
    _checked(found, len(some) == 1, kinds)
    return read_plain(some[0], found)


@cache
def _types(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())


def _error(name: str, message: str, source: str | None, offset: int | None) -> PulsarMetaError:
    if name == DecodeError.__name__:
        return DecodeError(message, offset=offset, source=source)
    return _errors[name](message, source=source)


def _checked(found: Any, right: bool, kind: object) -> Any:
    if not right:
        raise ValueError(f"{str(found)[:80]} is no {kind}")
    return found
