"""Group the data ledgers that belong to one topic. Ledgers of two topics never share a group.

Ledgers that one cursor or compacted ledger refers to belong to one topic. If the indexes of one ledger
continue in another, and no other ledger fits at either end, the two belong together. If several ledgers fit,
the producers' sequence ids decide; if these don't, the ledgers stay apart. Without indexes, only the
producers decide. A topic's ledgers are created one after the other, so ledgers that overlap in indexes or
times are never joined.

Many topics have the same numbers, because brokers close ledgers after the same number of entries. So the
search for a neighbour stops as soon as it has two candidates.
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

# A test of an earlier and a later ledger.
PairTest = Callable[[int, int], bool]
Index = Mapping[Hashable, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Ends:
    """Keys of a ledger's beginning and end. A key in `after` of one ledger is in `before` of the next."""

    before: tuple[Hashable, ...]
    after: tuple[Hashable, ...]


def neighbours(
    ends: Mapping[int, Ends],
    producers: Mapping[int, Ends],
    members: Mapping[int, Set[int]],
    meet: PairTest,
    fit: PairTest,
) -> list[tuple[int, int]]:
    """Pair the ledgers that meet by `ends`, if each is the only candidate for the other.

    `meet` decides whether a meeting counts for two ledgers, and `fit` whether ledgers of different groups can
    belong to one topic. If several fit, the one that also meets by `producers` is chosen. `ends` is in
    ascending order. `members` has the group of each ledger; a ledger with a neighbour in its own group needs
    no other.
    """

    def can_be(ledger: int, other: int) -> bool:
        return meet(ledger, other) and fit(ledger, other)

    followed, preceded = _joined(ends, members, meet)
    open_ends = [ledger for ledger in ends if ledger not in followed]
    open_begins = [ledger for ledger in ends if ledger not in preceded]
    later = _Side(ends, producers, open_begins, can_be, later=True)
    earlier = _Side(ends, producers, open_ends, can_be, later=False)
    candidates = ((ledger, later.only(ledger)) for ledger in open_ends)
    return [
        (ledger, other) for ledger, other in candidates if other is not None and earlier.only(other) == ledger
    ]


def _joined(
    ends: Mapping[int, Ends], members: Mapping[int, Set[int]], meet: PairTest
) -> tuple[set[int], set[int]]:
    """Find the ledgers whose successor is in their group, and those whose predecessor is."""
    begins = _index(ends, lambda ledger: ends[ledger].before)
    followed, preceded = set(), set()
    for ledger, own in ends.items():
        for key in own.after:
            meeting, group = begins.get(key, ()), members[ledger]
            for other in group if len(group) < len(meeting) else meeting:
                if other <= ledger or other not in group or other not in ends:
                    continue
                if key in ends[other].before and meet(ledger, other):
                    followed.add(ledger)
                    preceded.add(other)
    return followed, preceded


class _Side:
    """The possible successors (`later`) or predecessors of ledgers, among ledgers whose end there is open."""

    def __init__(
        self,
        ends: Mapping[int, Ends],
        producers: Mapping[int, Ends],
        still_open: Iterable[int],
        fit: PairTest,
        *,
        later: bool,
    ) -> None:
        self._ends, self._producers, self._fit, self._later = ends, producers, fit, later
        chosen = list(still_open)
        self._meeting = _index(chosen, lambda ledger: self._keys(ends[ledger], not later))
        self._by_producers = _index(chosen, lambda ledger: self._keys(producers[ledger], not later))

    @staticmethod
    def _keys(ends: Ends, after: bool) -> tuple[Hashable, ...]:
        return ends.after if after else ends.before

    def only(self, at: int) -> int | None:
        """The only ledger that fits or, if several fit, the only one whose producers continue. None if
        undecided."""
        keys = self._keys(self._ends[at], self._later)
        fitting = list(islice(self._fitting(at, keys, self._meeting), 2))
        if len(fitting) > 1:
            met = frozenset(keys)
            producer_keys = self._keys(self._producers[at], self._later)
            continuing = (
                ledger
                for ledger in self._fitting(at, producer_keys, self._by_producers)
                if not met.isdisjoint(self._keys(self._ends[ledger], not self._later))
            )
            fitting = list(islice(continuing, 2))
        return fitting[0] if len(fitting) == 1 else None

    def _fitting(self, at: int, keys: Iterable[Hashable], index: Index) -> Iterator[int]:
        """Yield each ledger on this side of `at` that shares a key with it and fits, nearest ones first."""
        seen: set[int] = set()
        for key in keys:
            for ledger in _beyond(index.get(key, ()), at, self._later):
                if ledger not in seen:
                    seen.add(ledger)
                    if self._fit(at, ledger) if self._later else self._fit(ledger, at):
                        yield ledger


def _index(ledgers: Iterable[int], keys_of: Callable[[int], Iterable[Hashable]]) -> Index:
    index: dict[Hashable, list[int]] = defaultdict(list)
    for ledger in ledgers:
        for key in keys_of(ledger):
            index[key].append(ledger)
    return index


def _beyond(ledgers: Sequence[int], at: int, later: bool) -> Iterator[int]:
    """Yield the ledgers above (`later`) or below `at`, nearest ones first; `ledgers` is in ascending
    order."""
    if later:
        places = range(bisect_right(ledgers, at), len(ledgers))
    else:
        places = range(bisect_left(ledgers, at) - 1, -1, -1)
    return (ledgers[place] for place in places)


# The tolerance for producers' clocks, in milliseconds.
SKEW: Final = 60_000


