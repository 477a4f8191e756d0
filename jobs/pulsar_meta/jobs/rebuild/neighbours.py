"""Which ledgers alone can come before and after each other.

Many topics have the same numbers, since ledgers are closed after as many entries: of the ledgers that meet
no more are looked at than it takes to know that there are several.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

# Something that is true of an earlier ledger and a later one, or not.
Both = Callable[[int, int], bool]
Index = Mapping[Hashable, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Ends:
    """By what a ledger's beginning and end are known: two meet where a key after one is before the other."""

    before: tuple[Hashable, ...]
    after: tuple[Hashable, ...]


def neighbours(
    ends: Mapping[int, Ends],
    producers: Mapping[int, Ends],
    members: Mapping[int, Set[int]],
    meet: Both,
    fit: Both,
) -> list[tuple[int, int]]:
    """Return the pairs of ledgers that meet by `ends` and of which each is the only one for the other.

    `meet` says whether that counts for two ledgers, `fit` whether two of different groups can be one topic's.
    Of several that fit it is the one that meets by `producers` too. `ends` is in ascending order, `members`
    has the group of each ledger; who has a neighbour in its group needs no other.
    """

    def can_be(one: int, other: int) -> bool:
        return meet(one, other) and fit(one, other)

    followed, preceded = _joined(ends, members, meet)
    open_ends = [one for one in ends if one not in followed]
    open_begins = [one for one in ends if one not in preceded]
    later = _Side(ends, producers, open_begins, can_be, later=True)
    earlier = _Side(ends, producers, open_ends, can_be, later=False)
    found = ((one, later.only(one)) for one in open_ends)
    return [(one, other) for one, other in found if other is not None and earlier.only(other) == one]


def _joined(
    ends: Mapping[int, Ends], members: Mapping[int, Set[int]], meet: Both
) -> tuple[set[int], set[int]]:
    """Return the ledgers that have the next one in their group, and those that have the one before."""
    begins = _index(ends, lambda one: ends[one].before)
    followed, preceded = set(), set()
    for one, own in ends.items():
        for key in own.after:
            meeting, group = begins.get(key, ()), members[one]
            for other in group if len(group) < len(meeting) else meeting:
                if other <= one or other not in group or other not in ends:
                    continue
                if key in ends[other].before and meet(one, other):
                    followed.add(one)
                    preceded.add(other)
    return followed, preceded


class _Side:
    """What can come after ledgers (`later`), or before them, of those whose end there is still open."""

    def __init__(
        self,
        ends: Mapping[int, Ends],
        producers: Mapping[int, Ends],
        still_open: Iterable[int],
        fit: Both,
        *,
        later: bool,
    ) -> None:
        self._ends, self._producers, self._fit, self._later = ends, producers, fit, later
        chosen = list(still_open)
        self._meeting = _index(chosen, lambda one: self._keys(ends[one], not later))
        self._going_on = _index(chosen, lambda one: self._keys(producers[one], not later))

    @staticmethod
    def _keys(ends: Ends, after: bool) -> tuple[Hashable, ...]:
        return ends.after if after else ends.before

    def only(self, at: int) -> int | None:
        """Return the one that fits; of several the one whose producers go on, None where that is not one."""
        keys = self._keys(self._ends[at], self._later)
        fitting = list(islice(self._fitting(at, keys, self._meeting), 2))
        if len(fitting) > 1:
            met = frozenset(keys)
            by_producers = self._keys(self._producers[at], self._later)
            going_on = (
                one
                for one in self._fitting(at, by_producers, self._going_on)
                if not met.isdisjoint(self._keys(self._ends[one], not self._later))
            )
            fitting = list(islice(going_on, 2))
        return fitting[0] if len(fitting) == 1 else None

    def _fitting(self, at: int, keys: Iterable[Hashable], index: Index) -> Iterator[int]:
        """Yield each ledger on this side of `at` that has one of the keys and fits, nearest ones first."""
        seen: set[int] = set()
        for key in keys:
            for one in _beyond(index.get(key, ()), at, self._later):
                if one not in seen:
                    seen.add(one)
                    if self._fit(at, one) if self._later else self._fit(one, at):
                        yield one


def _index(ledgers: Iterable[int], keys_of: Callable[[int], Iterable[Hashable]]) -> Index:
    found: dict[Hashable, list[int]] = defaultdict(list)
    for one in ledgers:
        for key in keys_of(one):
            found[key].append(one)
    return found


def _beyond(ledgers: Sequence[int], at: int, later: bool) -> Iterator[int]:
    """Yield those above `at`, or those below it, of ascending ledgers, nearest ones first."""
    if later:
        places = range(bisect_right(ledgers, at), len(ledgers))
    else:
        places = range(bisect_left(ledgers, at) - 1, -1, -1)
    return (ledgers[place] for place in places)
