"""The entries of a ledger as columns, from any source. Needs NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import Column, decode_row
from pulsar_meta.codecs.columns.entries import decode_entry_columns
from pulsar_meta.codecs.columns.words import Positions, WordReader
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each

# Entries that come one by one are gathered until there are so many, or so many bytes of them.
ENTRIES_AT_ONCE: Final = 8192
BYTES_AT_ONCE: Final = 64 << 20

Columns = dict[str, Column]


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
    """Yield the wanted columns of a ledger's entries within [first, last], some rows at a time.

    `ledger_id` and `entry_id` are always among them. Rows of one yield are in order; where several disks
    hold a ledger the yields are not. A record that is not the entry that it should be has `broken` true
    and nothing more. Raises what the source raises.
    """
    wanted = tuple(dict.fromkeys(("ledger_id", "entry_id", *columns)))
    reading = _Reading(source, ledger_id, wanted, digest_type, verify)
    located = source.located(ledger_id, first, last)
    if located is not None:
        for files, table in located:
            entry_ids = np.frombuffer(table.entry_ids, np.int64)
            locations = np.frombuffer(table.locations, np.int64)
            for number in np.unique(locations >> 32).tolist():
                here = locations >> 32 == number
                columns = reading.located(files.view(number), entry_ids[here], locations[here])
                files.check(number)
                yield columns
        return
    for entries in _gathered(_entries(source, ledger_id, first, last)):
        yield reading.gathered(entries)


@dataclass(frozen=True, slots=True)
class _Reading:
    source: EntrySource
    ledger_id: int
    wanted: tuple[str, ...]
    digest_type: DigestType | None
    verify: bool

    def located(self, view: memoryview, entry_ids: Positions, locations: Positions) -> Columns:
        """Return the columns of entries that lie in one file."""
        offsets = locations & 0xFFFFFFFF
        within = (offsets >= 4) & (offsets <= len(view) - 8)
        offsets = np.where(within, offsets, 0)
        sizes = np.zeros(len(offsets), np.int64)
        if within.any():
            sizes[within] = WordReader(view).sizes(offsets[within] - 4)
        fits = within & (sizes > 0) & (offsets + sizes <= len(view))
        columns = self._decode(view, offsets, np.where(fits, sizes, 0), bookie=True)
        right = fits & (columns["ledger_id"].values == self.ledger_id)
        right &= columns["entry_id"].values == entry_ids
        return columns if right.all() else self._reread(columns, entry_ids, np.flatnonzero(~right).tolist())

    def gathered(self, entries: list[RawEntry]) -> Columns:
        """Return the columns of entries that came one by one, all of the same form."""
        sizes = np.array([len(entry.data) for entry in entries], np.int64)
        offsets = np.cumsum(sizes) - sizes
        data = b"".join(entry.data for entry in entries)
        columns = self._decode(data, offsets, sizes, bookie=entries[0].bookie)
        every = np.ones(len(entries), bool)
        entry_ids = np.array([entry.entry_id for entry in entries], np.int64)
        columns["ledger_id"] = Column(np.full(len(entries), self.ledger_id), every)
        columns["entry_id"] = Column(entry_ids, every)
        return columns

    def _decode(self, data: Buffer, offsets: Positions, sizes: Positions, *, bookie: bool) -> Columns:
        return decode_entry_columns(
            data, offsets, sizes, self.wanted, bookie=bookie, digest_type=self.digest_type, verify=self.verify
        )

    def _reread(self, columns: Columns, entry_ids: Positions, rows: list[int]) -> Columns:
        """Take rows where another entry lies, or none, from wherever else the source has it."""
        read = [self._row(int(entry_ids[row])) for row in rows]
        return {
            name: column.with_values(rows, [row[name] for row in read]) for name, column in columns.items()
        }

    def _row(self, entry_id: int) -> dict[str, int | bool | str | None]:
        row = decode_row(memoryview(b""))
        try:
            entry = self.source.read(self.ledger_id, entry_id)
        except (DecodeError, NotFoundError):
            pass
        else:
            row = decode_row(
                memoryview(entry.data), bookie=entry.bookie, digest_type=self.digest_type, verify=self.verify
            )
        return row | {"ledger_id": self.ledger_id, "entry_id": entry_id}


def _entries(source: EntrySource, ledger_id: int, first: int, last: int | None) -> Iterator[RawEntry]:
    """Yield the entries that are there; one that is broken wherever it is comes without bytes."""
    for entry_id, outcome in read_each(source, ledger_id, first, last):
        if isinstance(outcome, RawEntry):
            yield outcome
        elif isinstance(outcome, DecodeError):
            yield RawEntry(ledger_id, entry_id, b"")


def _gathered(entries: Iterable[RawEntry]) -> Iterator[list[RawEntry]]:
    """Yield entries in lists, each of one form and not too large."""
    held: list[RawEntry] = []
    size = 0
    for entry in entries:
        full = len(held) >= ENTRIES_AT_ONCE or size >= BYTES_AT_ONCE
        if held and (full or entry.bookie != held[0].bookie):
            yield held
            held, size = [], 0
        held.append(entry)
        size += len(entry.data)
    if held:
        yield held
