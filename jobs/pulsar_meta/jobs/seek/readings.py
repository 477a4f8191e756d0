"""What a search asks for, what it is sent, and what it keeps of that: the sans-IO side of a seek.

A search yields `Read` and is sent a list of `Reading`. Whoever drives it decides where entries come
from: a bookie's disk, a live bookie, a Spark worker, a counting fake.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class State(Enum):
    """What became of an entry that was asked for."""

    READ = "read"
    MISSING = "missing"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Read:
    """A request: the entries [first, last] of a ledger, in one round trip."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What an entry says of itself.

    Indexes are those of its first and last message, None without broker metadata; times are in
    milliseconds. `batched` tells whether its messages have batch indexes. `span` entries from this one on
    are as it is: a whole missing ledger is one reading.
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


class Mark(NamedTuple):
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


class Blank(NamedTuple):
    """Ordinals [start, stop) that say nothing on the measure, and why."""

    start: int
    stop: int
    state: State


class Knowledge:
    """Everything read so far of a topic on one measure; questions about the same topic share it."""

    def __init__(self, measure: Measure) -> None:
        """`measure` says what is searched: `by_index` or one of CLOCKS."""
        self.measure = measure
        self.marks: list[Mark] = []
        self.blanks: list[Blank] = []
        self.blank_reads = 0
        self.disordered = False

    def add(self, ordinal: int, reading: Reading, span: int = 1) -> None:
        """Take in what the entry with this ordinal (and `span` - 1 more) says."""
        values = self.measure(reading) if reading.state is State.READ else None
        if values is None:
            self.blank_reads += 1
            self._add_blank(Blank(ordinal, ordinal + span, reading.state))
            return
        at = bisect_left(self.marks, ordinal, key=_ordinal)
        if at < len(self.marks) and self.marks[at].ordinal == ordinal:
            return
        mark = Mark(ordinal, *values, reading)
        self.marks.insert(at, mark)
        before, after = self.marks[at - 1 : at], self.marks[at + 1 : at + 2]
        self.disordered |= any(not _rises(one, mark, self.measure is by_index) for one in before)
        self.disordered |= any(not _rises(mark, one, self.measure is by_index) for one in after)

    def _add_blank(self, blank: Blank) -> None:
        at = bisect_left(self.blanks, blank.start, key=_start)
        if at < len(self.blanks):
            blank = blank._replace(stop=min(blank.stop, self.blanks[at].start))
            if blank.start >= blank.stop:
                return
        self.blanks.insert(at, blank)
        self._merge(at)
        self._merge(at - 1)

    def _merge(self, at: int) -> None:
        if not 0 <= at < len(self.blanks) - 1:
            return
        one, two = self.blanks[at : at + 2]
        if one.stop == two.start and one.state is two.state:
            self.blanks[at : at + 2] = [one._replace(stop=two.stop)]

    def bracket(self, target: int, start: int, stop: int) -> tuple[Mark | None, Mark | None]:
        """Return neighbouring marks within ordinals [start, stop): the one below the target, the next one.

        `below` ends before the target; `next` holds it or lies above it. Where values step back there
        are several such pairs, and this is one of them.
        """
        first = bisect_left(self.marks, start, key=_ordinal)
        after = bisect_left(self.marks, stop, key=_ordinal)
        at = bisect_left(self.marks, target, first, after, key=_high)
        return (
            self.marks[at - 1] if at > first else None,
            self.marks[at] if at < after else None,
        )

    def blanks_between(self, start: int, stop: int) -> Iterator[Blank]:
        """Yield the blanks within the ordinals [start, stop), in order."""
        at = max(bisect_right(self.blanks, start, key=_start) - 1, 0)
        while at < len(self.blanks) and self.blanks[at].start < stop:
            if self.blanks[at].stop > start:
                yield self.blanks[at]
            at += 1

    def gaps(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the unread ordinals of [start, stop), which holds no marks, as pairs [from, to)."""
        found = []
        for blank in self.blanks_between(start, stop):
            if blank.start > start:
                found.append((start, blank.start))
            start = blank.stop
        if start < stop:
            found.append((start, stop))
        return found


def _ordinal(mark: Mark) -> int:
    return mark.ordinal


def _high(mark: Mark) -> int:
    return mark.high


def _start(blank: Blank) -> int:
    return blank.start


def _rises(one: Mark, two: Mark, counts: bool) -> bool:
    """Tell whether `two` can follow `one` where nothing stepped back; every entry takes one index."""
    return two.high - one.high >= (two.ordinal - one.ordinal if counts else 0)
