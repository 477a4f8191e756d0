"""The index of one ledger as bookies with interleaved or sorted storage keep it (`*.idx`).

    header of 1024 bytes: "BKLE", int32 version, int32 size and master key, int32 state bits,
    from version 1 on int32 size and explicit LAC; then an int64 location for each entry, 0 for none

Sources: apache/bookkeeper FileInfo.java, IndexPersistenceMgr.java, LedgerEntryPage.java.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view

MAGIC: Final = b"BKLE"
HEADER_SIZE: Final = 1024
FENCED: Final = 1

_HEAD: Final = struct.Struct(">4si")
_I32: Final = struct.Struct(">i")
_LOCATION: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What stands before the locations; `explicit_lac` is None in version 0."""

    version: int
    master_key: bytes = field(repr=False)
    fenced: bool
    explicit_lac: bytes | None = None


def decode_index_header(data: Buffer) -> IndexHeader:
    """Return the header of a ledger's index; DecodeError where `data` does not begin with one."""
    header = Reader(Reader(data).expect(HEADER_SIZE, "a ledger index's header"))
    magic, version = header.numbers(_HEAD, "a ledger index's header")
    if magic != MAGIC:
        raise DecodeError(f"expected a ledger index's {MAGIC!r}, found {bytes(magic)!r}", offset=0)
    if version not in (0, 1):
        raise DecodeError(f"expected a ledger index of version 0 or 1, found {version}", offset=4)
    key = bytes(header.sized("the master key"))
    (state,) = header.numbers(_I32, "the ledger's state")
    lac = bytes(header.sized("the explicit LAC")) if version else b""
    return IndexHeader(version, key, bool(state & FENCED), lac or None)


def location_of(data: Buffer, entry_id: int) -> int:
    """Return the location of an entry, 0 where the index has none."""
    at = HEADER_SIZE + entry_id * _LOCATION.size
    if entry_id < 0 or at + _LOCATION.size > len(data):
        return 0
    return int(_LOCATION.unpack_from(data, at)[0])


def locations(data: Buffer) -> tuple[array[int], array[int]]:
    """Return the entries that a ledger's index holds and their locations, as two columns."""
    view = byte_view(data)
    whole = (len(view) - HEADER_SIZE) // _LOCATION.size * _LOCATION.size
    rows = view[HEADER_SIZE : HEADER_SIZE + max(0, whole)]
    entries, places = array("q"), array("q")
    for entry_id, (location,) in enumerate(_LOCATION.iter_unpack(rows)):
        if location > 0:
            entries.append(entry_id)
            places.append(location)
    return entries, places
