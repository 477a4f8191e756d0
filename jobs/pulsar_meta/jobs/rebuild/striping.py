"""Derive a ledger's ensembles and quorums from which bookie holds which entries. Needs NumPy.

Entry e is written to the members (e + i) mod E of its ensemble, for i from 0 to the write quorum minus 1. So
the order of the members decides which entries each of them has. A short ledger can fit several orders. A new
segment begins at the entry from which no order fits any more.

Source: apache/bookkeeper client/RoundRobinDistributionSchedule.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.entries.bookie_client import Segment

# A matrix of entries (rows) and bookies (columns): True if the bookie holds the entry.
Holders = NDArray[np.bool_]

# Larger ensembles are not considered, because every order of the members has to be tried.
LARGEST_ENSEMBLE: Final = 5
# A member that lacks an entry but has the next ones lost that entry; it does not start a new ensemble.
CONFIRMING_ENTRIES: Final = 2
# A ledger with far fewer entries than its last entry id suggests is analysed without its gaps.
SPARSE: Final = 16
FEW: Final = 4096

_LOST: Final = -1


class Quorum(NamedTuple):
    """The ensemble size and the write quorum."""

    ensemble: int
    write: int


@dataclass(frozen=True, slots=True)
class Striping:
    """The segments of a ledger for one quorum.

    `misfits` counts entries that are not stored where the segments place them. `ambiguous` is True if another
    order of the members fits equally well.
    """

    quorum: Quorum
    segments: tuple[Segment, ...]
    misfits: int = 0
    ambiguous: bool = False

    @property
    def exact(self) -> bool:
        """True if a single ensemble explains where every entry is stored."""
        return len(self.segments) == 1 and not self.misfits


def holders_of(ids_by_bookie: Mapping[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], Holders]:
    """Build the matrix of which bookie holds which entry.

    `ids_by_bookie` has the sorted entry ids of each bookie. Returns (entry ids in order, matrix). Entries
    without a holder are included up to the last entry, unless most entries are missing.
    """
    entry_ids = np.unique(np.concatenate(list(ids_by_bookie.values())))
    if entry_ids[-1] < SPARSE * len(entry_ids) + FEW:
        entry_ids = np.arange(entry_ids[-1] + 1)
    holders = np.zeros((len(entry_ids), len(ids_by_bookie)), bool)
    for column, entry_ids_of_bookie in enumerate(ids_by_bookie.values()):
        holders[np.searchsorted(entry_ids, entry_ids_of_bookie), column] = True
    return entry_ids, holders


def possible_stripings(
    ids_by_bookie: Mapping[str, NDArray[np.int64]], lost: Sequence[str] = ()
) -> list[Striping]:
    """Find the possible stripings of a ledger, at most one per quorum.

    `ids_by_bookie` has the sorted entry ids of each bookie, of which at least one has entries. `lost` are
    bookies whose disks are not available, so any of them may have held entries.
    """
    entry_ids, holders = holders_of(ids_by_bookie)
    disks = _Disks(entry_ids, holders, tuple(ids_by_bookie), tuple(lost))
    candidates = (_striped(disks, quorum) for quorum in _quorums(len(ids_by_bookie) + len(lost)))
    return [striping for striping in candidates if striping is not None]


def _quorums(bookies: int) -> Iterator[Quorum]:
    for ensemble in range(1, min(bookies, LARGEST_ENSEMBLE) + 1):
        yield from (Quorum(ensemble, write) for write in range(1, ensemble + 1))


@dataclass(frozen=True, slots=True)
class _Disks:
    """A ledger's entries from some entry on, the bookies that hold them, and bookies without disks."""

    entry_ids: NDArray[np.int64]
    holders: Holders
    bookies: tuple[str, ...]
    lost: tuple[str, ...]

    def after(self, rows: int) -> _Disks:
        return _Disks(self.entry_ids[rows:], self.holders[rows:], self.bookies, self.lost)


def _striped(disks: _Disks, quorum: Quorum) -> Striping | None:
    segments: list[Segment] = []
    misfits, ambiguous = 0, False
    while len(disks.entry_ids):
        run = _longest_run(disks, quorum)
        if run is None:
            return None
        first = int(disks.entry_ids[0]) if segments else 0
        segments.append(Segment(first, _named(run.places, disks)))
        ambiguous = ambiguous or run.ambiguous
        misfits += run.misfits
        disks = disks.after(run.length)
    return Striping(quorum, tuple(segments), misfits, ambiguous)


