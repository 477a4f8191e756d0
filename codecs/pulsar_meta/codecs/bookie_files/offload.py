"""Offloaded ledgers: data objects with index objects (jcloud), and Hadoop's SequenceFiles (file system).

    data object:  blocks, each: int32 magic, int64 size of this header, int64 size of the block,
                  int64 first entry [, int64 ledger], zeros up to the header's size;
                  then int32 size, int64 entry, frame … ; then padding FE DC DE AD …
    index, format 1: int32 magic, int32 size, int64 size of the data object, int64 size of a block header,
                  int32 blocks, int32 size, LedgerMetadata; one row per block: int64 first entry, int32 part,
                  int64 offset
    index, format 2: int32 magic, size, size of the data object, size of a block header; then for each ledger
                  int64 ledger, int32 blocks, int32 size, LedgerInfo, rows as above

Entries have no bookie header and no digest. Pulsar has code for format 2 but never writes it.

A MapFile consists of two SequenceFiles: `data`, and `index` with every 128th key and its offset.

    header: "SEQ", version 6; names of the key's and the value's class (vint size, UTF-8); bool compressed;
            bool by blocks; if compressed the codec's class; int32 count and that many pairs of text;
            a sync mark of 16 bytes
    record: int32 size, int32 size of the key, key, value (compressed alone if records are)
    block:  vint records; then four compressed parts, each with a vint size: sizes of keys, keys, sizes of
            values, values
    before some records and before every block: int32 -1 and the sync mark

Pulsar's file system offloader writes LongWritable keys (int64) and BytesWritable values (size, bytes).

Sources: apache/pulsar tiered-storage/jcloud OffloadIndexBlockImpl.java, OffloadIndexBlockV2Impl.java,
DataBlockHeaderImpl.java, BlockAwareSegmentInputStreamImpl.java; apache/hadoop io/SequenceFile.java,
MapFile.java, WritableUtils.java, compress/DefaultCodec.java.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.metadata.ledger_metadata import custom_metadata
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

INDEX_MAGIC: Final = 0xDE47DE47
SEGMENT_INDEX_MAGIC: Final = 0x3D1FB0BC
BLOCK_MAGIC: Final = 0xFBDBABCB
SEGMENT_BLOCK_MAGIC: Final = 0x26A66D32
PADDING: Final = bytes.fromhex("FEDCDEAD")
ENTRY_HEADER: Final = struct.Struct(">iq")

_INDEX: Final = struct.Struct(">Iiqq")
_COUNTS: Final = struct.Struct(">ii")
_LEDGER: Final = struct.Struct(">q")
_ROW: Final = struct.Struct(">qiq")
_BLOCK: Final = struct.Struct(">Iqqq")


class Block(NamedTuple):
    """A block of the data object: its first entry, its part's number, and its bytes [offset, end)."""

    first_entry: int
    part: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """A ledger in an index object. `last_entry` is None if the ledger's metadata does not have it.

    `custom` is the ledger's custom metadata, in which Pulsar stores its owner; empty in format 2.
    """

    ledger_id: int | None
    last_entry: int | None
    blocks: tuple[Block, ...]
    custom: Mapping[str, str] = field(default_factory=dict)

    def block_of(self, entry_id: int) -> Block | None:
        """Return the block that contains an entry, or None for entries before the first block."""
        at = bisect_right(self.blocks, entry_id, key=lambda block: block.first_entry)
        return self.blocks[at - 1] if at else None


@dataclass(frozen=True, slots=True)
class OffloadIndex:
    """An index object. Format 1 does not have the ledger's id, which is in the object's name."""

    data_size: int
    ledgers: tuple[OffloadedLedger, ...]


class BlockEntry(NamedTuple):
    """An entry in a block. Its frame is `size` bytes at `offset`."""

    entry_id: int
    offset: int
    size: int


