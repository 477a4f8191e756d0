"""Derive from a ledger's ensembles which of its entries should be on the given disks.

BookKeeper writes each entry to some bookies of the ensemble only. Entries on other bookies are not missing if
the disks of those bookies were not given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_client import Ensembles
from pulsar_meta.jobs.topics.topic import Ledger

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_END: Final = 2**63


@dataclass(frozen=True, slots=True)
class Stripe:
    """The entries in [first, stop) whose id modulo `size` is in `remainders`."""

    first: int
    stop: int
    size: int
    remainders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The entries that should be on certain disks; all entries, unless the ensembles are known.

    `deleted` is True if BookKeeper has deleted the ledger, so that no entry is expected anywhere.
    """

    stripes: tuple[Stripe, ...] = (Stripe(0, NO_END, 1, (0,)),)
    deleted: bool = False

    def count(self, first: int, last: int) -> int:
        """Count the entries in [first, last] that should be here, without enumerating them."""
        return sum(
            (stop - 1 - remainder) // stripe.size - (start - 1 - remainder) // stripe.size
            for stripe, start, stop in self._within(first, last)
            for remainder in stripe.remainders
        )

    def elsewhere(self, first: int, last: int) -> int:
        """Count the entries in [first, last] that should only be on other disks."""
        return 0 if self.deleted else max(0, last - first + 1) - self.count(first, last)

    def first(self, first: int, last: int) -> int | None:
        """The first entry in [first, last] that should be here; None if there is none."""
        for stripe, start, stop in self._within(first, last):
            for entry_id in range(start, min(stop, start + stripe.size)):
                if entry_id % stripe.size in stripe.remainders:
                    return entry_id
        return None

    def count_of(self, entry_ids: NDArray[np.int64]) -> int:
        """Count the given entries that should be here."""
        import numpy as np

        return sum(
            int(np.isin(inside % stripe.size, stripe.remainders).sum())
            for stripe in self.stripes
            for inside in [entry_ids[(entry_ids >= stripe.first) & (entry_ids < stripe.stop)]]
        )

    def _within(self, first: int, last: int) -> Iterator[tuple[Stripe, int, int]]:
        for stripe in self.stripes:
            start, stop = max(first, stripe.first), min(last + 1, stripe.stop)
            if start < stop:
                yield stripe, start, stop


def placement(ledger: Ledger, source: EntrySource, incomplete: frozenset[str] = frozenset()) -> Placement:
    """Find out which entries of a ledger `source` should have.

    None is expected from the `incomplete` bookies, of which a ledger directory was not given.
    """
    if ledger.metadata == "absent" and ledger.state == "unknown":
        return Placement((), deleted=True)
    if source.bookies is None or ledger.bookkeeper is None:
        return Placement()
    try:
        return placement_on(ledger.bookkeeper.ensembles(), source.bookies - incomplete)
    except DecodeError:
        # Without an ensemble, any entry may be on any bookie.
        return Placement()


def with_end(ledger: Ledger, source: EntrySource) -> Ledger:
    """Set the number of entries of an open ledger from the entries in `source`.

    The number stays None if other bookies may have more entries.
    """
    if ledger.entries is not None:
        return ledger
    last = source.last_entry(ledger.ledger_id)
    if last is None and not (source.sees_open_ledgers or (source.bookies and ledger.bookkeeper)):
        return ledger
    entries = 0 if last is None else last + 1
    if placement(ledger, source).elsewhere(entries, entries + _largest_ensemble(ledger)):
        return ledger
    return replace(ledger, entries=entries)


def _largest_ensemble(ledger: Ledger) -> int:
    segments = () if ledger.bookkeeper is None else ledger.bookkeeper.segments
    return max((len(segment.members) for segment in segments), default=1)


def placement_on(ensembles: Ensembles, bookies: frozenset[str]) -> Placement:
    """Find out which entries of a ledger were written to at least one of these bookies."""
    starts = [0, *(segment.first_entry for segment in ensembles.segments[1:])]
    stripes = []
    for segment, first, stop in zip(ensembles.segments, starts, [*starts[1:], NO_END], strict=True):
        size = len(segment.members)
        remainders = [
            remainder
            for remainder in range(size)
            if any(
                segment.members[(remainder + copy) % size] in bookies
                for copy in range(ensembles.write_quorum)
            )
        ]
        stripes.append(Stripe(first, stop, size, tuple(remainders)))
    return Placement(tuple(stripes))
