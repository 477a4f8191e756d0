"""Entries in a directory's entry logs to which its index does not lead, because the index lost them.

A bookie that deletes a ledger removes it from the index and from the states, and its entries stay in the logs
until compaction. So entries of a ledger that neither of them knows are not missing in the index.

Source: apache/bookkeeper bookie/storage/ldb/SingleDirectoryDbLedgerStorage.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import numpy as np
from numpy.typing import NDArray

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
    """An index together with locations that it lacks, which come first if both have an entry."""

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
        both = LedgerLocations(
            ledger_id, lacking.entry_ids + indexed.entry_ids, lacking.locations + indexed.locations
        )
        _, first_rows = np.unique(np.frombuffer(both.entry_ids, np.int64), return_index=True)
        return both.rows(first_rows)

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
    """Return the entries that the index lacks or places where the log has other bytes."""
    entry_ids = np.frombuffer(found.entry_ids, np.int64)
    located = part.located(found.ledger_id, int(entry_ids.min()), int(entry_ids.max())) or ()
    indexed = next((table for _, table in located), None)
    good = _good(part.files, indexed, found) if indexed is not None and indexed.entry_ids else entry_ids[:0]
    return found.rows(np.flatnonzero(~np.isin(entry_ids, good)))


def _good(files: DataFiles, indexed: LedgerLocations, found: LedgerLocations) -> NDArray[np.int64]:
    """Return the ids of the entries to which the index leads."""
    entry_ids, locations = (np.frombuffer(each, np.int64) for each in (indexed.entry_ids, indexed.locations))
    found_ids, found_at = (np.frombuffer(each, np.int64) for each in (found.entry_ids, found.locations))
    row = np.searchsorted(entry_ids[:-1], found_ids)
    good = [found_ids[(entry_ids[row] == found_ids) & (locations[row] == found_at)]]
    elsewhere = np.flatnonzero(~np.isin(entry_ids, good[0]))
    numbers = locations[elsewhere] >> 32
    for number in files.paths.keys() & set(np.unique(numbers).tolist()):
        rows = indexed.rows(elsewhere[numbers == number])
        with suppress(DecodeError):
            there = has_records(files, number, rows)
            good.append(np.frombuffer(rows.entry_ids, np.int64)[there])
    return np.concatenate(good)
