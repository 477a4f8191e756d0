"""The search for an index or a time in a topic: a generator that asks for entries and never does I/O.

The bracket around a target comes only from entries that were read, so that a false property, close
time or last index costs reads and never changes an answer. What is taken for granted: inside one
ledger indexes do not step back (a broker numbers under the ledger's lock, and one that loads a topic
starts a new ledger). Where anything read says that they step back between ledgers, no answer "it is
not there" is given before every ledger that could hold the index was looked into.

Sources: PIP-415 and PersistentTopicsBase (index), PersistentMessageFinder and OpFindNewest (time).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pulsar_meta.jobs.seek.probe import Hints, choose_window, index_hints, time_hints, window
from pulsar_meta.jobs.seek.reading_order import ReadingOrder
from pulsar_meta.jobs.seek.samples import Reading, ReadRequest, Sample, Samples, State, by_index
from pulsar_meta.jobs.topics.topic import Position

# Up to this many ledgers, "it is not there" is always said only after a look into each.
FEW_LEDGERS: Final = 128
# How many reads that say nothing (no broker metadata, missing, unreadable) a search of a topic spends on
# entries that lie between others like them, unless it is to be exhaustive.
PATIENCE: Final = 2000
CLOSE_TIME_SKEW: Final = 60_000

Status = Literal[
    "found", "before-first", "after-last", "gap", "no-index", "missing-ledger", "unreadable", "no-topic",
    "aborted", "marker", "open", "unknown",
]  # fmt: skip
FOUND: Final = "found"
BEFORE_FIRST: Final = "before-first"
AFTER_LAST: Final = "after-last"
GAP: Final = "gap"
NO_INDEX: Final = "no-index"
MISSING: Final = "missing-ledger"
UNREADABLE: Final = "unreadable"
_obstacles: Final[tuple[tuple[State, Status], ...]] = (
    (State.MISSING, MISSING),
    (State.UNREADABLE, UNREADABLE),
    (State.READ, NO_INDEX),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one question; `reading` is the entry that was found.

    `before` is the last entry that was read and lies below the target next to the answer (the newest
    expired one, where the target is a time to live); `entries_read` and `round_trips` are its price.
    """

    status: Status
    reading: Reading | None = None
    before: Reading | None = None
    entries_read: int = 0
    round_trips: int = 0


@dataclass(slots=True)
class SearchState:
    """What a search works on: the ledgers in order, and what earlier searches by the measure read."""

    order: ReadingOrder
    samples: Samples
    per_read: int = 1
    exhaustive: bool = False
    _index_hints: Hints | None = field(default=None, repr=False)

    @property
    def counts(self) -> bool:
        """Return whether indexes are searched, not times."""
        return self.samples.measure is by_index

    def hints(self, target: int, skew: int) -> Hints:
        """Return what the metadata claims about the target's surroundings."""
        if not self.counts:
            return time_hints(self.order, target, skew)
        if self._index_hints is None:
            self._index_hints = index_hints(self.order)
        return self._index_hints


Search = Generator[ReadRequest, Sequence[Reading], Outcome]
_Steps = Generator[ReadRequest, Sequence[Reading], "Sample | None"]


def search(topic: SearchState, target: int, *, skew: int = CLOSE_TIME_SKEW) -> Search:
    """Find the entry that holds the index `target`, or the first one whose time is not before `target`.

    Yields `ReadRequest` (at most `topic.per_read` entries of one ledger) and is sent a `Reading` for each
    entry of it, in order; fewer will do where the first is among them. `skew` is how many milliseconds clocks
    may disagree with the ledgers' close times. Returns an `Outcome`; raises nothing of its own.
    """
    one = _OneSearch(topic, target, topic.hints(target, skew))
    order = topic.order
    if order.total == 0:
        gone = topic.counts and target <= (-1 if order.last_index is None else order.last_index)
        return one.outcome(BEFORE_FIRST if gone else AFTER_LAST)
    found = yield from one.search_range(0, order.total)
    if found is None and topic.counts:
        found = yield from one.search_each_ledger()
    elif topic.exhaustive and not topic.counts:
        found = yield from one.read_from(0)
    return one.conclude(found)


