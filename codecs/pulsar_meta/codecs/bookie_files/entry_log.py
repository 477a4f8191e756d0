"""Entry logs, which contain the entries of all ledgers of a bookie, and the index files of single ledgers.

    header of 1024 bytes: "BKLO", int32 version, int64 offset of the ledgers map, int32 number of ledgers
    records: int32 size, bookie entry
    ledgers map of a sealed log: records of ledger -1 and entry -2 with the bytes of each ledger

A location is (log id << 32) | offset. The offset points to the ledger id, after the record's size. Logs
written with direct I/O are padded to blocks of 4096 bytes with 0xF0 and preallocated with zeros, so sizes
that are zero or negative are fill.

Bookies with interleaved or sorted storage keep one index file per ledger (`*.idx`):

    header of 1024 bytes: "BKLE", int32 version, int32 size and master key, int32 state bits,
    from version 1 on int32 size and explicit LAC; then an int64 location for each entry, 0 for none

Sources: apache/bookkeeper DefaultEntryLogger.java, EntryLoggerAllocator.java, FileInfo.java,
IndexPersistenceMgr.java, LedgerEntryPage.java, directentrylogger/DirectCompactionEntryLog.java and
LogReaderScan.java, ldb/LocationsIndexRebuildOp.java.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import HEADER
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view

MAGIC: Final = b"BKLO"
HEADER_SIZE: Final = 1024
NO_LEDGER: Final = -1
LEDGERS_MAP_ENTRY: Final = -2

# Includes the zeros at its end.
_HEAD: Final = struct.Struct(f">4siqi{HEADER_SIZE - 20}x")
_SIZE: Final = struct.Struct(">i")
_RECORD: Final = struct.Struct(">iqq")
_MAP: Final = struct.Struct(">iqqi")
_MAP_ROW: Final = struct.Struct(">qq")
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class LogHeader:
    """The header of an entry log. Offset and count are 0 if the log was not sealed."""

    version: int
    ledgers_map_offset: int
    ledgers_count: int


class Record(NamedTuple):
    """The place of a bookie entry: `size` bytes at `offset`, after the record's size as in a location."""

    ledger_id: int
    entry_id: int
    offset: int
    size: int


class Damage(NamedTuple):
    """Bytes [offset, end) between records that are not a record."""

    offset: int
    end: int


def decode_log_header(data: Buffer) -> LogHeader:
    """Decode the header of an entry log. Raises DecodeError if `data` does not begin with one."""
    magic, version, map_offset, count = Reader(data).numbers(_HEAD, "an entry log's header")
    if magic != MAGIC:
        raise DecodeError(f"expected an entry log's {MAGIC!r}, found {bytes(magic)!r}", offset=0)
    return LogHeader(version, map_offset, count)


def record_at(data: Buffer, offset: int) -> Record:
    """Return the record at a location's `offset`. Raises DecodeError if no record fits there."""
    view = byte_view(data)
    if not 4 <= offset <= len(view) - HEADER.size:
        raise DecodeError(
            f"a record at {offset} would be outside of the log's {len(view)} bytes", offset=offset
        )
    size, ledger_id, entry_id = _RECORD.unpack_from(view, offset - 4)
    if size < HEADER.size or offset + size > len(view):
        raise DecodeError(f"a record claims {size} bytes, {len(view) - offset} are left", offset=offset - 4)
    return Record(ledger_id, entry_id, offset, size)


def scan_records(data: Buffer, start: int = HEADER_SIZE) -> Iterator[Record | Damage]:
    """Yield all entries of a log from `start` on, in file order.

    Skips padding, zeros and records without a ledger. Yields Damage for bytes that can't be a record, and
    continues with the next record that it finds. A truncated last record is Damage, too.
    """
    view = byte_view(data)
    at, end = start, len(view) - _RECORD.size
    while at <= end:
        size, ledger_id, entry_id = _RECORD.unpack_from(view, at)
        if size <= 0:
            at = _skip_fill(view, at)
        elif ledger_id == NO_LEDGER and at + 4 + size <= len(view):
            at += 4 + size
        elif _is_plausible(view, at):
            yield Record(ledger_id, entry_id, at + 4, size)
            at += 4 + size
        else:
            following = _next_record(view, at + 1)
            yield Damage(at, following)
            at = following


