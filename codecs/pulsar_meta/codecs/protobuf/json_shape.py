"""The shape of the JSON that `to_json` makes of a message, from the same descriptor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypedDict

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from pulsar_meta.codecs.protobuf.to_json import UNKNOWN_FIELDS, UnknownField, is_map
from pulsar_meta.codecs.secrets import Redacted, is_secret
from pulsar_meta.codecs.shapes import Either, Members, many


class NotText(TypedDict):
    """A text whose bytes are not UTF-8."""

    base64: str


class NotTextPair(TypedDict):
    """A member of a map of which one text is not UTF-8."""

    key: str | NotText
    value: str | NotText


# Its names are known when it runs only.
_LITERAL: Final[Any] = Literal
_TEXT: Final = str | NotText
_PLAIN: Final[dict[int, Any]] = {
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_FLOAT: float,
}
_MAP: Final = Either((dict[str, str | Redacted], list[NotTextPair]))


def message_shape(
    message: type[Message], more: Mapping[str, Any] | None = None, *, name: str | None = None
) -> Members:
    """Return the shape of a message; `more` are members in it that are no fields, or that stand otherwise.

    `name` is needed where there is `more`: another name than that of the message.
    """
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
    one = _one(field)
    if field.is_repeated:
        one = many(one)
    return Either((one, Redacted)) if _may_hide(field) else one


def _may_hide(field: FieldDescriptor) -> bool:
    """Return whether `redact` may put something else in its place: by its name, or the key beside it."""
    assert field.containing_type is not None
    beside = field.containing_type.fields_by_name
    return is_secret(field.name) or (field.name == "value" and ("key" in beside or "name" in beside))


def _one(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return _shape(field.message_type)
    if field.enum_type is not None:
        # A value that a later release added is its number.
        return Either((_LITERAL[tuple(value.name for value in field.enum_type.values)], int))
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXT
    if field.type == FieldDescriptor.TYPE_BYTES:
        return str
    return _PLAIN.get(field.cpp_type, int)
