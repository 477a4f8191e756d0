"""Which entries of a ledger should be on the disks that are read, as its ensembles say.

BookKeeper writes each entry to some bookies of the ensemble only: what the others have is not missing
where their disks were not given.
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
    """Of the entries [first, stop), those whose id leaves one of `remainders` when divided by `size`."""

    first: int
    stop: int
    size: int
    remainders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The entries that should be on certain disks: every one unless the ensembles say that they are not.

    `deleted`: BookKeeper has deleted the ledger, so none of what is left of it should be anywhere.
    """

    stripes: tuple[Stripe, ...] = (Stripe(0, NO_END, 1, (0,)),)
    deleted: bool = False

    def count(self, first: int, last: int) -> int:
        """Return how many of the entries [first, last] should be here; nothing is stepped through."""
        return sum(
            (stop - 1 - remainder) // stripe.size - (start - 1 - remainder) // stripe.size
            for stripe, start, stop in self._within(first, last)
            for remainder in stripe.remainders
        )

    def elsewhere(self, first: int, last: int) -> int:
        """Return how many of the entries [first, last] should be on other disks alone."""
        return 0 if self.deleted else max(0, last - first + 1) - self.count(first, last)

    def first(self, first: int, last: int) -> int | None:
        """Return the first entry of [first, last] that should be here, None where none should."""
        for stripe, start, stop in self._within(first, last):
            for entry_id in range(start, min(stop, start + stripe.size)):
                if entry_id % stripe.size in stripe.remainders:
                    return entry_id
        return None

    def count_of(self, entry_ids: NDArray[np.int64]) -> int:
        """Return how many of these entries should be here."""
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


def placement(ledger: Ledger, source: EntrySource) -> Placement:
    """Return which entries of a ledger `source` should have."""
    if ledger.metadata == "absent" and ledger.state == "unknown":
        return Placement((), deleted=True)
    if source.bookies is None or ledger.bookkeeper is None:
        return Placement()
    try:
        return placement_on(ledger.bookkeeper.ensembles(), source.bookies)
    except DecodeError:
        # Metadata without an ensemble says nothing about where entries are.
        return Placement()


def with_end(ledger: Ledger, source: EntrySource) -> Ledger:
    """Return a ledger, one that is open with as many entries as `source` has of it.

    Its number of entries stays None where others than the source's bookies may have more.
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
    """Return which entries of a ledger were written to one of these bookies at least."""
    starts = [0, *(segment.first_entry for segment in ensembles.segments[1:])]
    stripes = []
    for segment, first, stop in zip(ensembles.segments, starts, [*starts[1:], NO_END], strict=True):
        size = len(segment.members)
        held = [
            remainder
            for remainder in range(size)
            if any(
                segment.members[(remainder + copy) % size] in bookies
                for copy in range(ensembles.write_quorum)
            )
        ]
        stripes.append(Stripe(first, stop, size, tuple(held)))
    return Placement(tuple(stripes))
