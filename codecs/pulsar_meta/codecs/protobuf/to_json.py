"""Convert protobuf messages to JSON values without loss: names as in the .proto, absent fields left out.

Encoders are compiled once per message type. `google.protobuf.json_format` takes about four times as long for
the 100 000 ranges of a large cursor. Unknown fields become the member `unknown_fields` of their message.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, TypedDict, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER, safe_integer
from pulsar_meta.codecs.protobuf.parse import split_fields

UNKNOWN_FIELDS: Final = "unknown_fields"

Encoder = Callable[[Any], dict[str, Any]]
Made = TypeVar("Made")

_INTEGERS: Final = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    }
)
# Words of bit sets are always strings, because they are flags, not quantities, and bit 63 is common.
_BIT_SETS: Final = ("deleteSet", "ack_set", "LongListMap.values")
_GROUP: Final = 3


def message_to_json(message: Message) -> dict[str, Any]:
    """Convert `message` to JSON. It may lack required fields."""
    careful = not message.IsInitialized() or has_unknown_fields(message)
    return encoder_of(message.DESCRIPTOR, careful=careful)(message)


def has_unknown_fields(message: Message) -> bool:
    """Return True if `message`, or a message inside it, has fields that are not in its .proto."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return len(known.SerializePartialToString()) != len(message.SerializePartialToString())


@cache
def encoder_of(descriptor: Descriptor, *, careful: bool = False) -> Encoder:
    """Return a compiled function that converts messages of one type to JSON.

    Only the `careful` encoder supports missing required fields and unknown fields.
    """
    scope: dict[str, Any] = {
        "low": -MAX_SAFE_INTEGER,
        "high": MAX_SAFE_INTEGER,
        "text": _text,
        "b64": _base64,
        "map_of": _map_of,
        "unknown": unknown_fields,
        "encoders": ByField(descriptor, partial(encoder_of, careful=careful)),
    }
    lines = ["def encode(m):", " d = {}"]
    for field in descriptor.fields:
        lines.append(_statement(field, careful))
    if careful:
        lines += [f" u = unknown(m)\n if u: d[{UNKNOWN_FIELDS!r}] = u"]
    source = "\n".join([*lines, " return d"])
    exec(compile(source, f"<JSON of {descriptor.full_name}>", "exec"), scope)
    encode: Encoder = scope["encode"]
    return encode


def _statement(field: FieldDescriptor, careful: bool) -> str:
    name, get = field.name, f"m.{field.name}"
    if is_map(field):
        return f" if len({get}): d[{name!r}] = map_of(m, {name!r}, {field.number})"
    if field.is_repeated:
        items = _expression(field, "x")
        return f" if len({get}): d[{name!r}] = [{items} for x in {get}]"
    if field.is_required and not careful:
        return f" d[{name!r}] = {_expression(field, get)}"
    if field.message_type is not None:
        return f" if m.HasField({name!r}): d[{name!r}] = {_expression(field, get)}"
    # HasField takes twice as long as reading a field, and a value that is not the default must be present.
    present = f"(f := {get}) != {field.default_value!r} or m.HasField({name!r})"
    return f" if {present}: d[{name!r}] = {_expression(field, 'f')}"


def _expression(field: FieldDescriptor, get: str) -> str:
    """Return a Python expression for the JSON of a value of `field`, which the expression `get` reads."""
    if field.message_type is not None:
        return f"encoders[{field.name!r}]({get})"
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return f"{names!r}.get({get}, {get})"
    if is_bit_set(field):
        return f"str({get})"
    if field.type in _INTEGERS:
        return (
            f"({get} if low <= {get} <= high else str({get}))"
            if get.isidentifier()
            else (f"(v if low <= (v := {get}) <= high else str(v))")
        )
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"(v if type(v := {get}) is str else text(v))"
    if field.type == FieldDescriptor.TYPE_BYTES:
        return f"b64({get})"
    return get


def is_bit_set(field: FieldDescriptor) -> bool:
    """Return True if a field's numbers are words of a bit set, which are always strings in JSON."""
    return field.full_name.endswith(_BIT_SETS)


class ByField(dict[str, Made]):
    """Compiled functions for the inner messages of a message type, by field name, compiled on first use.

    Most messages have few of their possible fields, and message types may contain themselves.
    """

    def __init__(self, descriptor: Descriptor, compiled: Callable[[Descriptor], Made]) -> None:
        super().__init__()
        self._fields, self._compiled = descriptor.fields_by_name, compiled

    def __missing__(self, name: str) -> Made:
        inner = self._fields[name].message_type
        assert inner is not None
        self[name] = self._compiled(inner)
        return self[name]


def is_map(field: FieldDescriptor) -> bool:
    """Return True if a field is a map, which becomes a JSON object."""
    # Checked first, because `GetOptions` imports the descriptors of descriptors.
    inner = field.message_type
    return inner is not None and inner.has_options and inner.GetOptions().map_entry


def _map_of(message: Message, name: str, number: int) -> Any:
    """Convert a map of strings to an object, or to a list of keys and values if a string is not UTF-8."""
    try:
        members = dict(sorted(getattr(message, name).items()))
        if all(isinstance(value, str) for value in members.values()):
            return members
    except UnicodeDecodeError:
        pass
    data = message.SerializePartialToString()
    entries = [data[field.content : field.end] for field in split_fields(data) if field.number == number]
    pairs = [
        {part.number: entry[part.content : part.end] for part in split_fields(entry)} for entry in entries
    ]
    return [{"key": _text_of(pair.get(1, b"")), "value": _text_of(pair.get(2, b""))} for pair in pairs]


def _text_of(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _text(data)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _text(value: bytes | str) -> Any:
    """Convert a string field. Protobuf returns bytes if it is not UTF-8; these become a base64 object."""
    return value if isinstance(value, str) else {"base64": _base64(value)}


def readable(text: bytes | str) -> str:
    """Format a string field for display, with escapes for bytes that are not UTF-8."""
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


class UnknownField(TypedDict):
    """A field that is not in the .proto: its number and wire type; bytes are base64."""

    number: int
    wire_type: int
    value: int | str | list[UnknownField]


def unknown_fields(message: Message) -> list[UnknownField]:
    """Return the fields of `message` (not of inner messages) that are not in its .proto, in stored order."""
    return _unknown_set(UnknownFieldSet(message))


def _unknown_set(fields: Any) -> list[UnknownField]:
    return [
        {"number": field.field_number, "wire_type": field.wire_type, "value": _unknown_value(field)}
        for field in fields
    ]


def _unknown_value(field: Any) -> int | str | list[UnknownField]:
    if isinstance(field.data, bytes):
        return _base64(field.data)
    return _unknown_set(field.data) if field.wire_type == _GROUP else safe_integer(field.data)
