"""Locations found by reading entry logs or journals from end to end."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pulsar_meta.codecs.bookie_files.entry_log import Damage, Record, decode_log_header
from pulsar_meta.codecs.bookie_files.journal import is_entry, journal_records
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import LedgerLocations, TableLocations

if TYPE_CHECKING:
    from pulsar_meta.codecs.columns.records import RecordOffsets

Report = Callable[[DecodeError], None]


def scan_entry_logs(files: DataFiles, report: Report) -> TableLocations:
    """Return where every entry of the logs lies, newer logs counting; `report` gets what is damaged.

    A torn last record is no damage, a bookie was killed while it wrote; nor is a log of zeros, made ahead.
    """
    from pulsar_meta.codecs.columns.records import find_records

    found = TableLocations()
    for number in files.paths:
        view = files.view(number)
        try:
            if any(view[:4]):
                decode_log_header(view)
        except DecodeError as error:
            report(error.within(files.name(number)))
        places = find_records(view)
        files.check(number)
        for more, ascending in _by_ledger(places, number):
            found.extend(more, ascending=ascending)
        for damage in places.damage:
            if damage.end < len(view):
                report(_damaged(damage, files.name(number)))
    return found


def _by_ledger(places: RecordOffsets, number: int) -> Iterator[tuple[LedgerLocations, bool]]:
    """Yield the records of file `number` ledger by ledger, and whether their entries ascend."""
    import numpy as np

    order = np.argsort(places.ledgers, kind="stable")
    ends = np.flatnonzero(np.diff(places.ledgers[order])) + 1
    for rows in np.split(order, ends) if order.size else ():
        here = places.entry_ids[rows]
        locations = places.offsets[rows] | number << 32
        more = LedgerLocations(
            int(places.ledgers[rows[0]]), array("q", here.tobytes()), array("q", locations.tobytes())
        )
        yield more, bool((np.diff(here) > 0).all())


def scan_journals(files: DataFiles, start: int, report: Report) -> TableLocations:
    """Return where the entries lie that journals hold, in the first of them those that end after `start`."""
    found = TableLocations()
    for number in files.paths:
        try:
            for record in _entries_after(journal_records(files.view(number)), start):
                found.add(record.ledger_id, record.entry_id, number << 32 | record.offset)
            files.check(number)
        except DecodeError as error:
            files.check(number)
            report(error.within(files.name(number)))
        start = 0
    return found


def _entries_after(records: Iterable[Record], start: int) -> Iterable[Record]:
    # A mark need not stand at a record's first byte; what ends after it was not flushed for sure.
    return (record for record in records if is_entry(record) and record.offset + record.size > start)


def _damaged(damage: Damage, source: str) -> DecodeError:
    size = damage.end - damage.offset
    return DecodeError(
        f"expected a record, found {size} bytes that are none", offset=damage.offset, source=source
    )
