"""Protobuf messages parsed: whole, without their required fields, or as far as a fault lets them."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import EncodeError, Message

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.protobuf.wire_fields import BYTES, read_field, read_varint

M = TypeVar("M", bound=Message)


def parse_message(kind: type[M], data: bytes | memoryview) -> M:
    """Return `data` as a message of type `kind`; DecodeError if broken or a required field is missing."""
    try:
        message = kind.FromString(data)  # type: ignore[arg-type]  # it takes any buffer
        # Finds a missing field twice as fast as IsInitialized, which walks through every field's descriptor.
        message.SerializeToString()
    except EncodeError:
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise DecodeError(
            f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(data)
        ) from None
    except ProtobufError as error:
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: broken protobuf") from error
    return message


def parse_part(kind: type[M], data: bytes | memoryview) -> M:
    """Return `data` as a message of type `kind` that may lack required fields; DecodeError if broken."""
    try:
        return kind.FromString(data)  # type: ignore[arg-type]  # it takes any buffer
    except ProtobufError as error:
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: broken protobuf") from error


def parse_partly(kind: type[M], data: bytes) -> tuple[M, DecodeError | None]:
    """Return the fields before the first fault, the broken one's own good part too, and the fault if any."""
    message = kind()
    error = _fill(message, data, 0)
    if error is None and not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        error = DecodeError(f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(data))
    return message, error


def _fill(message: Any, data: bytes, base: int) -> DecodeError | None:
    """Merge the fields of `data`, which begins at `base` in the whole value, up to the first fault."""
    at = 0
    while at < len(data):
        try:
            end = read_field(data, at).end
            # Parsed apart first: a broken field must not leave its beginnings behind.
            message.MergeFrom(type(message).FromString(data[at:end]))
        except ProtobufError:
            return _fill_inner(message, data, at, base) or _fault(message, base + at)
        except DecodeError as error:
            inner = _fill_inner(message, data, at, base)
            return inner or DecodeError(error.message, offset=base + (error.offset or at))
        at = end
    return None


def _fill_inner(message: Any, data: bytes, at: int, base: int) -> DecodeError | None:
    """Merge what is good of the broken message inside `message` whose field begins at `at`, if it is one."""
    try:
        tag, sized_at = read_varint(data, at)
        size, start = read_varint(data, sized_at)
    except DecodeError:
        return None
    field = message.DESCRIPTOR.fields_by_number.get(tag >> 3)
    if tag & 7 != BYTES or field is None or field.message_type is None or _is_map(field):
        return None
    holder = getattr(message, field.name)
    inner = holder.add() if field.is_repeated else holder
    return _fill(inner, data[start : start + size], base + start)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _fault(message: Message, offset: int) -> DecodeError:
    return DecodeError(f"not a {message.DESCRIPTOR.name}: broken protobuf", offset=offset)
