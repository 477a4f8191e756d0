"""Samples: the entries of a topic that one question has read, and the choice of the entries to read next.

The next entries are chosen by interpolation between points that are known, and by bisection if that does not
arrive. A point is (ordinal, value): the entry with this ordinal begins with this value. Entries that were
read give certain points. Ledger properties, close times and the topic's last index are hints. Hints move the
place that is read next, but never limit where the answer can be.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pulsar_meta.jobs.seek.ranges import IndexRange, is_kept
from pulsar_meta.jobs.seek.readings import Measure, Reading, ReadingOrder, State, by_index, value_of

# If interpolation has not arrived after so many probes, every second probe halves the range instead. So data
# that is not smooth costs at most about twice as much as bisection.
PATIENT_PROBES: Final = 6


class Sample(NamedTuple):
    """A reading that has a value on the measure: the entry's first and last value, and its ordinal."""

    ordinal: int
    low: int
    high: int
    reading: Reading


class EmptyRange(NamedTuple):
    """The ordinals [start, stop) of entries that have no value on the measure, and their state."""

    start: int
    stop: int
    state: State


class Samples:
    """Everything that one question has read of a topic, on one measure.

    `silent_reads` counts the readings that have no value on the measure.
    """

    def __init__(self, measure: Measure) -> None:
        """`measure` is `by_index` or one of CLOCKS."""
        self.measure = measure
        self.taken: list[Sample] = []
        self.empty: list[EmptyRange] = []
        self.silent_reads = 0

    def add(self, ordinal: int, reading: Reading, span: int = 1) -> None:
        """Keep the reading of the entry with this ordinal; the `span` - 1 entries after it are like it."""
        values = value_of(reading, self.measure)
        if values is None:
            self.silent_reads += 1
            self._add_empty(EmptyRange(ordinal, ordinal + span, reading.state))
            return
        at = bisect_left(self.taken, ordinal, key=_ordinal)
        if at == len(self.taken) or self.taken[at].ordinal != ordinal:
            self.taken.insert(at, Sample(ordinal, *values, reading))

    def _add_empty(self, gap: EmptyRange) -> None:
        at = bisect_left(self.empty, gap.start, key=_start)
        if at < len(self.empty):
            gap = gap._replace(stop=min(gap.stop, self.empty[at].start))
            if gap.start >= gap.stop:
                return
        self.empty.insert(at, gap)
        self._merge(at)
        self._merge(at - 1)

    def _merge(self, at: int) -> None:
        """Join two neighbouring empty ranges if no entry is between them and their states are the same."""
        if not 0 <= at < len(self.empty) - 1:
            return
        left, right = self.empty[at : at + 2]
        if left.stop == right.start and left.state is right.state:
            self.empty[at : at + 2] = [left._replace(stop=right.stop)]

    def bracket(self, target: int, start: int, stop: int) -> tuple[Sample | None, Sample | None]:
        """Return the last sample below the target and the next one, within the ordinals [start, stop).

        The next one includes the target or is above it. If values step back, there are several such pairs,
        and this is one of them.
        """
        first = bisect_left(self.taken, start, key=_ordinal)
        after = bisect_left(self.taken, stop, key=_ordinal)
        at = bisect_left(self.taken, target, first, after, key=_high)
        return (
            self.taken[at - 1] if at > first else None,
            self.taken[at] if at < after else None,
        )

    def empty_between(self, start: int, stop: int) -> Iterator[EmptyRange]:
        """Yield the empty ranges within the ordinals [start, stop), in order."""
        at = max(bisect_right(self.empty, start, key=_start) - 1, 0)
        while at < len(self.empty) and self.empty[at].start < stop:
            if self.empty[at].stop > start:
                yield self.empty[at]
            at += 1

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the unread ordinals of [start, stop), which has no samples, as pairs [from, to)."""
        gaps = []
        for empty in self.empty_between(start, stop):
            if empty.start > start:
                gaps.append((start, empty.start))
            start = empty.stop
        if start < stop:
            gaps.append((start, stop))
        return gaps


def _ordinal(sample: Sample) -> int:
    return sample.ordinal


def _high(sample: Sample) -> int:
    return sample.high


def _start(gap: EmptyRange) -> int:
    return gap.start


class Point(NamedTuple):
    """The entry with this ordinal begins with this value, None if the value is not known."""

    ordinal: int
    value: int | None


class Hints:
    """Points that the metadata claims, ordered by ordinal."""

    __slots__ = ("ordinals", "values")

    def __init__(self, points: Sequence[tuple[int, int]]) -> None:
        self.ordinals = [ordinal for ordinal, _ in points]
        self.values = [value for _, value in points]

    def around(self, target: int, left: Point, right: Point) -> tuple[Point, Point]:
        """Return the closest points around the target that contradict neither `left` nor `right`."""
        first = bisect_left(self.ordinals, left.ordinal)
        after = bisect_right(self.ordinals, right.ordinal)
        at = bisect_right(self.values, target, first, after)
        if at > first and _is_between(left.value, self.values[at - 1], right.value):
            left = Point(self.ordinals[at - 1], self.values[at - 1])
        if at < after and _is_between(left.value, self.values[at], right.value):
            right = Point(self.ordinals[at], self.values[at])
        return left, right


def _is_between(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def index_hints(order: ReadingOrder, kept: Mapping[int, IndexRange]) -> Hints:
    """Return the indexes that kept ranges, the ledgers' properties and the topic's last index claim.

    The first index of a topic is 0, unless a property contradicts it.
    """
    firsts = [kept[span.ledger_id].low if is_kept(kept, span) else span.first_index for span in order.spans]
    points = [
        (start, first)
        for start, span, first in zip(order.starts, order.spans, firsts, strict=True)
        if first is not None and span.first_entry == 0
    ]
    if not points or points[0][0] > 0:
        points.insert(0, (0, 0))
    if order.last_index is not None and order.last_index >= 0:
        points.append((order.total, order.last_index + 1))
    return Hints(points)


def time_hints(order: ReadingOrder, target: int, skew: int) -> Hints:
    """Return the close times around a target time, as Pulsar uses them (PersistentMessageFinder, #22792).

    They are those of the last ledger that closed `skew` milliseconds before the target, and of the first one
    that closed as much after it. There are none if `skew` is negative, or if one of the closed ledgers has no
    close time.
    """
    closed = [span.closed_at for span in order.spans[:-1]]
    if skew < 0 or None in closed:
        return Hints([])
    stops = [start + span.entries for start, span in zip(order.starts, order.spans, strict=True)]
    times = [
        (stop, span.closed_at)
        for stop, span in zip(stops, order.spans, strict=True)
        if span.closed_at is not None
    ]
    before = [point for point in times if point[1] <= target - skew]
    after = [point for point in times if point[1] > target + skew]
    points = before[-1:] + after[:1]
    return Hints(points if points == sorted(points) else [])


def choose_window(
    samples: Samples,
    hints: Hints,
    target: int,
    gap: tuple[int, int],
    bracket: tuple[Sample | None, Sample | None],
    probes: int,
    per_read: int,
) -> tuple[int, int]:
    """Return the ordinals [first, last] to read next, within the unread `gap`.

    `bracket` has the samples next to the target, `probes` counts the reads of this search so far, and
    `per_read` is the largest number of entries that one round trip returns.
    """
    start, stop = gap
    below, above = bracket
    step = 1 if samples.measure is by_index else 0
    left = Point(start, below.high + step if below else None)
    right = Point(stop, above.low if above else None)
    left, right = hints.around(target, left, right)
    if probes >= PATIENT_PROBES and probes % 2 == 0:
        return window((start + stop) // 2, gap, per_read)
    if right.value is None:
        return window(stop - 1, gap, per_read)
    if left.value is None:
        return window(start, gap, per_read)
    return window(interpolate(target, left, right), gap, per_read)


def interpolate(target: int, left: Point, right: Point) -> int:
    """Return the ordinal at which the target would be if values grew evenly between two points."""
    if left.value is None or right.value is None or right.value <= left.value:
        return (left.ordinal + right.ordinal) // 2
    share = (target - left.value) * (right.ordinal - left.ordinal)
    return left.ordinal + share // (right.value - left.value)


def window(ordinal: int, gap: tuple[int, int], per_read: int) -> tuple[int, int]:
    """Return [first, last] of at most `per_read` entries around an ordinal.

    The window begins or ends at an edge of the gap if the edge is close, so that no small rest is left.
    """
    start, stop = gap
    ordinal = min(max(ordinal, start), stop - 1)
    first = ordinal - per_read // 2
    if ordinal - start < per_read * 2 // 3:
        first = start
    elif stop - ordinal <= per_read * 2 // 3:
        first = stop - per_read
    first = max(first, start)
    return first, min(first + per_read, stop) - 1
