"""`offload:URL`: entries in the objects of Pulsar's tiered storage, at any URL that fsspec supports.

    offload:/path/to/objects    offload:s3://bucket    offload:gs://bucket/folder

A data object is called `<uuid>-ledger-<id>`, and its index has the suffix `-index`. A repeated offload leaves
several objects of a ledger, of which the first with consistent parts is used. `entries.offload_files` reads
folders of MapFiles (`<id>-<uuid>`) from the file system offloader.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.bookie_files.offload import (
    ENTRY_HEADER,
    Block,
    OffloadedLedger,
    OffloadIndex,
    block_entries,
    decode_block_header,
    decode_offload_index,
)
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError, decoding
from pulsar_meta.entries.base import RawEntry
from pulsar_meta.entries.offload_files import MapFileEntries, ObjectFiles, OffloadedLedgers, map_file_folders

# The amounts of data to fetch at a time. They grow while many entries are read.
FIRST_PIECE: Final = 64 << 10
LARGEST_PIECE: Final = 8 << 20
# An index has one row per block of 64 MiB, so a valid one is never larger.
LARGEST_INDEX: Final = 64 << 20
INDEX: Final = "-index"
NOTHING: Final = (
    "no offloaded ledger (<uuid>-ledger-<id> and <uuid>-ledger-<id>-index, or <id>-<uuid>/data and its index)"
)

_index_re = re.compile(r"(?P<key>.+-ledger-(?P<ledger>[0-9]{1,19}))-index")
_segment_re = re.compile(r"(?P<key>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})-index")


class _BlockOffsets:
    """The ids and offsets of the entries of a block that were read so far."""

    def __init__(self) -> None:
        self.entry_ids, self.offsets = array("q"), array("q")

    def add(self, entry_id: int, offset: int) -> None:
        """Add an entry unless it is known."""
        if not self.entry_ids or entry_id > self.entry_ids[-1]:
            self.entry_ids.append(entry_id)
            self.offsets.append(offset)

    def before(self, entry_id: int) -> int | None:
        """Return the offset of the last known entry up to `entry_id`, or None if none is known."""
        at = bisect_right(self.entry_ids, entry_id)
        return self.offsets[at - 1] if at else None


@dataclass(frozen=True, slots=True)
class _Offloaded:
    """A ledger whose index was read, and the known offsets of its entries by block."""

    data: str
    ledger: OffloadedLedger
    last_entry: int
    offsets: dict[int, _BlockOffsets] = field(default_factory=dict)


def open_offload(url: str) -> OffloadedEntries | MapFileEntries:
    """Open `offload:URL`. Raises NotFoundError if it doesn't exist or has no offloaded ledger."""
    place = url.partition(":")[2]
    if not place:
        raise UsageError("expected offload:URL with the URL of a folder or bucket", source=url)
    files, url = ObjectFiles(place), redact(url)
    folders = map_file_folders(files)
    return MapFileEntries(url, folders) if folders else OffloadedEntries(url, files)


