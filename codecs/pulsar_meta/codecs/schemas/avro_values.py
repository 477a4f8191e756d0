"""Values that were written by an Avro schema, by fastavro.

What a stranger's bytes could do to it is kept away from it: a schema that contains itself is read by its
reader in Python, which refuses depth where the compiled one ends the process, and lists of items that take
no bytes are refused, since their number is only claimed.

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
    """Return what reads values of an Avro schema (its JSON); DecodeError where it is no such schema.

    The reader raises DecodeError for broken values. Dates and times become ISO 8601, decimals texts.
    """
    import fastavro
    from fastavro import _read_py
    from fastavro.schema import SchemaParseException, UnknownType

    schema = read_json(definition)
    try:
        parsed = fastavro.parse_schema(schema)
        recursive = _examine(schema, {}, (), "")
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
    """Bytes to read from, as fastavro wants them."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def read(self, size: int) -> bytes:
        at = self.at
        if size < 0:
            raise ValueError("a negative size")
        found = self._data[at : at + size]
        self.at = at + len(found)
        return found


def _reason(error: BaseException) -> str:
    return "it ends too early" if isinstance(error, EOFError) else str(error) or type(error).__name__


def _same(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """Return a value with what JSON does not have as text."""
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, (Decimal, UUID)) else value


def _examine(schema: Any, named: dict[str, Any], within: tuple[str, ...], space: str) -> bool:
    """Return whether a schema contains itself; DecodeError for lists of items that may take no bytes."""
    if isinstance(schema, str):
        full = _full_name(schema, space)
        return full in within or schema in within
    if isinstance(schema, list):
        return _any_recursive(schema, named, within, space)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _examine(kind, named, within, space)
    if kind in _NAMED:
        space = schema.get("namespace", schema["name"].rpartition(".")[0] or space)
        full = _full_name(schema["name"], space)
        named[full] = schema
        inside = (*within, full)
        fields = schema["fields"] if kind in ("record", "error") else ()
        return _any_recursive([one["type"] for one in fields], named, inside, space)
    if kind == "array":
        if _may_be_empty(schema["items"], named, space):
            raise DecodeError("not an Avro schema that is read: a list of items that take no bytes")
        return _examine(schema["items"], named, within, space)
    return _examine(schema["values"], named, within, space) if kind == "map" else False


def _any_recursive(schemas: list[Any], named: dict[str, Any], within: tuple[str, ...], space: str) -> bool:
    # Each is looked at, whatever the one before says: all lists have to be examined.
    found = [_examine(one, named, within, space) for one in schemas]
    return any(found)


def _may_be_empty(schema: Any, named: Mapping[str, Any], space: str) -> bool:
    """Return whether a value of a schema may take no bytes: nothing, or records of nothing."""
    if isinstance(schema, str):
        if schema == "null":
            return True
        schema = named.get(_full_name(schema, space), named.get(schema))
        # A record that contains itself and takes no bytes would have no end; one seen here is being defined.
        return schema is not None and schema["type"] == "fixed" and not schema["size"]
    if isinstance(schema, list):
        return False
    kind = schema["type"]
    if kind == "fixed":
        return not schema["size"]
    if kind in ("record", "error"):
        return all(_may_be_empty(one["type"], named, space) for one in schema["fields"])
    return False if kind in ("array", "map", "enum") else _may_be_empty(kind, named, space)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
