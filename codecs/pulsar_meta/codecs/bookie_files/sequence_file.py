"""Hadoop's SequenceFile, of which a MapFile has two: `data`, and `index` with every 128th key and its place.

    header: "SEQ", version 6; names of the key's and the value's class (vint size, UTF-8); bool compressed;
            bool by blocks; where compressed the codec's class; int32 count, and so many pairs of text;
            a sync mark of 16 bytes
    record: int32 size, int32 size of the key, key, value (compressed by itself where records are)
    block:  vint records; then four parts, compressed, with a vint size each: sizes of keys, keys, sizes of
            values, values
    before a record now and then, before a block always: int32 -1 and the sync mark

Pulsar's file system offloader writes keys of LongWritable (int64), values of BytesWritable (size, bytes).
Sources: apache/hadoop io/SequenceFile.java, MapFile.java, WritableUtils.java, compress/DefaultCodec.java.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, byte_view

SYNC_SIZE: Final = 16
LONG_KEY: Final = "org.apache.hadoop.io.LongWritable"
LARGEST: Final = 128 << 20
# Blocks end at a megabyte (io.seqfile.compress.blocksize), so they have not more keys than this.
LARGEST_KEYS: Final = 16 << 20

_MAGIC: Final = b"SEQ\x06"
_ZLIB: Final = "org.apache.hadoop.io.compress.DefaultCodec"
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class Truncated(DecodeError):
    """There are fewer bytes than the record under way needs: more of the file may have them."""


@dataclass(frozen=True, slots=True)
class SequenceHeader:
    """How a file's records are stored; they begin at `size`."""

    key_class: str
    value_class: str
    compressed: bool
    by_blocks: bool
    sync: bytes
    size: int


class KeyedRecord(NamedTuple):
    """A record of a LongWritable key; `value` as the writer serialized it. `end` is where the next begins."""

    key: int
    value: memoryview
    end: int


def decode_sequence_header(data: Buffer) -> SequenceHeader:
    """Return the header; DecodeError where it is none, or where the values cannot be read."""
    view = byte_view(data)
    if bytes(view[:4]) != _MAGIC:
        raise DecodeError(f"expected a SequenceFile's {_MAGIC!r}, found {bytes(view[:4])!r}", offset=0)
    key_class, at = _text(view, 4)
    value_class, at = _text(view, at)
    compressed, by_blocks = (bool(flag) for flag in _bytes(view, at, 2))
    at += 2
    if compressed:
        codec, at = _text(view, at)
        if codec != _ZLIB:
            raise DecodeError(f"compressed by {codec}: only {_ZLIB} is known", offset=at)
    (pairs,) = _INT.unpack(_bytes(view, at, 4))
    at += 4
    for _ in range(2 * pairs):
        _, at = _text(view, at)
    sync = bytes(_bytes(view, at, SYNC_SIZE))
    return SequenceHeader(key_class, value_class, compressed, by_blocks, sync, at + SYNC_SIZE)


def decode_records(data: Buffer, header: SequenceHeader, start: int = 0) -> Iterator[KeyedRecord]:
    """Yield the records from `start` on, where one (or its sync mark) begins; places count from `data`.

    Truncated where `data` ends within a record or a block, DecodeError where it is broken.
    """
    view, at = byte_view(data), start
    while at < len(view):
        (size,) = _INT.unpack(_bytes(view, at, 4))
        if size == -1:
            if _bytes(view, at + 4, SYNC_SIZE) != header.sync:
                raise DecodeError("expected the file's sync mark", offset=at + 4)
            at += 4 + SYNC_SIZE
            if header.by_blocks:
                count, parts, end = _block(view, at)
                yield from _records_of(count, parts, at, end)
                at = end
        elif header.by_blocks:
            raise DecodeError("expected a sync mark before a block", offset=at)
        else:
            record = _record(view, at, size, header)
            yield record
            at = record.end


