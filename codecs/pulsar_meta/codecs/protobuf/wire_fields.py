"""The fields of a serialized protobuf message as they lie in its bytes, for edits that leave the rest alone.

Parsing and serializing moves unknown fields to the end; cutting and joining slices moves nothing.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5
_MAX_VARINT: Final = 10


class Field(NamedTuple):
    """One field: its number and wire type, where its tag begins, where its content lies."""

    number: int
    wire_type: int
    start: int
    content: int
    end: int


def split_fields(data: bytes) -> list[Field]:
    """Return the fields of a message in their order; DecodeError where the bytes are no message."""
    fields = []
    at = 0
    while at < len(data):
        field = read_field(data, at)
        fields.append(field)
        at = field.end
    return fields


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return (the unsigned number at `at`, where it ends); DecodeError for one cut short or too long."""
    number = 0
    for index in range(at, min(at + _MAX_VARINT, len(data))):
        number |= (data[index] & 0x7F) << (7 * (index - at))
        if data[index] < 0x80:
            return number & (2**64 - 1), index + 1
    raise DecodeError("protobuf: a varint is cut short or too long", offset=at)


def write_varint(number: int) -> bytes:
    """Return a number of 0 to 2⁶⁴-1 as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def bytes_field(number: int, content: bytes) -> bytes:
    """Return a field that holds a string, bytes or a message."""
    return write_varint(number << 3 | BYTES) + write_varint(len(content)) + content


def read_field(data: bytes, at: int) -> Field:
    """Return the field whose tag begins at `at`; DecodeError where there is none, or not all of it."""
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
        # No schema of Pulsar or BookKeeper has groups.
        raise DecodeError(f"protobuf: wire type {wire_type}", offset=at)
    if end > len(data):
        raise DecodeError(f"protobuf: field {number} ends at {end}, the message at {len(data)}", offset=at)
    return Field(number, wire_type, at, content, end)
