"""Protobuf messages as JSON values: names as in the .proto, absent fields absent, nothing lost.

The encoder is compiled once per message type: for the 100 000 ranges of a large cursor
`google.protobuf.json_format` needs about four times as long. Fields that the schema does not know stand as
`unknown_fields` in the message that has them.
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
# Words of bit sets are always strings: a set of flags is no quantity, and bit 63 is common.
_BIT_SETS: Final = ("deleteSet", "ack_set", "LongListMap.values")
_GROUP: Final = 3


def message_to_json(message: Message) -> dict[str, Any]:
    """Return `message` in the JSON form; it may lack required fields, what is absent stays absent."""
    careful = not message.IsInitialized() or has_unknown_fields(message)
    return encoder_of(message.DESCRIPTOR, careful=careful)(message)


def has_unknown_fields(message: Message) -> bool:
    """Return whether `message`, or one inside it, has fields that its schema does not know."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return len(known.SerializePartialToString()) != len(message.SerializePartialToString())


@cache
def encoder_of(descriptor: Descriptor, *, careful: bool = False) -> Encoder:
    """Return the compiled function that makes JSON of one message type.

    The quick form takes required fields for granted and looks for no unknown ones; the careful does both.
    """
    scope: dict[str, Any] = {
        "low": -MAX_SAFE_INTEGER,
        "high": MAX_SAFE_INTEGER,
        "text": _text,
        "b64": _base64,
        "map_of": _map_of,
        "unknown": unknown_fields,
        "encoders": OfFields(descriptor, partial(encoder_of, careful=careful)),
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
    # HasField costs twice what reading a field does, and a value that is not the default is there.
    present = f"(f := {get}) != {field.default_value!r} or m.HasField({name!r})"
    return f" if {present}: d[{name!r}] = {_expression(field, 'f')}"


def _expression(field: FieldDescriptor, get: str) -> str:
    """Return the Python expression for the JSON of one value of `field`, read by the expression `get`."""
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
    """Return whether the numbers of a field are words of bits, which are text whatever their size."""
    return field.full_name.endswith(_BIT_SETS)


class OfFields(dict[str, Made]):
    """What is compiled for a message's own messages, by field, when the first value of the field is there.

    Most values have few of the fields that they could have, and message types may contain themselves.
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
    """Return whether a field is a map, which JSON has as an object."""
    # Asked first, because `GetOptions` imports the descriptors of descriptors.
    inner = field.message_type
    return inner is not None and inner.has_options and inner.GetOptions().map_entry


def _map_of(message: Message, name: str, number: int) -> Any:
    """Return a map of strings as an object; as a list of keys and values where one of them is not UTF-8."""
    try:
        found = dict(sorted(getattr(message, name).items()))
        if all(isinstance(value, str) for value in found.values()):
            return found
    except UnicodeDecodeError:
        pass
    data = message.SerializePartialToString()
    entries = [data[one.content : one.end] for one in split_fields(data) if one.number == number]
    pairs = ({one.number: entry[one.content : one.end] for one in split_fields(entry)} for entry in entries)
    return [{"key": _text_of(pair.get(1, b"")), "value": _text_of(pair.get(2, b""))} for pair in pairs]


def _text_of(data: bytes) -> Any:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _text(data)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _text(value: bytes | str) -> Any:
    """Return the JSON of a string field whose bytes are not UTF-8 (protobuf hands those out as bytes)."""
    return value if isinstance(value, str) else {"base64": _base64(value)}


def readable(text: bytes | str) -> str:
    """Return a string field to be shown; bytes that are not UTF-8 become escapes."""
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


class UnknownField(TypedDict):
    """A field that the schema does not know, by its number and type on the wire; bytes are base64."""

    number: int
    wire_type: int
    value: int | str | list[UnknownField]


def unknown_fields(message: Message) -> list[UnknownField]:
    """Return the fields that the schema of `message` itself does not know, in the order of their bytes."""
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
