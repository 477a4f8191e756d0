"""The ensembles of a ledger, from which bookie holds which of its entries. Needs NumPy.

Entry e goes to the members (e + i) mod E of its ensemble, i from 0 to the write quorum less one. So where a
member stands says which entries it has, and the other way round; a ledger too short for that fits several
orders. A new segment begins where no order goes on to fit.

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

# Which bookies (columns) hold which entries (rows).
Holders = NDArray[np.bool_]

# Ensembles as people have them; each order of one is tried.
LARGEST_ENSEMBLE: Final = 5
# A member that lacks an entry, and has the next ones again, lost it: no other ensemble begins there.
GOES_ON: Final = 2
# Where so many times more entries should be there than are, gaps are left out of account.
SPARSE: Final = 16
FEW: Final = 4096

_LOST: Final = -1


class Quorum(NamedTuple):
    """How many bookies a segment has, and on how many of them each entry lies."""

    ensemble: int
    write: int


@dataclass(frozen=True, slots=True)
class Striping:
    """The segments of a ledger under one quorum.

    `misfits` counts entries that are not where they belong, `ambiguous` says that another order of members
    fits as well.
    """

    quorum: Quorum
    segments: tuple[Segment, ...]
    misfits: int = 0
    ambiguous: bool = False

    @property
    def exact(self) -> bool:
        """Whether one ensemble has every entry where it belongs."""
        return len(self.segments) == 1 and not self.misfits


def holders_of(held: Mapping[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], Holders]:
    """Return (entries of a ledger in order, which of the bookies has each).

    `held` has the entries of each bookie in order. Entries that nobody has are among them, with no holder,
    up to the last that somebody has; not where they are by far the most.
    """
    entry_ids = np.unique(np.concatenate(list(held.values())))
    if entry_ids[-1] < SPARSE * len(entry_ids) + FEW:
        entry_ids = np.arange(entry_ids[-1] + 1)
    holders = np.zeros((len(entry_ids), len(held)), bool)
    for column, mine in enumerate(held.values()):
        holders[np.searchsorted(entry_ids, mine), column] = True
    return entry_ids, holders


def stripings(held: Mapping[str, NDArray[np.int64]], lost: Sequence[str] = ()) -> list[Striping]:
    """Return how a ledger can be striped, one answer for each quorum that its disks allow.

    `held` has the entries that each bookie has of it, empty where it has none; at least one has some. `lost`
    are bookies whose disks are not here: nobody knows what they had.
    """
    entry_ids, holders = holders_of(held)
    disks = _Disks(entry_ids, holders, tuple(held), tuple(lost))
    found = (_striped(disks, quorum) for quorum in _quorums(len(held) + len(lost)))
    return [striping for striping in found if striping is not None]


def _quorums(bookies: int) -> Iterator[Quorum]:
    for ensemble in range(1, min(bookies, LARGEST_ENSEMBLE) + 1):
        yield from (Quorum(ensemble, write) for write in range(1, ensemble + 1))


@dataclass(frozen=True, slots=True)
class _Disks:
    """The entries of a ledger from some entry on, which bookies have them, and bookies nobody knows of."""

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
    """Entries that one ensemble explains: how many, and by which bookies (columns) in their order."""

    length: int
    misfits: int
    places: tuple[int, ...]
    ambiguous: bool = False


def _longest_run(disks: _Disks, quorum: Quorum) -> _Run | None:
    """Return the order of members that explains the most entries from the first on; None where none does."""
    best: _Run | None = None
    for places in _orders(disks, quorum):
        run = _Run(*_fitting(_as_striped(disks, quorum, places), disks.holders, quorum.ensemble), places)
        if best is None or (run.length, -run.misfits) > (best.length, -best.misfits):
            best = run
        elif run[:2] == best[:2]:
            best = best._replace(ambiguous=True)
    return best if best is not None and best.length else None


def _orders(disks: _Disks, quorum: Quorum) -> Iterator[tuple[int, ...]]:
    """Yield the orders that members can have: those with entries near, filled up with others.

    The order counts only where entries are striped.
    """
    held = disks.holders.any(axis=1)
    near = disks.holders[held][: GOES_ON * quorum.ensemble]
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
    """Return which entries are with all members that should have them, and with nobody else."""
    right = np.ones(len(disks.entry_ids), bool)
    for column in range(len(disks.bookies)):
        if column not in places:
            right &= ~disks.holders[:, column]
    for place, column in enumerate(places):
        if column != _LOST:
            mine = (place - disks.entry_ids) % quorum.ensemble < quorum.write
            right &= disks.holders[:, column] == mine
    return right


def _fitting(right: NDArray[np.bool_], holders: Holders, ensemble: int) -> tuple[int, int]:
    """Return how many entries from the first on one ensemble explains, and how many of them it does not.

    An entry that nobody has says nothing of ensembles. At the end of a long ledger a bookie may lack
    entries: it was stopped before it had them.
    """
    wrong, enough = np.flatnonzero(~right), GOES_ON * ensemble
    for number, at in enumerate(wrong.tolist()):
        after = right[at + 1 : at + 1 + enough]
        whole = len(after) == enough or len(right) > enough
        if holders[at].any() and not (at and whole and after.all()):
            return int(at), number
    return len(right), len(wrong)


def _named(places: tuple[int, ...], disks: _Disks) -> tuple[str, ...]:
    """Return the members by their names."""
    lost = iter(disks.lost)
    return tuple(next(lost) if column == _LOST else disks.bookies[column] for column in places)


def usual_quorums(found: Iterable[Sequence[Striping]]) -> list[Quorum]:
    """Return the quorums, the one that most ledgers fit exactly first; of equal ones the smallest."""
    exact: dict[Quorum, int] = {}
    for choices in found:
        for striping in choices:
            exact[striping.quorum] = exact.get(striping.quorum, 0) + striping.exact
    return sorted(exact, key=lambda quorum: (-exact[quorum], quorum.ensemble, -quorum.write))


def chosen(choices: Sequence[Striping], usual: Sequence[Quorum]) -> Striping | None:
    """Return the striping of a ledger that fits exactly, the most usual of several; else the most usual."""
    exact = [striping for striping in choices if striping.exact]
    ranked = sorted(exact or choices, key=lambda striping: usual.index(striping.quorum))
    if exact or not ranked:
        return ranked[0] if ranked else None
    return min(ranked, key=lambda striping: len(striping.segments) + striping.misfits)