def ledgers_map(data: Buffer, header: LogHeader) -> dict[int, int] | None:
    """Return the bytes of each ledger in a sealed log, including the sizes of records.

    Returns None if the log has no valid map, because it was not sealed or the count does not match.
    """
    view, at = byte_view(data), header.ledgers_map_offset
    if header.version < 1 or at < HEADER_SIZE or header.ledgers_count <= 0:
        return None
    sizes: dict[int, int] = {}
    while len(sizes) < header.ledgers_count and at + _MAP.size <= len(view):
        size, ledger_id, entry_id, count = _MAP.unpack_from(view, at)
        rows = at + _MAP.size
        fits = 0 <= count <= (len(view) - rows) // _MAP_ROW.size and size == 20 + count * _MAP_ROW.size
        if (ledger_id, entry_id) != (NO_LEDGER, LEDGERS_MAP_ENTRY) or not fits:
            return None
        sizes.update(_MAP_ROW.iter_unpack(view[rows : rows + count * _MAP_ROW.size]))
        at += 4 + size
    return sizes if len(sizes) == header.ledgers_count else None


def split_location(location: int) -> tuple[int, int]:
    """Return (log id, offset) of a location."""
    return location >> 32, location & 0xFFFFFFFF


def _is_plausible(view: memoryview, at: int) -> bool:
    """Return True if a complete bookie entry can begin at `at`, judging by its size and ids."""
    if at + 4 + HEADER.size > len(view):
        return False
    size = _SIZE.unpack_from(view, at)[0]
    if size < HEADER.size or at + 4 + size > len(view):
        return False
    ledger_id, entry_id, last_confirmed, length = HEADER.unpack_from(view, at + 4)
    return bool(ledger_id >= 0 and entry_id >= 0 and -1 <= last_confirmed <= entry_id and length >= 0)


def _next_record(view: memoryview, at: int) -> int:
    """Return the offset of the next record that is followed by another record, by fill or by the end."""
    last = len(view) - 4 - HEADER.size
    while at <= last:
        if _is_plausible(view, at) and _can_follow(view, at + 4 + _SIZE.unpack_from(view, at)[0]):
            return at
        at += 1
    return len(view)


def _can_follow(view: memoryview, at: int) -> bool:
    if at + _RECORD.size > len(view):
        return True
    size, ledger_id, _ = _RECORD.unpack_from(view, at)
    return size <= 0 or ledger_id == NO_LEDGER or _is_plausible(view, at)


def _skip_fill(view: memoryview, at: int) -> int:
    """Return the next offset after `at` that can have a positive size, skipping runs of zeros and 0xF0."""
    first = view[at]
    if first not in (0x00, 0xF0):
        return at + 1
    end = at
    while end < len(view):
        piece = bytes(view[end : end + _PIECE])
        rest = piece.lstrip(piece[:1]) if piece[0] == first else piece
        end += len(piece) - len(rest)
        if rest:
            break
    # A positive size begins with at most three zero bytes.
    return max(at + 1, end - 3) if first == 0x00 else max(at + 1, end)


INDEX_MAGIC: Final = b"BKLE"
FENCED: Final = 1

_INDEX_HEADER: Final = struct.Struct(">4si")
_I32: Final = struct.Struct(">i")
_LOCATION: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header before the locations; `explicit_lac` is None in version 0."""

    version: int
    master_key: bytes = field(repr=False)
    fenced: bool
    explicit_lac: bytes | None = None


def decode_index_header(data: Buffer) -> IndexHeader:
    """Decode the header of a ledger's index. Raises DecodeError if `data` does not begin with one."""
    header = Reader(Reader(data).expect(HEADER_SIZE, "a ledger index's header"))
    magic, version = header.numbers(_INDEX_HEADER, "a ledger index's header")
    if magic != INDEX_MAGIC:
        raise DecodeError(f"expected a ledger index's {INDEX_MAGIC!r}, found {bytes(magic)!r}", offset=0)
    if version not in (0, 1):
        raise DecodeError(f"expected a ledger index of version 0 or 1, found {version}", offset=4)
    key = bytes(header.sized("the master key"))
    (state,) = header.numbers(_I32, "the ledger's state")
    lac = bytes(header.sized("the explicit LAC")) if version else b""
    return IndexHeader(version, key, bool(state & FENCED), lac or None)


def location_of(data: Buffer, entry_id: int) -> int:
    """Return the location of an entry, or 0 if the index has none."""
    at = HEADER_SIZE + entry_id * _LOCATION.size
    if entry_id < 0 or at + _LOCATION.size > len(data):
        return 0
    return int(_LOCATION.unpack_from(data, at)[0])


def locations(data: Buffer) -> tuple[array[int], array[int]]:
    """Return the entry ids in a ledger's index and their locations, as two columns."""
    view = byte_view(data)
    whole = (len(view) - HEADER_SIZE) // _LOCATION.size * _LOCATION.size
    rows = view[HEADER_SIZE : HEADER_SIZE + max(0, whole)]
    entries, places = array("q"), array("q")
    for entry_id, (location,) in enumerate(_LOCATION.iter_unpack(rows)):
        if location > 0:
            entries.append(entry_id)
            places.append(location)
    return entries, places