def decode_offload_index(data: Buffer) -> OffloadIndex:
    """Decode an index object. Raises DecodeError if it is broken."""
    reader = Reader(data)
    magic, size, data_size, header_size = reader.numbers(_INDEX, "an offload index")
    if magic not in (INDEX_MAGIC, SEGMENT_INDEX_MAGIC):
        raise DecodeError(f"expected an offload index, found 0x{magic:08x}", offset=0)
    if size != len(reader.view):
        raise DecodeError(f"the index claims {size} bytes, there are {len(reader.view)}", offset=4)
    if data_size < 0 or header_size < _BLOCK.size:
        raise DecodeError(f"data of {data_size} bytes in blocks with headers of {header_size}", offset=8)
    if magic == INDEX_MAGIC:
        ledger = _ledger(reader)
        if reader.left:
            raise DecodeError(f"{reader.left} bytes after the last block", offset=reader.at)
        return OffloadIndex(data_size, _with_blocks([ledger], data_size))
    return OffloadIndex(data_size, _with_blocks(list(_segments(reader)), data_size))


def decode_block_header(data: Buffer) -> tuple[int, int, int]:
    """Return (header size, block size, first entry) of the block in `data`. Raises DecodeError."""
    magic, header_size, block_size, first_entry = Reader(data).numbers(_BLOCK, "a block")
    if magic not in (BLOCK_MAGIC, SEGMENT_BLOCK_MAGIC):
        raise DecodeError(f"expected a block of offloaded entries, found 0x{magic:08x}", offset=0)
    if not _BLOCK.size <= header_size <= block_size:
        raise DecodeError(f"a block of {block_size} bytes with a header of {header_size}", offset=4)
    return header_size, block_size, first_entry


def block_entries(data: Buffer, at: int = 0) -> Iterator[BlockEntry]:
    """Yield the entries of a block, or of its first part, from `at` on.

    Stops at the padding, and at an entry that is not complete.
    """
    view = byte_view(data)
    while at + ENTRY_HEADER.size <= len(view):
        size, entry_id = ENTRY_HEADER.unpack_from(view, at)
        end = at + ENTRY_HEADER.size + size
        if size < 0 or end > len(view):
            return
        yield BlockEntry(entry_id, at + ENTRY_HEADER.size, size)
        at = end


class _Rows(NamedTuple):
    ledger_id: int | None
    last_entry: int | None
    blocks: list[tuple[int, int, int]]
    custom: Mapping[str, str]


def _with_blocks(ledgers: list[_Rows], data_size: int) -> tuple[OffloadedLedger, ...]:
    """Return the ledgers with blocks, each of which ends at the next block of any ledger."""
    offsets = sorted({offset for ledger in ledgers for _, _, offset in ledger.blocks})
    if offsets and not 0 <= offsets[0] <= offsets[-1] < data_size:
        raise DecodeError(f"blocks from {offsets[0]} to {offsets[-1]} in {data_size} bytes of data")
    ends = dict(zip(offsets, [*offsets[1:], data_size], strict=True))
    offloaded = []
    for ledger_id, last_entry, rows, custom in ledgers:
        blocks = tuple(Block(first, part, offset, ends[offset]) for first, part, offset in rows)
        if any(a.first_entry >= b.first_entry or a.end > b.offset for a, b in pairwise(blocks)):
            raise DecodeError("the blocks are not in order")
        offloaded.append(OffloadedLedger(ledger_id, last_entry, blocks, custom))
    return tuple(offloaded)


def _segments(reader: Reader) -> Iterator[_Rows]:
    while reader.left:
        (ledger_id,) = reader.numbers(_LEDGER, "a ledger's id")
        yield _ledger(reader, ledger_id)


def _ledger(reader: Reader, ledger_id: int | None = None) -> _Rows:
    """Decode a ledger of an index; its id is only given in format 2."""
    at = reader.at
    count, metadata_size = reader.numbers(_COUNTS, "the counts of an index")
    if count < 0 or metadata_size < 0 or metadata_size + count * _ROW.size > reader.left:
        raise DecodeError(f"{count} blocks and {metadata_size} bytes of metadata do not fit", offset=at)
    metadata_at, metadata = reader.at, reader.take(metadata_size, "the ledger's metadata")
    with decoding(start=metadata_at):
        last_entry, custom = _last_entry_and_custom(metadata, segment=ledger_id is not None)
    rows = reader.take(count * _ROW.size, "the blocks")
    return _Rows(ledger_id, last_entry, list(_ROW.iter_unpack(rows)), custom)


def _last_entry_and_custom(metadata: memoryview, *, segment: bool) -> tuple[int | None, Mapping[str, str]]:
    if segment:
        info = parse_message(ManagedLedgerInfo.LedgerInfo, metadata)
        return (info.entries - 1 if info.HasField("entries") else None), {}
    ledger = parse_message(LedgerMetadataFormat, metadata)
    return (ledger.lastEntryId if ledger.HasField("lastEntryId") else None), custom_metadata(ledger)


