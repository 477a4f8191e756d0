"""Read entries of one ledger from any source, thousands at a time.

`read_blocks` yields the bytes of entries with their headers decoded together. `read_columns` yields selected
headers as columns. All code that shows, checks or counts many entries uses them. Needs NumPy; only Arrow
batches need PyArrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pulsar_meta.codecs.columns.entries import Column, Row, columns_of, decode_row, reader_for
from pulsar_meta.codecs.columns.headers import PADDING, EntryHeaders, HeaderReader
from pulsar_meta.codecs.columns.words import Positions, Rows, WordReader
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import Located

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE: Final = 32768
BYTES_AT_ONCE: Final = 64 << 20
# Fewer rows for columns, because the data then stays in the processor's cache.
COLUMN_ROWS_AT_ONCE: Final = 8192
# Bytes between entries are copied with them if there are fewer than the entries' bytes divided by this.
SPARSE: Final = 2

TOPIC: Final = "topic"

Columns = dict[str, Column]


@dataclass(frozen=True, slots=True)
class Block:
    """At least one entry of one ledger, in order. `data` has them at `offsets`, with `sizes` bytes each.

    Rows that are `placed` contain the entry with that id according to its header. Rows that are `whole` were
    decoded: their data begins after `data_at` bytes, and their digests are right if the reader verifies. All
    other rows must be read one by one. `headers` is None if only digests were verified.
    """

    ledger_id: int
    entry_ids: Positions
    data: Buffer
    offsets: Positions
    sizes: Positions
    placed: Rows
    whole: Rows
    data_at: int
    headers: EntryHeaders | None


def read_blocks(
    source: EntrySource,
    ledger_id: int,
    first: int,
    last: int,
    reader: HeaderReader,
    *,
    with_headers: bool = True,
    rows: int | None = None,
) -> Iterator[Block]:
    """Yield the entries in [first, last] of a source that has them in files, in order.

    Unless `with_headers`, only digests are verified. `rows` is the maximum number of entries in a block.
    """
    rows = rows or ROWS_AT_ONCE
    at, width = first, rows
    while at <= last:
        stop, count = min(last, at + width - 1), 0
        for block in _blocks(source, ledger_id, at, stop, reader, rows, with_headers=with_headers):
            count += len(block.entry_ids)
            yield block
        # If ids are far apart, the next range of ids is wider.
        width = 2 * width if count < rows // 2 else max(rows, width // 2)
        at = stop + 1


def read_columns(
    source: EntrySource,
    ledger_id: int,
    columns: Iterable[str],
    first: int = 0,
    last: int | None = None,
    *,
    digest_type: DigestType | None = None,
    verify: bool = False,
) -> Iterator[Columns]:
    """Yield columns of a ledger's entries in [first, last], in order, some thousand rows at a time.

    `ledger_id` and `entry_id` are always included. If a record is not the expected entry, `broken` is True
    and all other columns are empty. Raises UsageError for unknown columns, and the errors of the source.
    """
    names = tuple(dict.fromkeys(("ledger_id", "entry_id", *columns)))
    reading = _ColumnReading(source, ledger_id, names, digest_type, verify)
    if source.located(ledger_id, first, first) is None:
        yield from map(reading.of_entries, _gathered(_entries(source, ledger_id, first, last)))
        return
    newest = source.last_entry(ledger_id)
    if newest is not None:
        last = newest if last is None else min(last, newest)
        reader = reader_for(names, digest_type=digest_type, verify=verify)
        blocks = read_blocks(source, ledger_id, first, last, reader, rows=COLUMN_ROWS_AT_ONCE)
        yield from map(reading.of_block, blocks)


def record_batch(columns: Columns, names: Sequence[str], topic: str | None) -> pa.RecordBatch:
    """Convert some of ENTRY_COLUMNS to an Arrow batch. `topic` fills the column of that name."""
    import pyarrow as pa

    rows = len(columns["entry_id"].present)
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), rows) if name == TOPIC else arrow_array(columns[name])
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def arrow_array(column: Column) -> pa.Array:
    """Convert a column to an Arrow array, null in rows without a value."""
    import pyarrow as pa

    absent = None if column.present.all() else ~column.present
    if column.names is not None:
        return pa.array(column.names, pa.string()).take(pa.array(column.values, pa.int64(), mask=absent))
    return pa.array(column.values, mask=absent)


@dataclass(frozen=True, slots=True)
class _ColumnReading:
    source: EntrySource
    ledger_id: int
    names: tuple[str, ...]
    digest_type: DigestType | None
    verify: bool

    def of_block(self, block: Block) -> Columns:
        """The columns of a block. Records that are not in their place may have another copy."""
        view = memoryview(block.data)

        def row(at: int) -> Row:
            entry_id = int(block.entry_ids[at])
            if not block.placed[at]:
                return self._from_source(entry_id)
            start = int(block.offsets[at])
            return self._row(entry_id, view[start : start + int(block.sizes[at])], bookie=True)

        assert block.headers is not None
        return columns_of(block.headers, self.names, block.whole, row)

    def of_entries(self, entries: list[RawEntry]) -> Columns:
        """The columns of entries that were read one by one, all of the same form."""
        sizes = np.array([len(entry.data) for entry in entries], np.int64)
        data = b"".join([*(entry.data for entry in entries), bytes(PADDING)])
        bookie = entries[0].bookie
        reader = reader_for(self.names, bookie=bookie, digest_type=self.digest_type, verify=self.verify)
        headers = reader.read(data, np.cumsum(sizes) - sizes, sizes)

        def row(at: int) -> Row:
            return self._row(entries[at].entry_id, memoryview(entries[at].data), bookie=bookie)

        columns = columns_of(headers, self.names, headers.whole, row)
        entry_ids = np.array([entry.entry_id for entry in entries], np.int64)
        columns["ledger_id"] = Column(np.full(len(entries), self.ledger_id), headers.every)
        columns["entry_id"] = Column(entry_ids, headers.every)
        return columns

    def _from_source(self, entry_id: int) -> Row:
        try:
            entry = self.source.read(self.ledger_id, entry_id)
        except (DecodeError, NotFoundError):
            return self._row(entry_id, memoryview(b""), bookie=True)
        return self._row(entry_id, memoryview(entry.data), bookie=entry.bookie)

    def _row(self, entry_id: int, data: memoryview, *, bookie: bool) -> Row:
        row = decode_row(data, bookie=bookie, digest_type=self.digest_type, verify=self.verify)
        return row | {"ledger_id": self.ledger_id, "entry_id": entry_id}


def _entries(source: EntrySource, ledger_id: int, first: int, last: int | None) -> Iterator[RawEntry]:
    """Yield the entries of a source. An entry without a readable copy has no bytes."""
    for entry_id, outcome in read_each(source, ledger_id, first, last):
        if isinstance(outcome, RawEntry):
            yield outcome
        elif isinstance(outcome, DecodeError):
            yield RawEntry(ledger_id, entry_id, b"")


def _gathered(entries: Iterable[RawEntry]) -> Iterator[list[RawEntry]]:
    """Group entries into lists of one form and limited size."""
    pending: list[RawEntry] = []
    size = 0
    for entry in entries:
        full = len(pending) >= COLUMN_ROWS_AT_ONCE or size >= BYTES_AT_ONCE
        if pending and (full or entry.bookie != pending[0].bookie):
            yield pending
            pending, size = [], 0
        pending.append(entry)
        size += len(entry.data)
    if pending:
        yield pending


def _blocks(
    source: EntrySource,
    ledger_id: int,
    first: int,
    last: int,
    reader: HeaderReader,
    most: int,
    *,
    with_headers: bool,
) -> Iterator[Block]:
    """Yield the entries in [first, last], in order, at most `most` in a block."""
    parts = [part for part in source.located(ledger_id, first, last) or () if part[1].entry_ids]
    if not parts:
        return
    entry_ids = np.concatenate([np.frombuffer(table.entry_ids, np.int64) for _, table in parts])
    locations = np.concatenate([np.frombuffer(table.locations, np.int64) for _, table in parts])
    owners = np.repeat(np.arange(len(parts)), [len(table.entry_ids) for _, table in parts])
    if len(parts) > 1:
        order = np.argsort(entry_ids, kind="stable")
        entry_ids, locations, owners = entry_ids[order], locations[order], owners[order]
    for start in range(0, len(entry_ids), most):
        rows = slice(start, start + most)
        files = _Files(parts, owners[rows], locations[rows])
        for part in bounded(files.sizes):
            data, offsets, sizes = files.lent(part)
            ids = entry_ids[rows][part]
            if with_headers:
                headers = reader.read(data, offsets, sizes)
                # The bytes at a location may be those of another entry.
                whole = headers.whole & (headers.header(0) == ledger_id) & (headers.header(8) == ids)
            else:
                headers, whole = None, reader.digests_fit(data, offsets, sizes)
            placed = whole
            if headers is None or not whole.all():
                placed = _placed(data, offsets, sizes, ledger_id, ids)
            placed = placed & files.readable(part)
            yield Block(ledger_id, ids, data, offsets, sizes, placed, whole & placed, reader.data_at, headers)


def _placed(data: Buffer, offsets: Positions, sizes: Positions, ledger_id: int, entry_ids: Positions) -> Rows:
    """Find the records whose headers have the ids of the expected entries."""
    placed: Rows = (sizes >= 16) & (offsets + 16 <= memoryview(data).nbytes)
    words, places = WordReader(data), offsets[placed]
    if placed.any():
        placed[placed] = words.big_endian(places) == ledger_id
        places = offsets[placed]
        placed[placed] = words.big_endian(places + 8) == entry_ids[placed]
    return placed


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring rows whose entries are in the same file."""

    files: DataFiles
    number: int
    rows: slice

    def within(self, rows: slice) -> slice:
        """The part of this run in `rows`, relative to their start."""
        return slice(
            max(self.rows.start, rows.start) - rows.start, min(self.rows.stop, rows.stop) - rows.start
        )


