"""Convert JSON to protobuf messages (the inverse of `to_json`), and describe the types of that JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypedDict, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Number, from_base64, integer, shown
from pulsar_meta.codecs.protobuf.parse import (
    BYTES,
    END_GROUP,
    FIXED32,
    FIXED64,
    GROUP,
    VARINT,
    bytes_field,
    write_varint,
)
from pulsar_meta.codecs.protobuf.to_json import UNKNOWN_FIELDS, UnknownField, is_map
from pulsar_meta.codecs.secrets import Redacted, is_secret
from pulsar_meta.codecs.shapes import Either, Members, many

M = TypeVar("M", bound=Message)

Reader = Callable[[Any, str], Any]
# Sets one field of a message from JSON: (message, JSON, path of the field).
Filler = Callable[[Any, Any, str], None]

_WIDTHS = {FIXED64: 8, FIXED32: 4}
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_MAX_NUMBER = 2**29 - 1


def json_to_message(kind: type[M], value: Any, path: str = "value") -> M:
    """Convert parsed JSON to a message. Integers may be numbers or strings of digits.

    `path` is the path of `value` in its document. Raises DecodeError, naming the path, if a field does not
    exist, has an invalid value, or is required and missing.
    """
    message = kind()
    fill_message(message, value, path)
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise DecodeError(f"{path}: required {missing} missing")
    return message


def fill_message(message: Any, value: Any, path: str) -> None:
    """Set the fields of `message` from the JSON object `value`; null counts as absent.

    Raises DecodeError, naming the path, if a field does not exist or has an invalid value.
    """
    if not isinstance(value, dict):
        raise DecodeError(f"{path}: expected an object, found {shown(value)}")
    fillers = fillers_of(message.DESCRIPTOR)
    for name, member in value.items():
        if member is None:
            continue
        filler = fillers.get(name)
        if filler is None:
            raise DecodeError(f"{path}.{name}: {message.DESCRIPTOR.name} has no such field")
        filler(message, member, f"{path}.{name}")


@cache
def fillers_of(descriptor: Descriptor) -> dict[str, Filler]:
    """Return a filler for each field of a message type, by the field's name."""
    fillers: dict[str, Filler] = {field.name: _filler(field) for field in descriptor.fields}
    fillers[UNKNOWN_FIELDS] = _fill_unknown
    return fillers


def _filler(field: FieldDescriptor) -> Filler:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return _map_filler(field.number)
        return _messages_filler(field.name) if field.is_repeated else _message_filler(field.name)
    reader = _reader(field)
    return _values_filler(field, reader) if field.is_repeated else _value_filler(field, reader)


def _value_filler(field: FieldDescriptor, reader: Reader) -> Filler:
    name, number = field.name, field.number

    def fill(message: Any, value: Any, path: str) -> None:
        converted = reader(value, path)
        if type(converted) is NotText:
            message.MergeFromString(bytes_field(number, converted))
        else:
            setattr(message, name, converted)

    return fill


def _values_filler(field: FieldDescriptor, reader: Reader) -> Filler:
    name, number = field.name, field.number

    def fill(message: Any, values: Any, path: str) -> None:
        for at, value in enumerate(_list(values, path)):
            converted = reader(value, f"{path}[{at}]")
            if type(converted) is NotText:
                message.MergeFromString(bytes_field(number, converted))
            else:
                getattr(message, name).append(converted)

    return fill


def _message_filler(name: str) -> Filler:
    def fill(message: Any, value: Any, path: str) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        fill_message(inner, value, path)

    return fill


def _messages_filler(name: str) -> Filler:
    def fill(message: Any, values: Any, path: str) -> None:
        add = getattr(message, name).add
        for at, value in enumerate(_list(values, path)):
            fill_message(add(), value, f"{path}[{at}]")

    return fill


def _map_filler(number: int) -> Filler:
    def fill(message: Any, value: Any, path: str) -> None:
        if isinstance(value, list):
            pairs = [_pair(pair, f"{path}[{at}]") for at, pair in enumerate(value)]
        elif isinstance(value, dict):
            pairs = [(_text(key, path), _text(member, f"{path}.{key}")) for key, member in value.items()]
        else:
            raise DecodeError(f"{path}: expected an object, found {shown(value)}")
        for key, member in pairs:
            message.MergeFromString(
                bytes_field(number, bytes_field(1, _raw(key)) + bytes_field(2, _raw(member)))
            )

    return fill


def _pair(value: Any, path: str) -> tuple[Any, Any]:
    if not isinstance(value, dict) or value.keys() != {"key", "value"}:
        raise DecodeError(f"{path}: expected key and value, found {shown(value)}")
    return _text(value["key"], f"{path}.key"), _text(value["value"], f"{path}.value")


def _raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _reader(field: FieldDescriptor) -> Reader:
    if field.enum_type is not None:
        return _enum_reader(field)
    if field.cpp_type in _RANGES:
        low, high = _RANGES[field.cpp_type]
        return lambda value, path: integer(value, path, low, high)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return from_base64
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _double
    return _boolean if field.type == FieldDescriptor.TYPE_BOOL else _text


