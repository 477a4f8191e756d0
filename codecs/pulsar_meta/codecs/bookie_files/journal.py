"""A bookie's journal, which has acknowledged entries in order of arrival before they are in an entry log.

    "BKLG", int32 version, header up to 8 or 512 bytes, then records: int32 size, bookie entry

Since version 5, a size of -256 means padding: int32 count, count bytes. Files are preallocated, so a size of
0 marks the end. Records with negative entry ids are the bookie's notes, such as a ledger's master key. A
reused file (journalReuseFiles) has remains of an older journal after its end. If complete records happen to
begin there, a bookie replays them; otherwise the bytes are not a record.

Sources: apache/bookkeeper JournalChannel.java, Journal.java, BookieImpl.java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.bookie_files.entry_log import Record
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import HEADER
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view

MAGIC: Final = b"BKLG"
PADDING: Final = -256

MASTER_KEY: Final = -0x1000
FENCE: Final = -0x2000

NEWEST_VERSION: Final = 6
STALE: Final = " (damage, or the remains of an older journal in a reused file)"

_HEAD: Final = struct.Struct(">4si")
_SIZE: Final = struct.Struct(">i")
_IDS: Final = struct.Struct(">qq")
_MARK: Final = struct.Struct(">qq")


def journal_start(data: Buffer) -> tuple[int, int]:
    """Return (version, offset of the first record). Raises DecodeError if it is not a journal file."""
    magic, version = Reader(data).numbers(_HEAD, "a journal's header")
    if magic != MAGIC:
        # Version 1 has no header and begins with the first record.
        if _SIZE.unpack(magic)[0] >= _IDS.size:
            return 1, 0
        raise DecodeError(f"expected a journal's {MAGIC!r}, found {bytes(magic)!r}", offset=0)
    if not 2 <= version <= NEWEST_VERSION:
        raise DecodeError(f"expected a journal of version 2 to {NEWEST_VERSION}, found {version}", offset=4)
    return version, 512 if version >= 5 else 8


def journal_records(data: Buffer) -> Iterator[Record]:
    """Yield the records of a journal file in order, including the bookie's notes (negative entry ids).

    Stops at a size of 0 or at a truncated last record. Raises DecodeError if the file is not a journal or has
    a broken record.
    """
    view = byte_view(data)
    version, at = journal_start(view)
    while at + _SIZE.size <= len(view):
        size = _SIZE.unpack_from(view, at)[0]
        if size == 0:
            return
        start = at + _SIZE.size
        if size == PADDING and version >= 5:
            at = _after_padding(view, start)
            continue
        if size < _IDS.size:
            raise DecodeError(f"a journal record claims {size} bytes{STALE}", offset=at)
        if start + size > len(view):
            return
        ledger_id, entry_id = _IDS.unpack_from(view, start)
        record = Record(ledger_id, entry_id, start, size)
        if not _can_be(view, record):
            raise DecodeError(f"expected a journal record{STALE}", offset=at)
        yield record
        at = start + size


def is_entry(record: Record) -> bool:
    """Return True if a journal record is an entry, not a note of the bookie."""
    return record.entry_id >= 0 and record.ledger_id >= 0 and record.size >= HEADER.size


def _can_be(view: memoryview, record: Record) -> bool:
    """Return True if a record can be an entry or a note; remains of an older journal often can't."""
    if record.entry_id < 0 or record.ledger_id < 0:
        return record.ledger_id >= 0
    if record.size < HEADER.size:
        return False
    _, _, last_confirmed, length = HEADER.unpack_from(view, record.offset)
    return bool(-1 <= last_confirmed <= record.entry_id and length >= 0)


def noted_key(data: Buffer) -> bytes:
    """Return the ledger's master key from a note (a complete record with the entry id MASTER_KEY)."""
    note = Reader(data)
    note.numbers(_IDS, "a journal's note")
    return bytes(note.sized("the master key"))


def decode_mark(data: Buffer) -> tuple[int, int]:
    """Return (journal file id, offset) from a `lastMark` file. All earlier records are in entry logs."""
    journal_id, offset = Reader(data).numbers(_MARK, "a journal mark")
    return journal_id, offset


def _after_padding(view: memoryview, at: int) -> int:
    if at + _SIZE.size > len(view):
        return len(view)
    count = _SIZE.unpack_from(view, at)[0]
    if count < 0:
        raise DecodeError(f"a journal's padding claims {count} bytes", offset=at)
    return at + _SIZE.size + int(count)