@dataclass(frozen=True, slots=True)
class Group:
    """Data ledgers of one topic in order, the topic's name if it is known, and the evidence.

    `certain` is False if only indexes or sequence ids join some of them. `mentions` are the ledgers (cursors,
    compacted data) that refer to some of them.
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
    """Group data ledgers by topic, in the order of their first ledgers; each ledger is in one group.

    `names` has the topics of ledgers that are known from an older store or from the operator. `torn` are
    ledgers whose first or last entries may be missing, so their neighbours can't be determined.
    """
    grouping = _Grouping(clues, names, torn)
    grouping.by_name()
    grouping.by_mentions(mentions)
    while grouping.by_indexes() or grouping.by_producers():
        pass
    return list(grouping.groups())


class _Grouping:
    """Groups while they are being joined: `members` maps each ledger to its group, which is a shared set."""

    def __init__(self, clues: Mapping[int, DataClues], names: Mapping[int, str], torn: Set[int]) -> None:
        self.clues = clues
        self.torn = torn
        self.names = names
        self.members: dict[int, set[int]] = {ledger: {ledger} for ledger in sorted(clues)}
        self.evidence: dict[int, list[str]] = defaultdict(list)
        self.guessed: set[int] = set()
        self.mentioned: dict[int, list[int]] = defaultdict(list)

    def by_name(self) -> None:
        """Join the ledgers with the same name."""
        named: dict[str, list[int]] = defaultdict(list)
        for ledger_id in self.members:
            if ledger_id in self.names:
                named[self.names[ledger_id]].append(ledger_id)
        for ledgers in named.values():
            for ledger, other in pairwise(ledgers):
                self._join(ledger, other)

    def by_mentions(self, mentions: Iterable[Mention]) -> None:
        """Join the ledgers that one cursor refers to, even if the link is a ledger that no disk has."""
        reached: dict[int, int] = {}
        for mention in mentions:
            here = sorted(ledger for ledger in mention.named if ledger in self.members)
            anchor = next((reached[ledger] for ledger in mention.named if ledger in reached), None)
            together = here if anchor is None else [anchor, *here]
            for ledger, other in pairwise(together):
                if self.members[ledger] is not self.members[other] and self._fit_names(ledger, other):
                    self._join(ledger, other)
                    self.evidence[other].append(mention.reason.format(mention.ledger_id, ledger, other))
            if together and mention.kind != "data":
                self.mentioned[together[0]].append(mention.ledger_id)
            if together:
                reached |= dict.fromkeys(mention.named, together[0])

    def by_indexes(self) -> bool:
        """Join ledgers whose indexes continue. Returns True if any were joined."""
        return self._join_next(
            self._indexes, lambda ledger, other: True, "its indexes continue from ledger {}"
        )

    def by_producers(self) -> bool:
        """Join ledgers without indexes whose producers continue. Returns True if any were joined."""

        def lack_indexes(ledger: int, other: int) -> bool:
            return self.clues[ledger].last_index is None or self.clues[other].first_index is None

        why = "its producers' sequence ids continue from ledger {}"
        return self._join_next(self._producers, lack_indexes, why)

    def groups(self) -> Iterator[Group]:
        """Yield the groups in the order of their first ledgers."""
        for first, members in self.members.items():
            if first != min(members):
                continue
            ledgers = tuple(sorted(members))
            yield Group(
                ledgers,
                next((self.names[ledger] for ledger in ledgers if ledger in self.names), None),
                not self.guessed.intersection(members),
                tuple(text for ledger in ledgers for text in self.evidence[ledger]),
                tuple(sorted({by for ledger in ledgers for by in self.mentioned[ledger]})),
            )

    def _join_next(self, ends: Mapping[int, Ends], meet: PairTest, why: str) -> bool:
        """Join each ledger with its only possible successor. Returns True if any were joined."""
        joined = False
        for ledger, other in neighbours(ends, self._producers, self.members, meet, self._can_join):
            if self._can_join(ledger, other):
                self._join(ledger, other)
                self.evidence[other].append(why.format(ledger))
                self.guessed.add(other)
                joined = True
        return joined

    @cached_property
    def _indexes(self) -> dict[int, Ends]:
        return {ledger: _by_index(self.clues[ledger]) for ledger in self.members if ledger not in self.torn}

    @cached_property
    def _producers(self) -> dict[int, Ends]:
        return {
            ledger: _by_producer(self.clues[ledger]) for ledger in self.members if ledger not in self.torn
        }

    def _join(self, ledger: int, other: int) -> None:
        together = self.members[ledger]
        if together is self.members[other]:
            return
        together |= self.members[other]
        for ledger_id in self.members[other]:
            self.members[ledger_id] = together

    def _fit_names(self, ledger: int, other: int) -> bool:
        known = {self.names[at] for at in self.members[ledger] | self.members[other] if at in self.names}
        return len(known) < 2

    def _can_join(self, ledger: int, other: int) -> bool:
        return self.members[ledger] is not self.members[other] and self._compatible(ledger, other)

    def _compatible(self, ledger: int, other: int) -> bool:
        """True if two groups can be one topic: their names agree, and indexes and times are in order."""
        if not self._fit_names(ledger, other):
            return False
        ordered = [self.clues[at] for at in sorted(self.members[ledger] | self.members[other])]
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


def _in_order(earlier: DataClues, later: DataClues) -> bool:
    if earlier.last_index is None or later.first_index is None:
        return True
    return earlier.last_index < later.first_index


def _in_time(earlier: DataClues, later: DataClues) -> bool:
    if earlier.last_time is None or later.first_time is None:
        return True
    skew = 0 if earlier.times_by_broker and later.times_by_broker else SKEW
    return earlier.last_time <= later.first_time + skew
