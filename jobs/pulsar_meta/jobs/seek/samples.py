"""Samples of a topic: what a search asks for (`ReadRequest`), gets (`Reading`) and keeps (`Samples`).

Nothing here reads an entry: the caller decides if entries come from a bookie's disk, a live bookie or a fake.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pulsar_meta.codecs.transactions.log_entries import TxnId


class State(Enum):
    """What became of an entry that was asked for."""

    READ = "read"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A request: the entries [first, last] of a ledger, in one round trip."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What an entry says of itself.

    Indexes are those of its first and last message, None without broker metadata; times are in
    milliseconds. `batched`: whether its messages have batch indexes. `span` entries from this one on
    are as it is: a whole missing ledger is one reading. `txn` is the transaction of its messages, and
    `marker` whether it is a marker and has none.
    """

    ledger_id: int
    entry_id: int
    state: State = State.READ
    first_index: int | None = None
    last_index: int | None = None
    broker_timestamp: int | None = None
    publish_time: int | None = None
    batched: bool = False
    span: int = 1
    txn: TxnId | None = None
    marker: bool = False


class Sample(NamedTuple):
    """A reading on the measure that is searched: an entry's first and last value, and its ordinal."""

    ordinal: int
    low: int
    high: int
    reading: Reading


Measure = Callable[[Reading], tuple[int, int] | None]


def by_index(reading: Reading) -> tuple[int, int] | None:
    """Return the entry's range of message indexes."""
    if reading.first_index is None or reading.last_index is None:
        return None
    return reading.first_index, reading.last_index


def by_broker_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the broker's timestamp, twice."""
    time = reading.broker_timestamp
    return None if time is None else (time, time)


def by_publish_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the producer's publish time, twice."""
    time = reading.publish_time
    return None if time is None else (time, time)


def by_either_clock(reading: Reading) -> tuple[int, int] | None:
    """Return the broker's timestamp, else the publish time (Pulsar: Entry.getEntryTimestamp)."""
    return by_broker_clock(reading) or by_publish_clock(reading)


CLOCKS: Final[dict[str, Measure]] = {
    "auto": by_either_clock,
    "broker": by_broker_clock,
    "publish": by_publish_clock,
}


def value_of(reading: Reading, measure: Measure) -> tuple[int, int] | None:
    """Return an entry's first and last value on a measure, None if it was not read or has none."""
    return measure(reading) if reading.state is State.READ else None


class EmptyRange(NamedTuple):
    """Ordinals [start, stop) of entries that have no value on the measure, and why."""

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
        if not 0 <= at < len(self.empty) - 1:
            return
        one, two = self.empty[at : at + 2]
        if one.stop == two.start and one.state is two.state:
            self.empty[at : at + 2] = [one._replace(stop=two.stop)]

    def bracket(self, target: int, start: int, stop: int) -> tuple[Sample | None, Sample | None]:
        """Return neighbouring samples within ordinals [start, stop): the one below the target, the next one.

        `below` ends before the target; `next` holds it or lies above it. Where values step back there
        are several such pairs, and this is one of them.
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
        """Return the unread ordinals of [start, stop), which holds no samples, as pairs [from, to)."""
        found = []
        for gap in self.empty_between(start, stop):
            if gap.start > start:
                found.append((start, gap.start))
            start = gap.stop
        if start < stop:
            found.append((start, stop))
        return found


def _ordinal(sample: Sample) -> int:
    return sample.ordinal


def _high(sample: Sample) -> int:
    return sample.high


def _start(gap: EmptyRange) -> int:
    return gap.start
