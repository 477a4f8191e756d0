"""Recognise what a ledger contains from its entries, and convert plain values to JSON and back.

In JSON, a dataclass is a list of its name and its fields, a set is a sorted list, a mapping is a list of
pairs, and bytes are base64. Reading creates only the classes in the annotations. Needs NumPy.

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
from pulsar_meta.codecs.names import LogKind
from pulsar_meta.codecs.protobuf.parse import BYTES, VARINT, Field, parse_message, split_fields
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields
from pulsar_meta.codecs.transactions.log_entries import possible_readings
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

# How many of the first entries are read, in addition to the last one.
SAMPLED_ENTRIES: Final = 4
_MAX_POSITION: Final = 2**62
# Milliseconds since the epoch, from 2001 to 2286.
_TIMES: Final = range(10**12, 10**13)


def kind_of(source: EntrySource, ledger_id: int, last: int, digest_type: DigestType | None) -> Kind:
    """Find the kind that fits all sampled entries; "unknown" if none does."""
    kinds: set[Kind] | None = None
    for entry_id in sorted({*range(min(SAMPLED_ENTRIES, last + 1)), last}):
        try:
            raw = source.read(ledger_id, entry_id)
            data = decode_bookie_entry(raw.data, digest_type).data
        except (DecodeError, NotFoundError):
            continue
        possible = set(_readings(data, entry_id))
        kinds = possible if kinds is None else kinds & possible
    if not kinds:
        return "unknown"
    return next(kind for kind in _ORDER if kind in kinds)


# If entries fit several kinds, the first of these is chosen.
_ORDER: Final[tuple[Kind, ...]] = get_args(Kind)


def _readings(data: memoryview, entry_id: int) -> Iterator[Kind]:
    """Yield the kinds that an entry fits."""
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
    """True for the list of a bucket's segments, which is its first entry, and for a segment."""
    wanted = {1, 2, 3} if entry_id else {2, 3}
    content = bytes(data)
    try:
        parts = [field for field in split_fields(content) if field.number == 1 and field.wire_type == BYTES]
        return bool(parts) and all(wanted <= _numbers(content, part) for part in parts)
    except DecodeError:
        return False


def _numbers(data: bytes, message: Field) -> set[int]:
    """The numbers of the varint fields in an embedded message."""
    inner = split_fields(data[message.content : message.end])
    return {field.number for field in inner if field.wire_type == VARINT}


_ERRORS: Final = (ConflictError, GuardError, NotFoundError, PulsarMetaError, UnreachableError, UsageError)
_errors: Final = {error.__name__: error for error in _ERRORS}


def to_plain(value: Any) -> Any:
    """Convert a value to what JSON can represent."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case PulsarMetaError():
            return [type(value).__name__, value.message, value.source, getattr(value, "offset", None)]
        case frozenset():
            return sorted(map(to_plain, value))
        case Mapping():
            return [[to_plain(key), to_plain(item)] for key, item in value.items()]
        case tuple():
            return list(map(to_plain, value))
        case _ if is_dataclass(value):
            return [type(value).__name__, *(to_plain(getattr(value, item.name)) for item in fields(value))]
        case _:
            return value


def from_plain(kind: Any, plain: Any) -> Any:
    """Convert the result of `to_plain` back to the annotated type. Raises ValueError if it does not fit."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), plain)
    if origin is Literal:
        return _checked(plain, plain in get_args(kind), kind)
    if kind in (int, str, bool, type(None)):
        return _checked(plain, type(plain) is kind, kind)
    if kind is bytes:
        return b64decode(_checked(plain, isinstance(plain, str), kind), validate=True)
    return _of_list(kind, origin, _checked(plain, isinstance(plain, list), kind))


def _of_list(kind: Any, origin: Any, plain: list[Any]) -> Any:
    arguments = get_args(kind)
    if origin is frozenset:
        return frozenset(from_plain(arguments[0], item) for item in plain)
    if origin is tuple and arguments[1:] == (...,):
        return tuple(from_plain(arguments[0], item) for item in plain)
    if origin is tuple:
        return tuple(from_plain(*pair) for pair in zip(arguments, plain, strict=True))
    if origin is Mapping:
        key, value = arguments
        return {from_plain(key, item[0]): from_plain(value, item[1]) for item in plain}
    if kind is PulsarMetaError:
        return _error(*plain)
    if isinstance(kind, type) and is_dataclass(kind):
        _checked(plain, plain[:1] == [kind.__name__], kind)
        plain = plain[1:]
    # A named tuple is stored without its name.
    return kind(*(from_plain(*pair) for pair in zip(_types(kind), plain, strict=True)))


def _one_of(kinds: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in kinds:
        return None
    candidates = [item for item in kinds if item is not type(None)]
    if len(candidates) > 1:
        candidates = [item for item in candidates if isinstance(plain, list) and plain[:1] == [item.__name__]]
    _checked(plain, len(candidates) == 1, kinds)
    return from_plain(candidates[0], plain)


@cache
def _types(kind: Any) -> tuple[Any, ...]:
    return tuple(get_type_hints(kind).values())


def _error(name: str, message: str, source: str | None, offset: int | None) -> PulsarMetaError:
    if name == DecodeError.__name__:
        return DecodeError(message, offset=offset, source=source)
    return _errors[name](message, source=source)


def _checked(plain: Any, is_valid: bool, kind: object) -> Any:
    if not is_valid:
        raise ValueError(f"{str(plain)[:80]} is not a valid {kind}")
    return plain