class _Files:
    """The files that contain some entries. Entries whose records can't be read have size 0."""

    def __init__(self, parts: Sequence[Located], owners: Positions, locations: Positions) -> None:
        self._offsets = locations & 0xFFFFFFFF
        self.sizes: Positions = np.zeros(len(locations), np.int64)
        numbers = locations >> 32
        changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(owners) != 0)) + 1
        self._runs = [
            _Run(parts[int(owners[start])][0], int(numbers[start]), slice(start, end))
            for start, end in pairwise([0, *changes.tolist(), len(locations)])
        ]
        for run in self._runs:
            with suppress(DecodeError, UnreachableError):
                self._measure(run.files.view(run.number), run.rows)

    def lent(self, rows: slice) -> tuple[Buffer, Positions, Positions]:
        """The bytes that contain some rows, with the offset and size of each entry in them.

        The bytes are a mapped file if one file contains all rows, and most of them have PADDING bytes after
        them; otherwise a copy with PADDING at its end.
        """
        offsets, sizes = self._offsets[rows].copy(), self.sizes[rows].copy()
        offsets[sizes == 0] = 0
        runs = [(run, part) for run, part in self._within(rows) if sizes[part].any()]
        if len(runs) == 1:
            view = runs[0][0].files.view(runs[0][0].number)
            if 2 * np.count_nonzero(offsets + sizes + PADDING <= len(view)) > len(sizes):
                return view, offsets, sizes
        pieces: list[bytes] = []
        length = 0
        for run, part in runs:
            pieces.append(_copied(run.files.view(run.number), offsets[part], sizes[part]))
            offsets[part] += length
            length += len(pieces[-1])
        offsets[sizes == 0] = 0
        return b"".join([*pieces, bytes(PADDING)]), offsets, sizes

    def readable(self, rows: slice) -> Rows:
        """Find the rows whose bytes could be read completely. Call it after the bytes were read."""
        readable = np.ones(rows.stop - rows.start, bool)
        for run, part in self._within(rows):
            try:
                run.files.check(run.number)
            except (DecodeError, UnreachableError):
                readable[part] = False
        return readable

    def _within(self, rows: slice) -> Iterator[tuple[_Run, slice]]:
        """Yield the runs with some of the rows, each with its part of these rows."""
        for run in self._runs:
            part = run.within(rows)
            if part.start < part.stop:
                yield run, part

    def _measure(self, view: memoryview, rows: slice) -> None:
        """Read the sizes before some entries. Impossible sizes are left at 0."""
        offsets = self._offsets[rows]
        within = np.flatnonzero((offsets >= 4) & (offsets <= len(view) - 8))
        sizes = np.zeros(len(offsets), np.int64)
        sizes[within] = WordReader(view).sizes(offsets[within] - 4)
        self.sizes[rows] = np.where((sizes > 0) & (offsets + sizes <= len(view)), sizes, 0)


def bounded(sizes: Positions) -> Iterator[slice]:
    """Yield slices of rows with at most BYTES_AT_ONCE bytes in total, and at least one row each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BYTES_AT_ONCE, "right")))
        yield slice(start, end)
        start = end


def _copied(view: memoryview, offsets: Positions, sizes: Positions) -> bytes:
    """Copy some entries, and set `offsets` to their places in the copy.

    Neighbours are copied in one piece, together with the bytes between them.
    """
    present = sizes > 0
    first, last = int(offsets[present].min()), int((offsets + sizes)[present].max())
    total = int(sizes.sum())
    if last - first <= total + total // SPARSE:
        offsets -= first
        return bytes(view[first:last])
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    data = b"".join([view[at : at + size] for at, size in places])
    offsets[:] = np.cumsum(sizes) - sizes
    return data
