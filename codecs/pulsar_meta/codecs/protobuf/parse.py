"""Parse protobuf messages (complete, without required fields, or up to a fault), and split them into fields.

Parsing and serializing a message moves unknown fields to the end, so edits work on slices of its bytes.

BookKeeper's cookies and older ledger metadata are in protobuf's text format, and so are managed ledgers of
brokers before 1.20.

Sources: protobuf.dev, "Encoding" and "Text Format Language".
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import EncodeError, Message

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.secrets import redact_text

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5
_MAX_VARINT: Final = 10


class Field(NamedTuple):
    """A field: its number and wire type, and the offsets of its tag, its content and its end."""

    number: int
    wire_type: int
    start: int
    content: int
    end: int


def split_fields(data: bytes) -> list[Field]:
    """Return the fields of a message in stored order. Raises DecodeError if it is broken."""
    fields = []
    at = 0
    while at < len(data):
        field = read_field(data, at)
        fields.append(field)
        at = field.end
    return fields


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (unsigned number, end) of the varint at `at`. Raises DecodeError if it is broken."""
    number = 0
    for index in range(at, min(at + _MAX_VARINT, len(data))):
        number |= (data[index] & 0x7F) << (7 * (index - at))
        if data[index] < 0x80:
            return number & (2**64 - 1), index + 1
    raise DecodeError("protobuf: a varint is truncated or too long", offset=at)


def write_varint(number: int) -> bytes:
    """Encode a number between 0 and 2⁶⁴-1 as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_field(number: int, content: bytes) -> bytes:
    """Encode a field that contains a string, bytes or a message."""
    return write_varint(number << 3 | BYTES) + write_varint(len(content)) + content


def read_field(data: bytes, at: int) -> Field:
    """Return the field whose tag is at `at`. Raises DecodeError if it is broken or truncated."""
    tag, content = read_varint(data, at)
    number, wire_type = tag >> 3, tag & 7
    if number == 0:
        raise DecodeError("protobuf: a field has the number 0", offset=at)
    if wire_type == VARINT:
        _, end = read_varint(data, content)
    elif wire_type == BYTES:
        size, content = read_varint(data, content)
        end = content + size
    elif wire_type in (FIXED32, FIXED64):
        end = content + (4 if wire_type == FIXED32 else 8)
    else:
        # No .proto of Pulsar or BookKeeper has groups.
        raise DecodeError(f"protobuf: unsupported wire type {wire_type}", offset=at)
    if end > len(data):
        raise DecodeError(f"protobuf: field {number} ends at {end}, the message at {len(data)}", offset=at)
    return Field(number, wire_type, at, content, end)


M = TypeVar("M", bound=Message)


def parse_message(kind: type[M], data: bytes | memoryview) -> M:
    """Parse a message of type `kind`. Raises DecodeError if it is broken or lacks a required field."""
    try:
        message = kind.FromString(data)  # type: ignore[arg-type]  # it accepts any buffer
        # Checks required fields twice as fast as IsInitialized, which visits every field's descriptor.
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
    """Parse a message of type `kind` that may lack required fields. Raises DecodeError if it is broken."""
    try:
        return kind.FromString(data)  # type: ignore[arg-type]  # it accepts any buffer
    except ProtobufError as error:
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: broken protobuf") from error


def parse_partly(kind: type[M], data: bytes) -> tuple[M, DecodeError | None]:
    """Parse a message up to its first fault, including the intact part of a broken inner message.

    Returns (message, fault), the fault being None if the message is complete.
    """
    message = kind()
    error = _fill(message, data, 0)
    if error is None and not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        error = DecodeError(f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(data))
    return message, error


def _fill(message: Any, data: bytes, base: int) -> DecodeError | None:
    """Merge the fields of `data` up to the first fault; `base` is the offset of `data` in the value."""
    at = 0
    while at < len(data):
        try:
            end = read_field(data, at).end
            # Parsed separately first, so that a broken field leaves no traces in `message`.
            message.MergeFrom(type(message).FromString(data[at:end]))
        except ProtobufError:
            return _fill_inner(message, data, at, base) or _fault(message, base + at)
        except DecodeError as error:
            inner = _fill_inner(message, data, at, base)
            return inner or DecodeError(error.message, offset=base + (error.offset or at))
        at = end
    return None


def _fill_inner(message: Any, data: bytes, at: int, base: int) -> DecodeError | None:
    """Merge the intact part of a broken inner message, if the field at `at` is a message."""
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


_name_re = re.compile(rb"\s*([A-Za-z]\w*)\s*[:{]")


def parse_text(kind: type[M], text: str) -> M:
    """Parse a message in text format. Raises DecodeError if it is broken or lacks a required field."""
    from google.protobuf import text_format

    message = kind()
    try:
        with warnings.catch_warnings():
            # Python only warns about an invalid octal escape.
            warnings.simplefilter("error")
            text_format.Parse(text, message)
    except (text_format.ParseError, ValueError, RecursionError, Warning) as error:
        # The error quotes the line, which may contain the ledger's password.
        reason = redact_text(" ".join(str(error).split()))
        raise DecodeError(f"not a {kind.DESCRIPTOR.name} in text format: {reason}") from error
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: required {missing} missing", offset=len(text))
    return message


def print_text(message: Message) -> str:
    """Format `message` like Java's TextFormat."""
    from google.protobuf import text_format

    return text_format.MessageToString(message, as_utf8=False)


def as_text(data: bytes, what: str) -> str:
    """Decode UTF-8. Raises DecodeError, naming `what` was expected, if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not {what}: not UTF-8 text", offset=error.start) from error


def looks_like_text(kind: type[Message], data: bytes) -> bool:
    """Return True if `data` is ASCII and begins with a field name of `kind`, like text format."""
    begins = _name_re.match(data)
    return begins is not None and data.isascii() and begins[1].decode() in kind.DESCRIPTOR.fields_by_name


def checked_line(text: str | bytes, what: str, forbidden: str = "\n") -> str:
    """Return `text`. Raises DecodeError if it is not UTF-8 or contains a character of `forbidden`."""
    if isinstance(text, bytes) or any(character in text for character in forbidden):
        raise DecodeError(f"{what}: {text!r} does not fit into a line of text")
    return text