def _enum_reader(field: FieldDescriptor) -> Reader:
    values = field.enum_type.values if field.enum_type is not None else []
    numbers: dict[str | int, int] = {value.name: value.number for value in values}

    def read(value: Any, path: str) -> int:
        number = numbers.get(value, value) if isinstance(value, (str, int)) else None
        if isinstance(number, int) and not isinstance(value, bool) and number in numbers.values():
            return number
        raise DecodeError(f"{path}: expected one of {', '.join(map(str, numbers))}, found {shown(value)}")

    return read


class NotText(bytes):
    """The bytes of a string field that are not UTF-8."""


def _text(value: Any, path: str) -> Any:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return NotText(from_base64(value["base64"], path))
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise DecodeError(f"{path}: expected a string, found {shown(value)}") from error
    return value


def _boolean(value: Any, path: str) -> bool:
    if isinstance(value, bool):
        return value
    raise DecodeError(f"{path}: expected true or false, found {shown(value)}")


def _double(value: Any, path: str) -> float:
    if value in ("nan", "inf", "-inf"):
        return float(value)  # JSON has no numbers for these.
    if isinstance(value, Number):
        value = value.plain()
    try:
        if type(value) in (int, float):
            return float(value)
    except OverflowError:
        pass
    raise DecodeError(f"{path}: expected a number, found {shown(value)}")


def _list(value: Any, path: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise DecodeError(f"{path}: expected a list, found {shown(value)}")


def _fill_unknown(message: Any, fields: Any, path: str) -> None:
    try:
        message.MergeFromString(unknown_bytes(fields, path))
    except ProtobufError as error:
        raise DecodeError(f"{path}: a {message.DESCRIPTOR.name} can't have these fields") from error


def unknown_bytes(fields: Any, path: str) -> bytes:
    """Encode fields from objects with `number`, `wire_type` and `value`. Raises DecodeError if invalid."""
    return b"".join(_unknown_field(field, f"{path}[{at}]") for at, field in enumerate(_list(fields, path)))


def _unknown_field(field: Any, path: str) -> bytes:
    if not isinstance(field, dict) or not {"number", "wire_type", "value"} <= field.keys():
        raise DecodeError(f"{path}: expected number, wire_type and value, found {shown(field)}")
    number = integer(field["number"], f"{path}.number", 1, _MAX_NUMBER)
    wire_type = integer(field["wire_type"], f"{path}.wire_type", 0, 5)
    tag, value, at = write_varint(number << 3 | wire_type), field["value"], f"{path}.value"
    if wire_type == VARINT:
        return tag + write_varint(integer(value, at, 0, 2**64 - 1))
    if wire_type in _WIDTHS:
        width = _WIDTHS[wire_type]
        return tag + integer(value, at, 0, 256**width - 1).to_bytes(width, "little")
    if wire_type == BYTES:
        return bytes_field(number, from_base64(value, at))
    if wire_type == GROUP:
        return tag + unknown_bytes(value, at) + write_varint(number << 3 | END_GROUP)
    raise DecodeError(f"{path}.wire_type: expected 0, 1, 2, 3 or 5, found {wire_type}")


class NotTextShape(TypedDict):
    """A string field with bytes that are not UTF-8."""

    base64: str


class NotTextPairShape(TypedDict):
    """An entry of a map, if some string in the map is not UTF-8."""

    key: str | NotTextShape
    value: str | NotTextShape


# Any, because the names in the Literal are only known at run time.
_LITERAL: Final[Any] = Literal
_TEXT: Final = str | NotTextShape
_PLAIN: Final[dict[int, Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_FLOAT: float,
}
_MAP: Final = Either((dict[str, str | Redacted], list[NotTextPairShape]))


def message_shape(
    message: type[Message], more: Mapping[str, Any] | None = None, *, name: str | None = None
) -> Members:
    """Return the JSON type of a message. `more` adds or replaces members and requires a `name`."""
    descriptor: Any = message.DESCRIPTOR
    plain = _shape(descriptor)
    return Members(name, plain.about, lambda: {**plain.of(), **(more or {})}) if name else plain


def _shape(descriptor: Descriptor) -> Members:
    about = f"The message {descriptor.name} in the shape of its .proto ({descriptor.file.name})."
    return Members(descriptor.full_name, about, lambda: _fields(descriptor))


def _fields(descriptor: Descriptor) -> dict[str, Any]:
    fields = {field.name: _member(field) for field in descriptor.fields}
    return {**fields, UNKNOWN_FIELDS: list[UnknownField]}


def _member(field: FieldDescriptor) -> Any:
    if is_map(field):
        return _MAP
    kind = _value_type(field)
    if field.is_repeated:
        kind = many(kind)
    return Either((kind, Redacted)) if _may_be_redacted(field) else kind


def _may_be_redacted(field: FieldDescriptor) -> bool:
    """Return True if `redact` may replace the value of a field."""
    return is_secret(field.name) or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _value_type(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return _shape(field.message_type)
    if field.enum_type is not None:
        # Values that a later release added are shown as numbers.
        return Either((_LITERAL[tuple(value.name for value in field.enum_type.values)], int))
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXT
    if field.type == FieldDescriptor.TYPE_BYTES:
        return str
    return _PLAIN.get(field.cpp_type, int)