class _Run(NamedTuple):
    """A run of entries that one ensemble explains: its length, and the members as columns, in order."""

    length: int
    misfits: int
    places: tuple[int, ...]
    ambiguous: bool = False


def _longest_run(disks: _Disks, quorum: Quorum) -> _Run | None:
    """Find the order of members that explains the most entries from the first on; None if no order fits."""
    best: _Run | None = None
    for places in _orders(disks, quorum):
        run = _Run(*_fitting(_as_striped(disks, quorum, places), disks.holders, quorum.ensemble), places)
        if best is None or (run.length, -run.misfits) > (best.length, -best.misfits):
            best = run
        elif run[:2] == best[:2]:
            best = best._replace(ambiguous=True)
    return best if best is not None and best.length else None


def _orders(disks: _Disks, quorum: Quorum) -> Iterator[tuple[int, ...]]:
    """Yield the possible orders of the members.

    Bookies that hold the next entries are always members; the remaining places are filled with other bookies.
    If every member gets every entry, the order makes no difference, so only one order is yielded.
    """
    has_holder = disks.holders.any(axis=1)
    near = disks.holders[has_holder][: CONFIRMING_ENTRIES * quorum.ensemble]
    present = np.flatnonzero(near.any(axis=0)).tolist()
    away = [column for column in range(len(disks.bookies)) if column not in present]
    missing = quorum.ensemble - len(present)
    if missing < 0 or missing > len(away) + len(disks.lost):
        return
    for unknown in range(max(0, missing - len(away)), min(missing, len(disks.lost)) + 1):
        members = [*present, *away[: missing - unknown], *[_LOST] * unknown]
        if quorum.write == quorum.ensemble:
            yield tuple(members)
        else:
            yield from sorted(set(permutations(members)))


def _as_striped(disks: _Disks, quorum: Quorum, places: tuple[int, ...]) -> NDArray[np.bool_]:
    """Mark the entries that are held by exactly the members that should hold them."""
    matches = np.ones(len(disks.entry_ids), bool)
    for column in range(len(disks.bookies)):
        if column not in places:
            matches &= ~disks.holders[:, column]
    for place, column in enumerate(places):
        if column != _LOST:
            expected = (place - disks.entry_ids) % quorum.ensemble < quorum.write
            matches &= disks.holders[:, column] == expected
    return matches


def _fitting(matches: NDArray[np.bool_], holders: Holders, ensemble: int) -> tuple[int, int]:
    """Count the entries that one ensemble explains, and the misfits among them: (entries, misfits).

    An entry without any holder is no evidence for or against an ensemble. At the end of a long ledger, a
    bookie may lack entries because it stopped before it wrote them.
    """
    wrong, enough = np.flatnonzero(~matches), CONFIRMING_ENTRIES * ensemble
    for number, row in enumerate(wrong.tolist()):
        after = matches[row + 1 : row + 1 + enough]
        has_evidence = len(after) == enough or len(matches) > enough
        if holders[row].any() and not (row and has_evidence and after.all()):
            return int(row), number
    return len(matches), len(wrong)


def _named(places: tuple[int, ...], disks: _Disks) -> tuple[str, ...]:
    """Replace columns by bookie ids."""
    lost = iter(disks.lost)
    return tuple(next(lost) if column == _LOST else disks.bookies[column] for column in places)


def usual_quorums(stripings_by_ledger: Iterable[Sequence[Striping]]) -> list[Quorum]:
    """Rank quorums by how many ledgers they fit exactly; if equal, smaller ensembles come first."""
    exact: dict[Quorum, int] = {}
    for choices in stripings_by_ledger:
        for striping in choices:
            exact[striping.quorum] = exact.get(striping.quorum, 0) + striping.exact
    return sorted(exact, key=lambda quorum: (-exact[quorum], quorum.ensemble, -quorum.write))


def choose_striping(choices: Sequence[Striping], usual: Sequence[Quorum]) -> Striping | None:
    """Choose the most usual striping that fits exactly; if none does, the one with the fewest exceptions."""
    exact = [striping for striping in choices if striping.exact]
    ranked = sorted(exact or choices, key=lambda striping: usual.index(striping.quorum))
    if exact or not ranked:
        return ranked[0] if ranked else None
    return min(ranked, key=lambda striping: len(striping.segments) + striping.misfits)
