"""Entries in a directory's entry logs to which its index does not lead, because the index lost them.

A bookie that deletes a ledger removes it from the index and from the states, and its entries stay in the logs
until compaction. So entries of a ledger that neither of them knows are not missing in the index.

Source: apache/bookkeeper bookie/storage/ldb/SingleDirectoryDbLedgerStorage.java.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cache

import numpy as np

from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.bookie_disk import LocatedEntries
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import (
    LedgerLocations,
    LocationIndex,
    TableLocations,
    has_records,
    records_by_ledger,
)


class CompletedLocations(LocationIndex):
    """An index with the locations that it lacks, which are used instead of its own."""

    def __init__(self, index: LocationIndex, lacking: TableLocations) -> None:
        self._index, self._lacking = index, lacking

    def ledgers(self) -> list[int]:
        """List all ledgers, sorted."""
        return sorted({*self._index.ledgers(), *self._lacking.ledgers()})

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""
        location = self._lacking.location(ledger_id, entry_id)
        return self._index.location(ledger_id, entry_id) if location is None else location

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        indexed, lacking = (each.ledger(ledger_id, first, last) for each in (self._index, self._lacking))
        if not lacking.entry_ids:
            return indexed
        places = dict(zip(indexed.entry_ids, indexed.locations, strict=True))
        places |= dict(zip(lacking.entry_ids, lacking.locations, strict=True))
        entry_ids = array("q", sorted(places))
        return LedgerLocations(ledger_id, entry_ids, array("q", map(places.__getitem__, entry_ids)))

    def close(self) -> None:
        """Close files. Can be called twice."""
        self._index.close()


def complete_index(part: LocatedEntries) -> int:
    """Add the entries that a directory's index lacks, and return their number. Reads all entry logs.

    Raises UnreachableError.
    """
    if part.entry_logs is None or part.index_fault is not None:
        return 0
    count, lacking = 0, TableLocations()
    for more in _unindexed(part):
        lacking.extend(more, ascending=False)
        count += len(more.entry_ids)
    if count and part.index_fault is None:
        part.index = CompletedLocations(part.index, lacking)
        directories, ledgers = ", ".join(map(str, part.files.directories)), len(lacking.ledgers())
        part.notes.append(
            f"reading {count} entries of {ledgers} ledgers to which the index of {directories} does not lead"
        )
    return count


def _unindexed(part: LocatedEntries) -> Iterator[LedgerLocations]:
    is_known = cache(lambda ledger_id: _is_known(part, ledger_id))
    for number in part.files.paths:
        try:
            records = find_records(part.files.view(number))
            part.files.check(number)
        except DecodeError:
            # The entries that the index places in this file are reported.
            continue
        for found, _ in records_by_ledger(records, number):
            lacking = _lacking(part, found) if is_known(found.ledger_id) else None
            if lacking is not None and lacking.entry_ids:
                yield lacking


def _is_known(part: LocatedEntries, ledger_id: int) -> bool:
    """Return True unless the bookie has deleted the ledger."""
    try:
        # Without states, nothing tells a deleted ledger from a lost one.
        part.ledgers_without_state()
        return part.last_entry(ledger_id) is not None or part.ledger_state(ledger_id) is not None
    except DecodeError:
        return True


def _lacking(part: LocatedEntries, found: LedgerLocations) -> LedgerLocations:
    """Return the entries that the index does not have, or places where there are other bytes."""
    first, last = min(found.entry_ids), max(found.entry_ids)
    indexed = next((table for _, table in part.located(found.ledger_id, first, last) or ()), None)
    good = set[int]() if indexed is None else _good(part.files, indexed, found)
    rows = [row for row, entry_id in enumerate(found.entry_ids) if entry_id not in good]
    return found.rows(np.array(rows, np.int64))


def _good(files: DataFiles, indexed: LedgerLocations, found: LedgerLocations) -> set[int]:
    """Return the entries to which the index leads."""
    places = set(zip(found.entry_ids, found.locations, strict=True))
    pairs = list(zip(indexed.entry_ids, indexed.locations, strict=True))
    good = {entry_id for entry_id, location in pairs if (entry_id, location) in places}
    elsewhere = [row for row, (entry_id, _) in enumerate(pairs) if entry_id not in good]
    numbers = {pairs[row][1] >> 32 for row in elsewhere}
    for number in sorted(numbers & files.paths.keys()):
        rows = indexed.rows(np.array([row for row in elsewhere if pairs[row][1] >> 32 == number], np.int64))
        try:
            there = has_records(files, number, rows)
        except DecodeError:
            continue
        good |= {entry_id for entry_id, is_there in zip(rows.entry_ids, there, strict=True) if is_there}
    return good