class _OneSearch:
    """One question: its bracket, its probes and what they cost."""

    def __init__(self, topic: SearchState, target: int, hints: Hints) -> None:
        self.topic = topic
        self.order = topic.order
        self.samples = topic.samples
        self.target = target
        self.hints = hints
        self.probes = 0
        self.entries_read = 0

    def search_range(self, start: int, stop: int) -> _Steps:
        """Close in on the target within ordinals [start, stop) until it is found or nothing is unread."""
        probes = 0
        while True:
            below, above = self.samples.bracket(self.target, start, stop)
            if above is not None and self.topic.counts and above.low <= self.target:
                return above
            left = below.ordinal + 1 if below else start
            right = above.ordinal if above else stop
            gap = self._choose(left, right, below, above)
            if gap is None:
                return None if self.topic.counts else above
            per_read = self.topic.per_read
            if gap[1] - gap[0] <= per_read:
                first, last = gap[0], gap[1] - 1
            else:
                first, last = choose_window(
                    self.samples, self.hints, self.target, gap, (below, above), probes, per_read
                )
            yield from self.read(first, last)
            probes += 1

    def _choose(
        self, start: int, stop: int, below: Sample | None, above: Sample | None
    ) -> tuple[int, int] | None:
        """Pick the unread gap to look into: beside an entry that was read, else between empty ranges."""
        gaps = self.samples.gaps(start, stop)
        if len(gaps) == 1 and gaps[0] == (start, stop):
            return gaps[0]
        beside = [
            gap
            for gap in gaps
            if (below is not None and gap[0] == start) or (above is not None and gap[1] == stop)
        ]
        if beside:
            return _widest(beside)
        if self.samples.empty_reads <= PATIENCE:
            return _widest(gaps)
        return gaps[0] if gaps and self.topic.exhaustive else None

    def read(self, first: int, last: int) -> Generator[ReadRequest, Sequence[Reading], None]:
        """Ask for the ordinals [first, last], no further than their ledger goes, and take in the answer."""
        start, stop = self.order.ledger_bounds(first)
        ledger_id, entry_id = self.order.position(first)
        readings = yield ReadRequest(ledger_id, entry_id, entry_id + min(last, stop - 1) - first)
        self.probes += 1
        for reading in readings or [Reading(ledger_id, entry_id, State.MISSING)]:
            ordinal = max(first + reading.entry_id - entry_id, start)
            self.entries_read += reading.state is not State.MISSING
            self.samples.add(ordinal, reading, min(reading.span, stop - ordinal))

    def search_each_ledger(self) -> _Steps:
        """Look again where "it is not there" rests on indexes that never step back."""
        order, few = self.order, len(self.order.spans) <= FEW_LEDGERS
        if not few and not self.topic.exhaustive:
            for ordinal in (0, order.total - 1):
                if not self._known(ordinal):
                    yield from self.read(ordinal, ordinal)
            if not self.samples.disordered and self.hints.rising:
                return None
        for start, span in zip(order.starts, order.spans, strict=True):
            found = yield from self.search_range(start, start + span.entries)
            if found is not None:
                return found
        return None

    def _known(self, ordinal: int) -> bool:
        sample, _ = self.samples.bracket(2**63, ordinal, ordinal + 1)
        return sample is not None or not self.samples.gaps(ordinal, ordinal + 1)

    def read_from(self, start: int) -> _Steps:
        """Read everything from ordinal `start` until the first entry that is not before the target."""
        for ordinal in range(start, self.order.total):
            if not self._known(ordinal):
                yield from self.read(*window(ordinal, (ordinal, self.order.total), self.topic.per_read))
            sample, _ = self.samples.bracket(2**63, ordinal, ordinal + 1)
            if sample is not None and sample.high >= self.target:
                return sample
        return None

    def conclude(self, found: Sample | None) -> Outcome:
        """Turn what was found, or what lies around the place where it is not, into an answer."""
        below, above = self.samples.bracket(self.target, 0, self.order.total)
        if found is not None:
            below = self.samples.bracket(2**63, 0, found.ordinal)[0]
        start = below.ordinal + 1 if below else 0
        stop = found.ordinal if found else above.ordinal if above else self.order.total
        before = below.reading if below else None
        obstacle = self._obstacle(start, stop)
        if found is not None and (self.topic.counts or obstacle in (None, NO_INDEX)):
            return self.outcome(FOUND, found.reading, before)
        if obstacle is None:
            obstacle = AFTER_LAST if above is None else BEFORE_FIRST if below is None else GAP
        return self.outcome(obstacle, None, before)

    def _obstacle(self, start: int, stop: int) -> Status | None:
        states = {gap.state for gap in self.samples.empty_between(start, stop)}
        if self.samples.gaps(start, stop):
            states.add(State.READ)
        return next((status for state, status in _obstacles if state in states), None)

    def outcome(self, status: Status, found: Reading | None = None, before: Reading | None = None) -> Outcome:
        """Return the outcome with its price."""
        return Outcome(status, found, before, self.entries_read, self.probes)


def _widest(gaps: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the widest gap, of equal ones the last: topics that lack broker metadata lack it early."""
    return max(gaps, key=lambda gap: (gap[1] - gap[0], gap[0]), default=None)


def positions(outcome: Outcome) -> Position | None:
    """Return the position that was found, if one was."""
    return Position(outcome.reading.ledger_id, outcome.reading.entry_id) if outcome.reading else None
