"""Decode values of Avro schemas with fastavro, safely for untrusted bytes.

Schemas that contain themselves use fastavro's Python reader, which raises RecursionError for deep values; the
compiled reader would crash the process. Schemas with lists of items that take no bytes are rejected, because
a small value could claim billions of such items.

Source: the Avro specification; apache/pulsar AvroReader.java (schemaless: the value alone).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json

_BROKEN: Final = (
    EOFError, ValueError, LookupError, OverflowError, TypeError, AttributeError, ArithmeticError,
    AssertionError, RecursionError, MemoryError, struct.error,
)  # fmt: skip
_NAMED: Final = ("record", "error", "enum", "fixed")


def avro_decoder(definition: bytes) -> Callable[[bytes], Any]:
    """Return a function that decodes values of an Avro schema (JSON). Raises DecodeError for invalid schemas.

    The function raises DecodeError for broken values. It returns dates and times as ISO 8601, decimals as
    strings.
    """
    import fastavro
    from fastavro import _read_py
    from fastavro.schema import SchemaParseException, UnknownType

    schema = read_json(definition)
    try:
        parsed = fastavro.parse_schema(schema)
        recursive = _is_recursive(schema, {}, (), "")
    except (SchemaParseException, UnknownType, *_BROKEN) as error:
        raise DecodeError(f"not an Avro schema: {error}") from error
    read: Callable[..., Any] = _read_py.schemaless_reader if recursive else fastavro.schemaless_reader
    plain = _plain if b"logicalType" in definition else _same

    def decode(data: bytes) -> Any:
        stream = _Stream(data)
        try:
            value = plain(read(stream, parsed, None))
        except _BROKEN as error:
            raise DecodeError(
                f"not a value of its Avro schema: {_reason(error)}", offset=stream.at
            ) from error
        if stream.at != len(data):
            raise DecodeError(f"{len(data) - stream.at} bytes follow the value", offset=stream.at)
        return value

    return decode


class _Stream:
    """A minimal file object for fastavro; `at` is the current offset."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def read(self, size: int) -> bytes:
        at = self.at
        if size < 0:
            raise ValueError("a negative size")
        data = self._data[at : at + size]
        self.at = at + len(data)
        return data


def _reason(error: BaseException) -> str:
    return "it is truncated" if isinstance(error, EOFError) else str(error) or type(error).__name__


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """Convert types that JSON does not have to strings."""
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, (Decimal, UUID)) else value


def _is_recursive(schema: Any, named: dict[str, Any], within: tuple[str, ...], space: str) -> bool:
    """Return True if a schema contains itself. Raises DecodeError for lists of items without bytes."""
    if isinstance(schema, str):
        full = _full_name(schema, space)
        return full in within or schema in within
    if isinstance(schema, list):
        return _any_recursive(schema, named, within, space)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _is_recursive(kind, named, within, space)
    if kind in _NAMED:
        space = schema.get("namespace", schema["name"].rpartition(".")[0] or space)
        full = _full_name(schema["name"], space)
        named[full] = schema
        inside = (*within, full)
        fields = schema["fields"] if kind in ("record", "error") else ()
        return _any_recursive([member["type"] for member in fields], named, inside, space)
    if kind == "array":
        if _may_be_empty(schema["items"], named, space):
            raise DecodeError("unsupported Avro schema: a list of items that take no bytes")
        return _is_recursive(schema["items"], named, within, space)
    return _is_recursive(schema["values"], named, within, space) if kind == "map" else False


def _any_recursive(schemas: list[Any], named: dict[str, Any], within: tuple[str, ...], space: str) -> bool:
    # A list, not a generator, because every schema has to be checked for lists of empty items.
    recursive = [_is_recursive(schema, named, within, space) for schema in schemas]
    return any(recursive)


def _may_be_empty(schema: Any, named: Mapping[str, Any], space: str) -> bool:
    """Return True if a value of a schema may take no bytes, such as null or a record of nulls."""
    if isinstance(schema, str):
        if schema == "null":
            return True
        schema = named.get(_full_name(schema, space), named.get(schema))
        # Named records always take bytes here, because a record that contains itself can't be empty.
        return schema is not None and schema["type"] == "fixed" and not schema["size"]
    if isinstance(schema, list):
        return False
    kind = schema["type"]
    if kind == "fixed":
        return not schema["size"]
    if kind in ("record", "error"):
        return all(_may_be_empty(member["type"], named, space) for member in schema["fields"])
    return False if kind in ("array", "map", "enum") else _may_be_empty(kind, named, space)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
