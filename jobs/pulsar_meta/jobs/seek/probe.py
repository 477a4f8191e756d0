"""Where a search looks next: interpolation between what is known, bisection where that does not help.

Interpolation uses boundary points (ordinal, value): "the entry with this ordinal begins with this
value". Entries that were read give certain ones; ledger properties, close times and the managed
ledger's last index give hints, which only ever narrow the aim, never the bracket.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from pulsar_meta.jobs.seek.reading_order import ReadingOrder
from pulsar_meta.jobs.seek.samples import Sample, Samples, by_index

# Interpolation that has not arrived by this probe takes turns with halving, so that data that is not
# smooth costs at most about twice what bisection costs.
PATIENT_PROBES: Final = 6


class Point(NamedTuple):
    """The entry with this ordinal begins with this value; None where nobody knows."""

    ordinal: int
    value: int | None


class Hints:
    """Boundary points that the metadata claims, ordered by ordinal."""

    __slots__ = ("ordinals", "values")

    def __init__(self, points: Sequence[tuple[int, int]]) -> None:
        self.ordinals = [ordinal for ordinal, _ in points]
        self.values = [value for _, value in points]

    def around(self, target: int, left: Point, right: Point) -> tuple[Point, Point]:
        """Return the closest points around the target that contradict neither `left` nor `right`."""
        first = bisect_left(self.ordinals, left.ordinal)
        after = bisect_right(self.ordinals, right.ordinal)
        at = bisect_right(self.values, target, first, after)
        if at > first and _between(left.value, self.values[at - 1], right.value):
            left = Point(self.ordinals[at - 1], self.values[at - 1])
        if at < after and _between(left.value, self.values[at], right.value):
            right = Point(self.ordinals[at], self.values[at])
        return left, right


def _between(low: int | None, value: int, high: int | None) -> bool:
    return (low is None or low <= value) and (high is None or value <= high)


def index_hints(order: ReadingOrder) -> Hints:
    """Return what properties and the managed ledger claim about indexes: a topic begins with 0."""
    points = [
        (start, span.first_index)
        for start, span in zip(order.starts, order.spans, strict=True)
        if span.first_index is not None and span.first_entry == 0
    ]
    if not points or points[0][0] > 0:
        points.insert(0, (0, 0))
    if order.last_index is not None and order.last_index >= 0:
        points.append((order.total, order.last_index + 1))
    return Hints(points)


def time_hints(order: ReadingOrder, target: int, skew: int) -> Hints:
    """Return the close times around a target time, as Pulsar narrows (PersistentMessageFinder, #22792).

    From the last ledger that closed `skew` milliseconds before the target to the first that closed as
    much after it. A ledger without a close time among the closed ones, or a negative skew: none.
    """
    closed = [span.closed_at for span in order.spans[:-1]]
    if skew < 0 or None in closed:
        return Hints([])
    stops = [start + span.entries for start, span in zip(order.starts, order.spans, strict=True)]
    times = [(stop, span.closed_at) for stop, span in zip(stops, order.spans, strict=True)]
    before = [point for point in times if point[1] is not None and point[1] <= target - skew]
    after = [point for point in times if point[1] is not None and point[1] > target + skew]
    points = [(stop, time) for stop, time in before[-1:] + after[:1] if time is not None]
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

    `bracket` are the neighbouring samples around the target, `probes` counts what this search has read
    already and `per_read` is the most entries that one round trip brings.
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
    """Return the ordinal that would begin at or before the target if values grew evenly."""
    if left.value is None or right.value is None or right.value <= left.value:
        return (left.ordinal + right.ordinal) // 2
    share = (target - left.value) * (right.ordinal - left.ordinal)
    return left.ordinal + share // (right.value - left.value)


def window(ordinal: int, gap: tuple[int, int], per_read: int) -> tuple[int, int]:
    """Return [first, last] of at most `per_read` entries around an ordinal, leaning on the gap's edges."""
    start, stop = gap
    ordinal = min(max(ordinal, start), stop - 1)
    first = ordinal - per_read // 2
    if ordinal - start < per_read * 2 // 3:
        first = start
    elif stop - ordinal <= per_read * 2 // 3:
        first = stop - per_read
    first = max(first, start)
    return first, min(first + per_read, stop) - 1
