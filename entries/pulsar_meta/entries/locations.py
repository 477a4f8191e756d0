"""Locations of entries: columns, the index files of interleaved storage, and a scan without an index.

A location is BookKeeper's: (file number << 32) | offset, the offset past the record's size. Columns are
`array`
objects, which NumPy uses without a copy (`numpy.frombuffer(column, "int64")`).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pulsar_meta.access.mapped import MappedFile
from pulsar_meta.codecs.bookie_files.entry_log import (
    Damage,
    IndexHeader,
    Record,
    decode_index_header,
    decode_log_header,
    location_of,
    locations,
)
from pulsar_meta.codecs.bookie_files.journal import is_entry, journal_records
from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.entries.data_files import DataFiles

if TYPE_CHECKING:
    from pulsar_meta.codecs.columns.records import RecordOffsets


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class LedgerLocations:
    """The entries of one ledger in ascending order, and the location of each."""

    ledger_id: int
    entry_ids: array[int] = field(default_factory=lambda: array("q"))
    locations: array[int] = field(default_factory=lambda: array("q"))

    def between(self, first: int, last: int | None) -> LedgerLocations:
        """Return the entries within [first, last]."""
        start = bisect_left(self.entry_ids, first)
        end = len(self.entry_ids) if last is None else bisect_right(self.entry_ids, last)
        return LedgerLocations(self.ledger_id, self.entry_ids[start:end], self.locations[start:end])

    def without(self, others: array[int]) -> LedgerLocations:
        """Return what is left when the entries `others`, in ascending order, are taken away."""
        import numpy as np

        if not others or self.entry_ids[-1:] < others[:1] or others[-1:] < self.entry_ids[:1]:
            return self
        here, there = np.frombuffer(self.entry_ids, np.int64), np.frombuffer(others, np.int64)
        kept = there[np.searchsorted(there[:-1], here)] != here
        locations = np.frombuffer(self.locations, np.int64)
        return LedgerLocations(
            self.ledger_id, array("q", here[kept].tobytes()), array("q", locations[kept].tobytes())
        )

    def location(self, entry_id: int) -> int | None:
        """Return the location of one entry, None where it is not here."""
        at = bisect_left(self.entry_ids, entry_id)
        found = at < len(self.entry_ids) and self.entry_ids[at] == entry_id
        return self.locations[at] if found else None


class LocationIndex(Protocol):
    """Knows where entries lie. Every method may raise DecodeError: the index is broken."""

    def ledgers(self) -> list[int]:
        """Return all ledgers in ascending order."""
        ...

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger, None where it has none."""
        ...

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return where one entry lies, None where it is not known."""
        ...

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        ...

    def close(self) -> None:
        """Let go of files. Safe to call twice."""
        ...


class TableLocations:
    """Locations gathered in the order in which they are found; of two for one entry the later counts."""

    def __init__(self) -> None:
        self._tables: dict[int, LedgerLocations] = {}
        self._unsorted: set[int] = set()

    def add(self, ledger_id: int, entry_id: int, location: int) -> None:
        """Note one entry."""
        table = self._tables.get(ledger_id)
        if table is None:
            table = self._tables[ledger_id] = LedgerLocations(ledger_id)
        elif table.entry_ids[-1] >= entry_id:
            self._unsorted.add(ledger_id)
        table.entry_ids.append(entry_id)
        table.locations.append(location)

    def extend(self, more: LedgerLocations, *, ascending: bool) -> None:
        """Note entries of one ledger, at least one; `ascending`: each comes after the one before."""
        table = self._tables.setdefault(more.ledger_id, LedgerLocations(more.ledger_id))
        if not ascending or (table.entry_ids and table.entry_ids[-1] >= more.entry_ids[0]):
            self._unsorted.add(more.ledger_id)
        table.entry_ids.extend(more.entry_ids)
        table.locations.extend(more.locations)

    def ledgers(self) -> list[int]:
        """Return all ledgers in ascending order."""
        return sorted(self._tables)

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger."""
        table = self._sorted(ledger_id)
        return table.entry_ids[-1] if table.entry_ids else None

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return where one entry lies."""
        return self._sorted(ledger_id).location(entry_id)

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        return self._sorted(ledger_id).between(first, last)

    def close(self) -> None:
        """Nothing is open."""

    def _sorted(self, ledger_id: int) -> LedgerLocations:
        table = self._tables.get(ledger_id, LedgerLocations(ledger_id))
        if ledger_id in self._unsorted:
            latest = dict(zip(table.entry_ids, table.locations, strict=True))
            entry_ids = array("q", sorted(latest))
            places = array("q", (latest[entry_id] for entry_id in entry_ids))
            table = self._tables[ledger_id] = LedgerLocations(ledger_id, entry_ids, places)
            self._unsorted.discard(ledger_id)
        return table


class FallbackLocations:
    """An index, and another to be made when the first turns out to be broken."""

    def __init__(
        self,
        index: Callable[[], LocationIndex],
        fallback: Callable[[], LocationIndex],
        report: Callable[[DecodeError], None],
    ) -> None:
        """`report` is called once with what is wrong, if the first index cannot be used."""
        self._fallback: Callable[[], LocationIndex] | None = fallback
        self._report = report
        try:
            self._index = index()
        except DecodeError as error:
            self._give_up(error)

    def ledgers(self) -> list[int]:
        """Return all ledgers in ascending order."""
        return self._ask(lambda index: index.ledgers())

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger."""
        return self._ask(lambda index: index.last_entry(ledger_id))

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return where one entry lies."""
        return self._ask(lambda index: index.location(ledger_id, entry_id))

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        return self._ask(lambda index: index.ledger(ledger_id, first, last))

    def close(self) -> None:
        """Close the index in use."""
        self._index.close()

    def _ask(self, question: Callable[[LocationIndex], Answer]) -> Answer:
        try:
            return question(self._index)
        except DecodeError as error:
            if self._fallback is None:
                raise
            self._index.close()
            self._give_up(error)
            return question(self._index)

    def _give_up(self, error: DecodeError) -> None:
        assert self._fallback is not None
        self._report(error)
        self._index, self._fallback = self._fallback(), None


PATTERN: Final = "*/*/*.idx"

_index_re = re.compile(r"^[0-9a-f]{1,2}/[0-9a-f]{1,2}/([0-9a-f]{1,16})\.idx$")


class InterleavedLocations:
    """The locations of a bookie's ledgers, in whichever of its index directories each lies."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """Find the index files below `current` directories; they are read when asked for."""
        self._paths: dict[int, Path] = {}
        for directory in directories:
            for path in directory.glob(PATTERN):
                match = _index_re.match(path.relative_to(directory).as_posix())
                if match:
                    self._paths[int(match[1], 16)] = path

    def ledgers(self) -> list[int]:
        """Return all ledgers that have an entry, in ascending order."""
        return [ledger_id for ledger_id in sorted(self._paths) if self.last_entry(ledger_id) is not None]

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry of a ledger."""
        entry_ids = self.ledger(ledger_id).entry_ids
        return entry_ids[-1] if entry_ids else None

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return where one entry lies."""
        with self._view(ledger_id) as view:
            location = location_of(view, entry_id)
        return location if location > 0 else None

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        with self._view(ledger_id) as view:
            return LedgerLocations(ledger_id, *locations(view)).between(first, last)

    def header(self, ledger_id: int) -> IndexHeader | None:
        """Return the head of a ledger's index, None where it has none; DecodeError where it is broken."""
        if ledger_id not in self._paths:
            return None
        with self._view(ledger_id) as view:
            return decode_index_header(view)

    def close(self) -> None:
        """Nothing stays open."""

    @contextmanager
    def _view(self, ledger_id: int) -> Iterator[memoryview]:
        """Lend a ledger's index; UnreachableError where a part of it could not be read."""
        path = self._paths.get(ledger_id)
        if path is None:
            yield memoryview(b"")
            return
        mapped = MappedFile(path)
        try:
            with decoding(str(path)):
                decode_index_header(mapped.view)
            yield mapped.view
        finally:
            mapped.check()


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