SYNC_SIZE: Final = 16
LONG_KEY: Final = "org.apache.hadoop.io.LongWritable"
LARGEST: Final = 128 << 20
# Writers end a block at a megabyte (io.seqfile.compress.blocksize), so it can't have more keys than this.
LARGEST_KEYS: Final = 16 << 20

_MAGIC: Final = b"SEQ\x06"
_ZLIB: Final = "org.apache.hadoop.io.compress.DefaultCodec"
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


class Truncated(DecodeError):
    """The bytes end inside a record. The caller may retry with more bytes of the file."""


class _Reader(Reader):
    """Reads Hadoop's types, and raises Truncated if bytes are missing."""

    __slots__ = ()
    short = Truncated

    def vint(self) -> int:
        """Read a number in the format of WritableUtils.writeVLong."""
        first = int.from_bytes(self.expect(1, "a number"), signed=True)
        if first >= -112:
            return first
        size = -(first + 120) if first < -120 else -(first + 112)
        number = int.from_bytes(self.expect(size, "a number"))
        return ~number if first < -120 else number

    def text(self) -> str:
        """Read a string that is prefixed with its size."""
        size, at = self.vint(), self.at
        try:
            return str(self.take(size, "a text"), "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError("expected UTF-8 text", offset=at) from error


@dataclass(frozen=True, slots=True)
class SequenceHeader:
    """The header of a SequenceFile; records begin at `size`."""

    key_class: str
    compressed: bool
    by_blocks: bool
    sync: bytes
    size: int


class KeyedRecord(NamedTuple):
    """A record with a LongWritable key and a serialized value; `end` is the offset of the next record."""

    key: int
    value: memoryview
    end: int


def decode_sequence_header(data: Buffer) -> SequenceHeader:
    """Decode the header. Raises DecodeError if it is broken or the compression is not supported."""
    reader = _Reader(data)
    magic = bytes(reader.view[:4])
    if magic != _MAGIC:
        raise DecodeError(f"expected a SequenceFile's {_MAGIC!r}, found {magic!r}", offset=0)
    reader.at = len(_MAGIC)
    key_class, _ = reader.text(), reader.text()
    compressed, by_blocks = (bool(flag) for flag in reader.expect(2, "the flags"))
    if compressed:
        codec = reader.text()
        if codec != _ZLIB:
            raise DecodeError(f"unsupported compression {codec}: expected {_ZLIB}", offset=reader.at)
    (pairs,) = reader.numbers(_INT, "the number of pairs")
    for _ in range(2 * pairs):
        reader.text()
    sync = bytes(reader.expect(SYNC_SIZE, "the sync mark"))
    return SequenceHeader(key_class, compressed, by_blocks, sync, reader.at)


def decode_records(data: Buffer, header: SequenceHeader) -> Iterator[KeyedRecord]:
    """Yield the records of `data`, which begins with a record or a sync mark.

    Raises Truncated if `data` ends inside a record or a block, DecodeError if it is broken.
    """
    reader = _Reader(data)
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
    """Return the bytes of a BytesWritable. Raises DecodeError if its size does not match."""
    if len(record.value) < 4 or _INT.unpack_from(record.value)[0] != len(record.value) - 4:
        raise DecodeError(f"entry {record.key}: its value is not a BytesWritable")
    return record.value[4:]


def long_of(record: KeyedRecord) -> int:
    """Return the number in a LongWritable. Raises DecodeError if the value has another size."""
    if len(record.value) != _LONG.size:
        raise DecodeError(f"key {record.key}: its value is not a LongWritable")
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
    """Yield the records of the next block, after checking all of it."""
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
        # The inner error's offset refers to a decompressed part. An inner Truncated means damage here.
        raise DecodeError(f"a broken block of {count} records: {error.message}", offset=start) from error


def _records_of(parts: list[memoryview], end: int) -> Iterator[KeyedRecord]:
    """Yield the records in a block's four parts. Raises DecodeError if the parts do not match."""
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
        raise DecodeError(f"compressed data is truncated, or exceeds {limit} bytes", offset=offset)
    return memoryview(raw)
