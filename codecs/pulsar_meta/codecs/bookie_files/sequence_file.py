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
from pulsar_meta.codecs.reader import Buffer, Reader

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


class _Reader(Reader):
    """A reader of what Hadoop writes, that says where bytes may still come."""

    __slots__ = ()
    short = Truncated

    def vint(self) -> int:
        """Return a number of WritableUtils.writeVLong."""
        first = int.from_bytes(self.expect(1, "a number"), signed=True)
        if first >= -112:
            return first
        size = -(first + 120) if first < -120 else -(first + 112)
        number = int.from_bytes(self.expect(size, "a number"))
        return ~number if first < -120 else number

    def text(self) -> str:
        """Return a text after its size."""
        size, at = self.vint(), self.at
        try:
            return str(self.take(size, "a text"), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("a text that is not UTF-8", offset=at) from error


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
    reader = _Reader(data)
    magic = bytes(reader.view[:4])
    if magic != _MAGIC:
        raise DecodeError(f"expected a SequenceFile's {_MAGIC!r}, found {magic!r}", offset=0)
    reader.at = len(_MAGIC)
    key_class, value_class = reader.text(), reader.text()
    compressed, by_blocks = (bool(flag) for flag in reader.expect(2, "the flags"))
    if compressed:
        codec = reader.text()
        if codec != _ZLIB:
            raise DecodeError(f"compressed by {codec}: only {_ZLIB} is known", offset=reader.at)
    (pairs,) = reader.numbers(_INT, "the number of pairs")
    for _ in range(2 * pairs):
        reader.text()
    sync = bytes(reader.expect(SYNC_SIZE, "the sync mark"))
    return SequenceHeader(key_class, value_class, compressed, by_blocks, sync, reader.at)


def decode_records(data: Buffer, header: SequenceHeader, start: int = 0) -> Iterator[KeyedRecord]:
    """Yield the records from `start` on, where one (or its sync mark) begins; places count from `data`.

    Truncated where `data` ends within a record or a block, DecodeError where it is broken.
    """
    reader = _Reader(data, start)
    while reader.left:
        at = reader.at
        (size,) = reader.numbers(_INT, "a record's size")
        if size == -1:
            if reader.expect(SYNC_SIZE, "the sync mark") != header.sync:
                raise DecodeError("expected the file's sync mark", offset=at + 4)
            if header.by_blocks:
                yield from _block(reader)
        elif header.by_blocks:
            raise DecodeError("expected a sync mark before a block", offset=at)
        else:
            yield _record(reader, size, header)


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


def _record(reader: _Reader, size: int, header: SequenceHeader) -> KeyedRecord:
    at = reader.at - _INT.size
    (key_size,) = reader.numbers(_INT, "a key's size")
    if key_size != _LONG.size or not key_size <= size <= LARGEST:
        raise DecodeError(f"a record of {size} bytes, {key_size} of them its key", offset=at)
    body_at, body = reader.at, reader.take(size, "a record")
    value = body[key_size:]
    if header.compressed:
        value = _inflated(value, body_at + key_size)
    return KeyedRecord(_LONG.unpack_from(body)[0], value, reader.at)


def _block(reader: _Reader) -> Iterator[KeyedRecord]:
    """Yield the records of the block that begins here, once all of it is here and fits."""
    start, count = reader.at, reader.vint()
    parts = []
    for limit in (LARGEST_KEYS, LARGEST_KEYS, LARGEST_KEYS, LARGEST):
        size, at = reader.vint(), reader.at
        parts.append(_inflated(reader.take(size, "a block's part"), at, limit))
    if count < 1 or len(parts[1]) != _LONG.size * count:
        raise DecodeError(f"a block of {count} records with {len(parts[1])} bytes of keys", offset=start)
    try:
        yield from _records_of(parts, reader.at)
    except DecodeError as error:
        # Its own offset, and that of what is Truncated, is one in a part.
        raise DecodeError(f"a broken block of {count} records: {error.message}", offset=start) from error


def _records_of(parts: list[memoryview], end: int) -> Iterator[KeyedRecord]:
    """Yield the records of a block's four parts; DecodeError where sizes and bytes do not fit."""
    key_sizes, keys, value_sizes, values = map(_Reader, parts)
    for (key,) in _LONG.iter_unpack(keys.view):
        key_size = key_sizes.vint()
        if key_size != _LONG.size:
            raise DecodeError(f"a key of {key_size} bytes")
        yield KeyedRecord(key, values.take(value_sizes.vint(), "a value"), end)
    if values.left:
        raise DecodeError(f"{values.left} bytes follow the last value")


def _inflated(data: memoryview, offset: int, limit: int = LARGEST) -> memoryview:
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, limit)
    except zlib.error as error:
        raise DecodeError(f"corrupt compression ({error})", offset=offset) from error
    if not stream.eof:
        raise DecodeError(f"compression of more than {limit} bytes, or without its end", offset=offset)
    return memoryview(raw)