class OffloadedEntries(OffloadedLedgers):
    """Entries in offloaded objects."""

    def __init__(self, url: str, files: ObjectFiles) -> None:
        """List the objects. The index of a ledger is read on demand."""
        self.url = url
        self._files = files
        self._sizes = files.sizes()
        self._opened: dict[int, _Offloaded] = {}
        self._names: dict[int, list[str]] = {}
        for name in sorted(self._sizes):
            match = _index_re.fullmatch(name)
            if match:
                self._names.setdefault(int(match["ledger"]), []).append(match["key"])
            elif segment := _segment_re.fullmatch(name):
                self._open_segments(segment["key"])
        if not self._names and not self._opened:
            raise NotFoundError(NOTHING, source=url)

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger id, UUID of the offload) of each offload with an index."""
        names = ObjectFiles(self._files.url).sizes() if again else self._sizes
        for name in sorted(names):
            match = _index_re.fullmatch(name)
            if match:
                yield int(match["ledger"]), match["key"].rpartition("-ledger-")[0]

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers with objects, sorted."""
        return sorted({*self._names, *self._opened})

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], sorted. Raises DecodeError at a damaged block."""
        offloaded = self._open(ledger_id)
        if offloaded is None:
            return
        end = offloaded.last_entry if last is None else min(last, offloaded.last_entry)
        start = offloaded.ledger.block_of(first)
        for block in offloaded.ledger.blocks:
            if block.first_entry > end:
                return
            if start is None or block.offset >= start.offset:
                for entry_id, frame in self._frames(offloaded, block, first, end):
                    yield RawEntry(ledger_id, entry_id, frame, bookie=False)

    def custom_metadata(self, ledger_id: int) -> Mapping[str, str]:
        """Return BookKeeper's custom metadata of a ledger, from its index."""
        offloaded = self._open(ledger_id)
        return {} if offloaded is None else offloaded.ledger.custom

    def _range(self, ledger_id: int) -> range | None:
        offloaded = self._open(ledger_id)
        if offloaded is None:
            return None
        first, end = _first_entry(offloaded.ledger), offloaded.last_entry + 1
        return range(end if first is None else first, end)

    def _frames(
        self, offloaded: _Offloaded, block: Block, first: int, last: int
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield (entry id, frame) of a block within [first, last], fetching it in pieces."""
        offsets = offloaded.offsets.setdefault(block.offset, _BlockOffsets())
        known = offsets.before(first)
        at = block.offset if known is None else known
        piece_size = FIRST_PIECE
        while at + ENTRY_HEADER.size <= block.end:
            with_header = at == block.offset
            piece = self._files.fetch(offloaded.data, at, min(at + piece_size, block.end))
            start = self._header_size(offloaded, block, piece) if with_header else 0
            complete = list(block_entries(piece, start))
            for entry in complete:
                offsets.add(entry.entry_id, at + entry.offset - ENTRY_HEADER.size)
                if entry.entry_id > last:
                    return
                if entry.entry_id >= first:
                    yield entry.entry_id, memoryview(piece)[entry.offset : entry.offset + entry.size]
            done = complete[-1].offset + complete[-1].size if complete else start
            at += done
            if len(piece) - done >= ENTRY_HEADER.size:
                missing = self._missing(offloaded, block, at, piece[done : done + ENTRY_HEADER.size])
                if missing is None:
                    return
                piece_size = max(piece_size, missing)
            piece_size = max(min(2 * piece_size, LARGEST_PIECE), piece_size)

    def _missing(self, offloaded: _Offloaded, block: Block, at: int, header: bytes) -> int | None:
        """Return the size of the incomplete entry at `at` with its header, or None if padding begins."""
        size, entry_id = ENTRY_HEADER.unpack(header)
        if size < 0:
            return None
        if at + ENTRY_HEADER.size + size > block.end:
            problem = f"entry {entry_id} claims {size} bytes, but its block ends before"
            raise DecodeError(problem, offset=at, source=offloaded.data)
        return int(ENTRY_HEADER.size + size)

    def _header_size(self, offloaded: _Offloaded, block: Block, piece: bytes) -> int:
        """Return the size of a block's header. Raises DecodeError if it contradicts the index."""
        try:
            header_size, size, first_entry = decode_block_header(piece)
        except DecodeError as error:
            raise DecodeError(error.message, offset=block.offset, source=offloaded.data) from error
        if (first_entry, size) != (block.first_entry, block.end - block.offset) or header_size > len(piece):
            raise DecodeError(
                f"the block has {size} bytes from entry {first_entry} on, but the index has"
                f" {block.end - block.offset} bytes from entry {block.first_entry} on",
                offset=block.offset,
                source=offloaded.data,
            )
        return header_size

    def _open(self, ledger_id: int) -> _Offloaded | None:
        if ledger_id not in self._opened and ledger_id in self._names:
            self._opened[ledger_id] = self._open_first(self._names[ledger_id])
        return self._opened.get(ledger_id)

    def _open_first(self, keys: list[str]) -> _Offloaded:
        """Open the first offload whose index and data are consistent. Raises DecodeError if none is."""
        damage: DecodeError | None = None
        for key in keys:
            try:
                index = self._index(key)
                return _offloaded(key, index, index.ledgers[0])
            except DecodeError as error:
                damage = damage or error
        assert damage is not None
        raise damage

    def _open_segments(self, key: str) -> None:
        index = self._index(key)
        for ledger in index.ledgers:
            if ledger.ledger_id is not None:
                self._opened[ledger.ledger_id] = _offloaded(key, index, ledger)

    def _index(self, key: str) -> OffloadIndex:
        name = key + INDEX
        with decoding(f"{self.url}: {name}"):
            if self._sizes[name] > LARGEST_INDEX:
                raise DecodeError(f"the index is too large: {self._sizes[name]} bytes")
            index = decode_offload_index(self._files.fetch(name, 0, self._sizes[name]))
            if self._sizes.get(key) != index.data_size:
                raise DecodeError(
                    f"expected a data object of {index.data_size} bytes, found {self._sizes.get(key, 'none')}"
                )
        return index


def _offloaded(key: str, index: OffloadIndex, ledger: OffloadedLedger) -> _Offloaded:
    if ledger.last_entry is None:
        raise DecodeError("the metadata has no last entry")
    if ledger.last_entry >= index.data_size // ENTRY_HEADER.size + (_first_entry(ledger) or 0):
        raise DecodeError(f"the metadata claims {ledger.last_entry + 1} entries in {index.data_size} bytes")
    return _Offloaded(key, ledger, ledger.last_entry)


def _first_entry(ledger: OffloadedLedger) -> int | None:
    return ledger.blocks[0].first_entry if ledger.blocks else None
