"""Where the entries of ledgers lie: columns of locations, apart from what is written there.

A location is BookKeeper's: (file number << 32) | offset, the offset past the record's size. Columns are
`array` objects, which NumPy takes without a copy (`numpy.frombuffer(column, "int64")`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pulsar_meta.codecs.errors import DecodeError

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
