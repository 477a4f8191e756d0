"""A bookie's journal: what it acknowledged, in the order it came, before any of it is in an entry log.

    "BKLG", int32 version, header up to 8 or 512 bytes, then records: int32 size, bookie entry

From version 5 on a size of -256 is padding: int32 count, so many bytes. A size of 0 ends the file, which
is preallocated. Negative entry ids are no entries but notes of the bookie to itself. A file that was used
again (journalReuseFiles) goes on behind its end with what an older journal left: whole records where they
happen to begin there, which a bookie that replays takes for its own, else bytes that are none.

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
STALE: Final = ": the rest of an older journal in a journal file that was used again, or damage"

_HEAD: Final = struct.Struct(">4si")
_SIZE: Final = struct.Struct(">i")
_IDS: Final = struct.Struct(">qq")
_MARK: Final = struct.Struct(">qq")


def journal_start(data: Buffer) -> tuple[int, int]:
    """Return (version, offset of the first record) of a journal file; DecodeError where it is none."""
    magic, version = Reader(data).numbers(_HEAD, "a journal's header")
    if magic != MAGIC:
        # Version 1 had no header: it begins with the first record.
        if _SIZE.unpack(magic)[0] >= _IDS.size:
            return 1, 0
        raise DecodeError(f"expected a journal's {MAGIC!r}, found {bytes(magic)!r}", offset=0)
    if not 2 <= version <= NEWEST_VERSION:
        raise DecodeError(f"expected a journal of version 2 to {NEWEST_VERSION}, found {version}", offset=4)
    return version, 512 if version >= 5 else 8


def journal_records(data: Buffer) -> Iterator[Record]:
    """Yield the records of a journal file in order, the bookie's notes (negative entry ids) included.

    The end is a size of 0 or a torn last record. DecodeError where the file is no journal or a size in
    it cannot be.
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
            raise DecodeError(f"a journal's record claims {size} bytes{STALE}", offset=at)
        if start + size > len(view):
            return
        ledger_id, entry_id = _IDS.unpack_from(view, start)
        record = Record(ledger_id, entry_id, start, size)
        if not _can_be(view, record):
            raise DecodeError(f"expected a journal's record, found bytes that are none{STALE}", offset=at)
        yield record
        at = start + size


def is_entry(record: Record) -> bool:
    """Return whether a journal's record is an entry and no note of the bookie."""
    return record.entry_id >= 0 and record.ledger_id >= 0 and record.size >= HEADER.size


def _can_be(view: memoryview, record: Record) -> bool:
    """Return whether a record can be an entry or a note of the bookie; bytes of an older journal may not."""
    if record.entry_id < 0 or record.ledger_id < 0:
        return record.ledger_id >= 0
    if record.size < HEADER.size:
        return False
    _, _, last_confirmed, length = HEADER.unpack_from(view, record.offset)
    return bool(-1 <= last_confirmed <= record.entry_id and length >= 0)


def noted_key(data: Buffer) -> bytes:
    """Return the master key in a bookie's note of it (entry id MASTER_KEY), a whole record."""
    note = Reader(data)
    note.numbers(_IDS, "a journal's note")
    return bytes(note.sized("the master key"))


def decode_mark(data: Buffer) -> tuple[int, int]:
    """Return (journal file id, offset) of a `lastMark` file: what lies before is in the entry logs."""
    journal_id, offset = Reader(data).numbers(_MARK, "a journal mark")
    return journal_id, offset


def _after_padding(view: memoryview, at: int) -> int:
    if at + _SIZE.size > len(view):
        return len(view)
    count = _SIZE.unpack_from(view, at)[0]
    if count < 0:
        raise DecodeError(f"a journal's padding claims {count} bytes", offset=at)
    return at + _SIZE.size + int(count)