def bytes_of(record: KeyedRecord) -> memoryview:
    """Return the bytes of a BytesWritable; DecodeError where its size does not fit."""
    if len(record.value) < 4 or _INT.unpack_from(record.value)[0] != len(record.value) - 4:
        raise DecodeError(f"entry {record.key}: its value is no BytesWritable")
    return record.value[4:]


def long_of(record: KeyedRecord) -> int:
    """Return the number in a LongWritable; DecodeError where it is none."""
    if len(record.value) != _LONG.size:
        raise DecodeError(f"key {record.key}: its value is no LongWritable")
    return int(_LONG.unpack(record.value)[0])


def _record(view: memoryview, at: int, size: int, header: SequenceHeader) -> KeyedRecord:
    (key_size,) = _INT.unpack(_bytes(view, at + 4, 4))
    if key_size != _LONG.size or not key_size <= size <= LARGEST:
        raise DecodeError(f"a record of {size} bytes, {key_size} of them its key", offset=at)
    body = _bytes(view, at + 8, size)
    value = body[key_size:]
    if header.compressed:
        value = _inflated(value, at + 8 + key_size)
    return KeyedRecord(_LONG.unpack_from(body)[0], value, at + 8 + size)


def _block(view: memoryview, at: int) -> tuple[int, list[memoryview], int]:
    """Return how many records a block has, its four parts, and where it ends."""
    start = at
    count, at = _vint(view, at)
    parts = []
    for limit in (LARGEST_KEYS, LARGEST_KEYS, LARGEST_KEYS, LARGEST):
        size, at = _vint(view, at)
        parts.append(_inflated(_bytes(view, at, size), at, limit))
        at += size
    if count < 1 or len(parts[1]) != _LONG.size * count:
        raise DecodeError(f"a block of {count} records with {len(parts[1])} bytes of keys", offset=start)
    return count, parts, at


def _records_of(count: int, parts: list[memoryview], offset: int, end: int) -> Iterator[KeyedRecord]:
    """Yield the records of a block; DecodeError where sizes and bytes do not fit."""
    key_sizes, keys, value_sizes, values = parts
    at_key = at_size = start = 0
    try:
        for (key,) in _LONG.iter_unpack(keys):
            key_size, at_key = _vint(key_sizes, at_key)
            size, at_size = _vint(value_sizes, at_size)
            if key_size != _LONG.size:
                raise DecodeError(f"a key of {key_size} bytes")
            yield KeyedRecord(key, _bytes(values, start, size), end)
            start += size
    except DecodeError as error:
        # Its own offset, and that of what is Truncated, is one in a part.
        raise DecodeError(f"a broken block of {count} records: {error.message}", offset=offset) from error
    if start != len(values):
        raise DecodeError(f"a block with {len(values) - start} bytes too many", offset=offset)


def _inflated(data: memoryview, offset: int, limit: int = LARGEST) -> memoryview:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, limit)
    except zlib.error as error:
        raise DecodeError(f"corrupt compression ({error})", offset=offset) from error
    if not stream.eof:
        raise DecodeError(f"compression of more than {limit} bytes, or without its end", offset=offset)
    return memoryview(raw)


def _text(view: memoryview, at: int) -> tuple[str, int]:
    size, at = _vint(view, at)
    try:
        return str(_bytes(view, at, size), "utf-8"), at + size
    except UnicodeDecodeError as error:
        raise DecodeError("a name that is no UTF-8", offset=at) from error


def _vint(view: memoryview, at: int) -> tuple[int, int]:
    """Return a number of WritableUtils.writeVLong and where it ends."""
    first = int.from_bytes(_bytes(view, at, 1), signed=True)
    if first >= -112:
        return first, at + 1
    size = -(first + 120) if first < -120 else -(first + 112)
    number = int.from_bytes(_bytes(view, at + 1, size))
    return (~number if first < -120 else number), at + 1 + size


def _bytes(view: memoryview, at: int, size: int) -> memoryview:
    if size < 0:
        raise DecodeError(f"a size of {size}", offset=at)
    if at + size > len(view):
        raise Truncated(f"expected {size} bytes, found {len(view) - at}", offset=at)
    return view[at : at + size]
