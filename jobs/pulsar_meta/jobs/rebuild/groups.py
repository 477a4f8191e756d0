"""Group the data ledgers that belong to one topic; two topics never share a group.

Ledgers that one cursor or compacted ledger names belong to one topic. If an index continues from one ledger
to
another, and no other ledger fits at either end, they belong together. If several fit, the producers' sequence
ids
decide; if these don't, the ledgers stay apart. Without indexes only the producers decide. Ledgers of a topic
are
created one after the other, so ledgers that overlap in indexes or times are never joined.

Many topics have the same numbers, because ledgers are closed after the same number of entries: a search among
possible neighbours stops as soon as there are two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Final

from pulsar_meta.jobs.rebuild.evidence import DataClues, Mention

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


# By how much producers' clocks may be wrong.
SKEW: Final = 60_000


@dataclass(frozen=True, slots=True)
class Group:
    """Data ledgers of one topic in their order, the topic's name where something gives it, and why.

    `certain` is false where only indexes or sequence ids join some of them. `mentions` are the ledgers
    (cursors, compacted data) that name some of them.
    """

    ledgers: tuple[int, ...]
    name: str | None
    certain: bool
    evidence: tuple[str, ...]
    mentions: tuple[int, ...] = ()


def group_ledgers(
    clues: Mapping[int, DataClues],
    mentions: Iterable[Mention],
    names: Mapping[int, str],
    torn: Set[int] = frozenset(),
) -> list[Group]:
    """Return the groups, each data ledger in one, in the order of their first ledgers.

    `names` has the topic of ledgers of which it is known (from an old store, or from a person). Of `torn`
    ledgers the first or last entries may not be here, so that what goes on from them is not known.
    """
    grouping = _Grouping(clues, names, torn)
    grouping.by_name()
    grouping.by_mentions(mentions)
    while grouping.by_indexes() or grouping.by_producers():
        pass
    return list(grouping.groups())


class _Grouping:
    """Ledgers while they are joined: `members` has the group of each ledger, one set for all of them."""

    def __init__(self, clues: Mapping[int, DataClues], names: Mapping[int, str], torn: Set[int]) -> None:
        self.clues = clues
        self.torn = torn
        self.names = names
        self.members: dict[int, set[int]] = {one: {one} for one in sorted(clues)}
        self.evidence: dict[int, list[str]] = defaultdict(list)
        self.guessed: set[int] = set()
        self.mentioned: dict[int, list[int]] = defaultdict(list)

    def by_name(self) -> None:
        """Join what has the same name."""
        named: dict[str, list[int]] = defaultdict(list)
        for ledger_id in self.members:
            if ledger_id in self.names:
                named[self.names[ledger_id]].append(ledger_id)
        for ledgers in named.values():
            for one, other in pairwise(ledgers):
                self._join(one, other)

    def by_mentions(self, mentions: Iterable[Mention]) -> None:
        """Join what one cursor names, also by way of ledgers that are on no disk."""
        reached: dict[int, int] = {}
        for mention in mentions:
            here = sorted(one for one in mention.named if one in self.members)
            anchor = next((reached[one] for one in mention.named if one in reached), None)
            together = here if anchor is None else [anchor, *here]
            for one, other in pairwise(together):
                if self.members[one] is not self.members[other] and self._fit_names(one, other):
                    self._join(one, other)
                    self.evidence[other].append(mention.says.format(mention.ledger_id, one, other))
            if together and mention.kind != "data":
                self.mentioned[together[0]].append(mention.ledger_id)
            if together:
                reached |= dict.fromkeys(mention.named, together[0])

    def by_indexes(self) -> bool:
        """Join ledgers whose indexes go on; return whether any were."""
        return self._join_next(self._indexes, lambda one, other: True, "its indexes go on from ledger {}")

    def by_producers(self) -> bool:
        """Join ledgers without indexes whose producers go on; return whether any were."""

        def lack_indexes(one: int, other: int) -> bool:
            return self.clues[one].last_index is None or self.clues[other].first_index is None

        why = "its producers' sequence ids go on from ledger {}"
        return self._join_next(self._producers, lack_indexes, why)

    def groups(self) -> Iterator[Group]:
        """Yield the groups."""
        for first, members in self.members.items():
            if first != min(members):
                continue
            ledgers = tuple(sorted(members))
            yield Group(
                ledgers,
                next((self.names[one] for one in ledgers if one in self.names), None),
                not self.guessed.intersection(members),
                tuple(text for one in ledgers for text in self.evidence[one]),
                tuple(sorted({by for one in ledgers for by in self.mentioned[one]})),
            )

    def _join_next(self, ends: Mapping[int, Ends], meet: Both, why: str) -> bool:
        """Join each ledger with the one that alone can come next; return whether any were."""
        joined = False
        for one, other in neighbours(ends, self._producers, self.members, meet, self._can_join):
            if self._can_join(one, other):
                self._join(one, other)
                self.evidence[other].append(why.format(one))
                self.guessed.add(other)
                joined = True
        return joined

    @cached_property
    def _indexes(self) -> dict[int, Ends]:
        return {one: _by_index(self.clues[one]) for one in self.members if one not in self.torn}

    @cached_property
    def _producers(self) -> dict[int, Ends]:
        return {one: _by_producer(self.clues[one]) for one in self.members if one not in self.torn}

    def _join(self, one: int, other: int) -> None:
        together = self.members[one]
        if together is self.members[other]:
            return
        together |= self.members[other]
        for ledger_id in self.members[other]:
            self.members[ledger_id] = together

    def _fit_names(self, one: int, other: int) -> bool:
        known = {self.names[at] for at in self.members[one] | self.members[other] if at in self.names}
        return len(known) < 2

    def _can_join(self, one: int, other: int) -> bool:
        return self.members[one] is not self.members[other] and self._compatible(one, other)

    def _compatible(self, one: int, other: int) -> bool:
        """Return whether two groups can be one topic: names, indexes and times one after the other."""
        if not self._fit_names(one, other):
            return False
        ordered = [self.clues[at] for at in sorted(self.members[one] | self.members[other])]
        indexed = [clue for clue in ordered if clue.first_index is not None]
        return all(map(_in_order, indexed, indexed[1:])) and all(map(_in_time, ordered, ordered[1:]))


def _by_index(clue: DataClues) -> Ends:
    after = () if clue.last_index is None else (clue.last_index + 1,)
    return Ends((clue.first_index,) if clue.first_index else (), after)


def _by_producer(clue: DataClues) -> Ends:
    each = clue.producers.items()
    return Ends(
        tuple((name, sequence.first) for name, sequence in each if sequence.first),
        tuple((name, number) for name, sequence in each for number in sequence.after),
    )


def _in_order(one: DataClues, other: DataClues) -> bool:
    if one.last_index is None or other.first_index is None:
        return True
    return one.last_index < other.first_index


def _in_time(one: DataClues, other: DataClues) -> bool:
    if one.last_time is None or other.first_time is None:
        return True
    skew = 0 if one.times_by_broker and other.times_by_broker else SKEW
    return one.last_time <= other.first_time + skew
