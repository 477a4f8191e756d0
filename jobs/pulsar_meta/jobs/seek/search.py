"""Search a topic for an index or a time, with as few reads as possible.

Only entries that were read decide an answer. A ledger's properties, its close time and the topic's last index
choose where to read first, so a false one costs reads and never changes an answer.

Inside one ledger indexes do not step back: a broker numbers entries under the ledger's lock, and a broker
that loads a topic starts a new ledger. Between ledgers they can. So an index that is not where it belongs is
only called absent after the first and the last index of every ledger were read (`LedgerRanges`).

Each search begins without the results of earlier ones. Its answer depends on the topic alone.

Sources: PIP-415 and PersistentTopicsBase (index), PersistentMessageFinder and OpFindNewest (time).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from pulsar_meta.jobs.seek.ranges import IndexRange, LedgerRanges
from pulsar_meta.jobs.seek.readings import (
    AFTER_LAST,
    BEFORE_FIRST,
    FOUND,
    GAP,
    NO_INDEX,
    PATIENCE,
    UNKNOWN,
    Measure,
    Reading,
    ReadingOrder,
    ReadRequest,
    Status,
    by_index,
    obstacle_of,
    out_of_patience,
    value_of,
)
from pulsar_meta.jobs.seek.samples import (
    Hints,
    Sample,
    Samples,
    choose_window,
    index_hints,
    time_hints,
    window,
)

# Milliseconds by which clocks may differ from the close times of ledgers.
CLOSE_TIME_SKEW: Final = 60_000


class Reads(Protocol):
    """Reads the headers of entries; `entries_read` and `round_trips` count what that cost."""

    entries_per_read: int
    entries_read: int
    round_trips: int

    def read(self, request: ReadRequest) -> Sequence[Reading]:
        """Return readings of all entries of a request, in order; one reading may span several."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one question; `reading` is the entry that was found.

    `before` is the last entry that was read and is below the target (the newest expired entry, if the target
    is a time to live). `entries_read` and `round_trips` are what the search cost. `limit` says which limit
    ended it, if the status is `unknown`.
    """

    status: Status
    reading: Reading | None = None
    before: Reading | None = None
    entries_read: int = 0
    round_trips: int = 0
    limit: str | None = None


class TopicSearch:
    """Searches one topic on one measure.

    Searches share the entries that were read, the index ranges of the ledgers, and the latest times: none of
    these depends on a question.
    """

    def __init__(
        self,
        order: ReadingOrder,
        measure: Measure,
        reads: Reads,
        *,
        exhaustive: bool = False,
        kept: Mapping[int, IndexRange] = MappingProxyType({}),
    ) -> None:
        """`measure` is `by_index` or one of CLOCKS. `exhaustive` removes the limits.

        `kept` has ranges of ledgers that are known before, by ledger id.
        """
        self.order = order
        self.measure = measure
        self.reads = reads
        self.exhaustive = exhaustive
        self.ledger_ranges = LedgerRanges(
            order, self.read, reads.entries_per_read, exhaustive=exhaustive, kept=kept
        )
        self.latest_times = LatestTimes(self)
        self._index_hints = index_hints(order, kept)

    def find(self, target: int, *, skew: int = CLOSE_TIME_SKEW) -> Outcome:
        """Find the entry that holds the index `target`, or the first one whose time is not before `target`.

        `skew` is how many milliseconds clocks may differ from the ledgers' close times. Raises
        UnreachableError if the entries cannot be read.
        """
        entries_read, round_trips = self.reads.entries_read, self.reads.round_trips
        if self.order.total == 0:
            by_index_only = self.order.last_index if self.by_index else None
            status, sample, before, limit = status_of_empty(target, by_index_only), None, None, None
        else:
            hints = self._index_hints if self.by_index else time_hints(self.order, target, skew)
            search = _Search(self, target, hints)
            sample = search.find_index() if self.by_index else search.find_time()
            status, before, limit = search.status(sample), search.before(sample), search.limit
        return Outcome(
            status,
            sample.reading if sample and status == FOUND else None,
            before.reading if before else None,
            self.reads.entries_read - entries_read,
            self.reads.round_trips - round_trips,
            limit if status == UNKNOWN else None,
        )

    @property
    def by_index(self) -> bool:
        """True if indexes are searched, False if times are."""
        return self.measure is by_index

    def read(self, first: int, last: int) -> list[tuple[int, Reading, int]]:
        """Read the ordinals [first, last], but not beyond the ledger of the first.

        Returns (ordinal, reading, number of entries that are like it) for each reading.
        """
        start, stop = self.order.ledger_bounds(first)
        ledger_id, entry_id = self.order.position(first)
        request = ReadRequest(ledger_id, entry_id, entry_id + min(last, stop - 1) - first)
        readings = self.reads.read(request)
        numbered = [(max(first + reading.entry_id - entry_id, start), reading) for reading in readings]
        return [(ordinal, reading, min(reading.span, stop - ordinal)) for ordinal, reading in numbered]


class _Search:
    """One question: the samples that it has read, and the limit that it reached, if any."""

    def __init__(self, topic: TopicSearch, target: int, hints: Hints) -> None:
        self.topic = topic
        self.order = topic.order
        self.samples = Samples(topic.measure)
        self.target = target
        self.hints = hints
        self.limit: str | None = None

    def find_index(self) -> Sample | None:
        """Search where the index belongs, then in every other ledger that may hold it."""
        sample = self.search_range(0, self.order.total)
        if sample is not None:
            return sample
        ranges = self.topic.ledger_ranges
        ranges.read_all()
        self.limit = self.limit or ranges.limit
        for start, stop in ranges.ledgers_around(self.target):
            sample = self.search_range(start, stop)
            if sample is not None:
                return sample
        return None

    def find_time(self) -> Sample | None:
        """Search where the time belongs; an exhaustive search reads every entry before it as well."""
        if not self.topic.exhaustive:
            return self.search_range(0, self.order.total)
        sample = self.topic.latest_times.first_from(self.target)
        self.samples = self.topic.latest_times.samples
        return sample

    def search_range(self, start: int, stop: int) -> Sample | None:
        """Close in on the target within the ordinals [start, stop) until it is found or nothing is unread."""
        probes = 0
        while True:
            below, above = self.samples.bracket(self.target, start, stop)
            if above is not None and self.topic.by_index and above.low <= self.target:
                return above
            left = below.ordinal + 1 if below else start
            right = above.ordinal if above else stop
            gap = self._choose(left, right, below, above)
            if gap is None:
                return None if self.topic.by_index else above
            per_read = self.topic.reads.entries_per_read
            if gap[1] - gap[0] <= per_read:
                first, last = gap[0], gap[1] - 1
            else:
                first, last = choose_window(
                    self.samples, self.hints, self.target, gap, (below, above), probes, per_read
                )
            for ordinal, reading, span in self.topic.read(first, last):
                self.samples.add(ordinal, reading, span)
            probes += 1

    def _choose(
        self, start: int, stop: int, below: Sample | None, above: Sample | None
    ) -> tuple[int, int] | None:
        """Choose the unread gap to read next, or None if there is none or the patience is used up.

        Prefers a gap next to an entry that was read, because its value limits the search.
        """
        gaps = self.samples.gaps(start, stop)
        if len(gaps) == 1 and gaps[0] == (start, stop):
            return gaps[0]
        beside = [
            gap
            for gap in gaps
            if (below is not None and gap[0] == start) or (above is not None and gap[1] == stop)
        ]
        if beside or not gaps:
            return _widest(beside)
        if self.topic.exhaustive:
            return gaps[0]
        if self.samples.silent_reads <= PATIENCE:
            return _widest(gaps)
        self.limit = out_of_patience(self.topic.measure)
        return None

    def status(self, sample: Sample | None) -> Status:
        """Return `found`, or the reason why there is no entry at the place where the target belongs."""
        if sample is not None and self.topic.by_index:
            return FOUND
        if self.limit is not None:
            return UNKNOWN
        below, above = self.before(sample), self.samples.bracket(self.target, 0, self.order.total)[1]
        start = below.ordinal + 1 if below else 0
        stop = sample.ordinal if sample else above.ordinal if above else self.order.total
        obstacle = self._obstacle(start, stop)
        if sample is not None and obstacle in (None, NO_INDEX):
            return FOUND
        if obstacle is not None:
            return obstacle
        if not self.topic.by_index:
            return AFTER_LAST
        # If indexes step back, the bracket is not the only place where the target could be.
        lowest, highest = self.topic.ledger_ranges.extremes
        if above is None and (highest is None or self.target > highest):
            return AFTER_LAST
        return BEFORE_FIRST if below is None and (lowest is None or self.target < lowest) else GAP

    def before(self, sample: Sample | None) -> Sample | None:
        """Return the last sample before the answer, or before the place at which the target belongs."""
        if sample is not None:
            return self.samples.bracket(2**63, 0, sample.ordinal)[0]
        return self.samples.bracket(self.target, 0, self.order.total)[0]

    def _obstacle(self, start: int, stop: int) -> Status | None:
        return obstacle_of(gap.state for gap in self.samples.empty_between(start, stop))


class LatestTimes:
    """The entries that are later than every entry before them. Reads as far as questions need it."""

    def __init__(self, topic: TopicSearch) -> None:
        self.topic = topic
        self.samples = Samples(topic.measure)
        self._latest: list[Sample] = []
        self._next = 0

    def first_from(self, time: int) -> Sample | None:
        """Return the first sample that is not before `time`, None if there is none."""
        order, per_read = self.topic.order, self.topic.reads.entries_per_read
        while self._next < order.total and not (self._latest and self._latest[-1].high >= time):
            readings = self.topic.read(*window(self._next, (self._next, order.total), per_read))
            for ordinal, reading, span in readings:
                self._add(ordinal, reading, span)
                self._next = max(self._next, ordinal + span)
        at = bisect_left(self._latest, time, key=lambda sample: sample.high)
        return self._latest[at] if at < len(self._latest) else None

    def _add(self, ordinal: int, reading: Reading, span: int) -> None:
        self.samples.add(ordinal, reading, span)
        value = value_of(reading, self.topic.measure)
        if value is not None and not (self._latest and self._latest[-1].high >= value[1]):
            self._latest.append(Sample(ordinal, *value, reading))


def status_of_empty(target: int, last_index: int | None) -> Status:
    """Return the status of a target in a topic without entries, which had indexes up to `last_index`."""
    return AFTER_LAST if last_index is None or target > last_index else BEFORE_FIRST


def _widest(gaps: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the widest gap, of equal ones the last: topics that lack broker metadata lack it early."""
    return max(gaps, key=lambda gap: (gap[1] - gap[0], gap[0]), default=None)
