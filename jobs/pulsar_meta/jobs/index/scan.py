"""What the indexes of a ledger's entries come to, found in columns. Needs NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import Column, join_columns
from pulsar_meta.codecs.columns.words import Positions, Rows
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.topics.placement import Placement, placement
from pulsar_meta.jobs.topics.topic import Ledger

COLUMNS: Final = ("first_index", "last_index", "broken")
# So many places of each kind of fault are named, the rest is counted.
NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Break:
    """Where an entry's indexes do not go on from those before: `expected` is what would have."""

    kind: str
    entry_id: int
    expected: int
    first_index: int
    last_index: int


@dataclass(frozen=True, slots=True)
class LedgerScan:
    """The indexes of one ledger. `entry_zero_index` is the first index of entry 0, where that has one.

    `head` is the first entry that has an index, `last_index` the last of the ledger; None where none has.
    Of breaks, unindexed and broken entries at most NAMED are named. `elsewhere` counts entries that only
    bookies have whose disks were not given.
    """

    ledger_id: int
    entries: int = 0
    first_entry: int | None = None
    last_entry: int | None = None
    entry_zero_index: int | None = None
    head: Break | None = None
    last_index: int | None = None
    without_index: int = 0
    broken: int = 0
    missing: int = 0
    elsewhere: int = 0
    breaks: tuple[Break, ...] = ()
    gaps: int = 0
    overlaps: int = 0
    steps_back: int = 0
    unindexed: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()


GAP: Final = "gap"
OVERLAP: Final = "overlap"
STEP_BACK: Final = "step-back"


def scan_ledger(source: EntrySource, ledger: Ledger) -> LedgerScan:
    """Read all headers of a ledger that `source` has.

    Raises UnreachableError from the source; entries that cannot be read are counted.
    """
    ledger_id, entries, placed = ledger.ledger_id, ledger.entries, placement(ledger, source)
    last = None if entries is None else entries - 1
    parts = list(read_columns(source, ledger_id, COLUMNS, 0, last))
    if not parts:
        missing = placed.count(0, (entries or 0) - 1)
        return LedgerScan(ledger_id, missing=missing, elsewhere=placed.elsewhere(0, (entries or 0) - 1))
    columns = {name: join_columns([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(columns["entry_id"].values, kind="stable")
    if (np.diff(order) < 0).any():
        columns = {name: _ordered(column, order) for name, column in columns.items()}
    return examine_columns(ledger_id, columns, entries, placed)


def examine_columns(
    ledger_id: int, columns: dict[str, Column], entries: int | None, placed: Placement
) -> LedgerScan:
    """Return what the columns of a ledger's entries, in order, come to."""
    ids, broken = columns["entry_id"].values, columns["broken"].values.astype(bool)
    has_index: Rows = columns["last_index"].present & ~broken
    without = ~has_index & ~broken
    rows = np.flatnonzero(has_index)
    first, last = columns["first_index"].values[rows], columns["last_index"].values[rows]
    expected = last[:-1] + 1
    wrong = np.flatnonzero((first[1:] != expected) & _neighbours(ids, broken, rows)) + 1
    kinds = _kinds(first[wrong], last[wrong], expected[wrong - 1])
    found = _breaks(kinds, ids[rows[wrong]], expected[wrong - 1], first[wrong], last[wrong])
    length = int(ids[-1]) + 1 if entries is None else entries
    missing = max(0, placed.count(0, length - 1) - placed.count_of(ids))
    head = Break("", int(ids[rows[0]]), 0, int(first[0]), int(last[0])) if rows.size else None
    return LedgerScan(
        ledger_id,
        entries=len(ids),
        first_entry=int(ids[0]),
        last_entry=int(ids[-1]),
        entry_zero_index=head.first_index if head is not None and head.entry_id == 0 else None,
        head=head,
        last_index=int(last[-1]) if rows.size else None,
        without_index=int(without.sum()),
        broken=int(broken.sum()),
        missing=missing,
        elsewhere=max(0, placed.elsewhere(0, length - 1) - (len(ids) - placed.count_of(ids))),
        breaks=tuple(found),
        gaps=kinds.count(GAP),
        overlaps=kinds.count(OVERLAP),
        steps_back=kinds.count(STEP_BACK),
        unindexed=tuple(ids[without][:NAMED].tolist()),
        unreadable=tuple(ids[broken][:NAMED].tolist()),
    )


def _neighbours(ids: Positions, broken: Rows, rows: Positions) -> Rows:
    """Return for each two of `rows` that follow each other whether nothing between them is lost."""
    unreadable = np.cumsum(broken)[rows]
    whole: Rows = np.diff(ids[rows]) == np.diff(rows)
    readable: Rows = np.diff(unreadable) == 0
    return whole & readable


def kind_of_break(first: int, last: int, expected: int) -> str | None:
    """Return how an entry's indexes [first, last] break off from `expected`, None where they go on."""
    if first == expected:
        return None
    if first > expected:
        return GAP
    # The last index before is expected - 1: one that ends after it shares some, else it went back.
    return OVERLAP if last >= expected else STEP_BACK


def _kinds(first: Positions, last: Positions, expected: Positions) -> list[str]:
    kinds = np.where(first > expected, 0, np.where(last >= expected, 1, 2))
    return [(GAP, OVERLAP, STEP_BACK)[kind] for kind in kinds.tolist()]


def _breaks(
    kinds: list[str], ids: Positions, expected: Positions, first: Positions, last: Positions
) -> Iterator[Break]:
    named = dict.fromkeys((GAP, OVERLAP, STEP_BACK), 0)
    for at, kind in enumerate(kinds):
        if named[kind] < NAMED:
            named[kind] += 1
            yield Break(kind, int(ids[at]), int(expected[at]), int(first[at]), int(last[at]))


def _ordered(column: Column, order: Positions) -> Column:
    return Column(column.values[order], column.present[order], column.names)
