"""Avro's binary encoding, as far as snapshots of transaction buffers need it.

A record is its fields one after the other, in the order of the schema. The schemas are fixed and come
from Java classes: fields in the order of their names, texts, lists and records that may be null.

Source: the Avro specification, "Binary encoding"; the schemas that brokers stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, Reader

T = TypeVar("T")
Decoder = Callable[[Reader], T]

_LONGEST: Final = 10


def decode_whole(decoder: Decoder[T], data: Buffer) -> T:
    """Return the one value that `data` is; DecodeError where it is broken or bytes are left over."""
    reader = Reader(data)
    value = decoder(reader)
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the value", offset=reader.at)
    return value


def long(reader: Reader) -> int:
    """Return a signed number of up to 64 bits, written in groups of seven and folded ("zig-zag")."""
    number = 0
    for group in range(_LONGEST):
        byte = reader.expect(1, "a number")[0]
        number |= (byte & 0x7F) << 7 * group
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1)
    raise DecodeError(f"a number of more than {_LONGEST} bytes", offset=reader.at)


def text(reader: Reader) -> str:
    """Return a string; what is not UTF-8 in it is escaped."""
    return bytes(reader.take(long(reader), "a text")).decode("utf-8", "backslashreplace")


def nullable(decoder: Decoder[T]) -> Decoder[T | None]:
    """Return a decoder of a value that may be null: the union of null and what `decoder` reads."""

    def read(reader: Reader) -> T | None:
        branch = long(reader)
        if branch not in (0, 1):
            raise DecodeError(f"no branch {branch} in a union of two", offset=reader.at)
        return decoder(reader) if branch else None

    return read


def array(decoder: Decoder[T]) -> Decoder[list[T]]:
    """Return a decoder of a list: blocks of so many items, the last one empty."""

    def read(reader: Reader) -> list[T]:
        items: list[T] = []
        while count := long(reader):
            if count < 0:
                count = -count
                long(reader)  # The block's size in bytes, for those who step over it.
            if count > reader.left:
                raise DecodeError(
                    f"a list claims {count} items, {reader.left} bytes are left", offset=reader.at
                )
            items += (decoder(reader) for _ in range(count))
        return items

    return read


def record(fields: Mapping[str, Decoder[Any]]) -> Decoder[dict[str, Any]]:
    """Return a decoder of a record as a dictionary; `fields` in the order of the schema."""
    return lambda reader: {name: decoder(reader) for name, decoder in fields.items()}
