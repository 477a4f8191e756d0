"""Divide a subscription's backlog by the age of its entries.

An entry is as old as its timestamp says: the broker's, or else the producer's publish time. Timestamps hardly
ever go back within a ledger, so a binary search reads few entries. Without entries, an entry is at least as
old as the time at which its ledger was closed.

Source: apache/pulsar MLDataFormats.proto (LedgerInfo.timestamp), Entry.getEntryTimestamp.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import time
from typing import Final, Literal, TypedDict

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import Subscription
from pulsar_meta.jobs.seek.readings import Reading, read_one
from pulsar_meta.jobs.topics.backlog import Run
from pulsar_meta.jobs.topics.topic import Ledger, Position

HOUR: Final = 3_600_000
# The classes of age and their ends in milliseconds. Entries that are older are in the class after them.
CLASSES: Final = ("hour", "day", "week", "month", "older")
ENDS: Final = (HOUR, 24 * HOUR, 7 * 24 * HOUR, 30 * 24 * HOUR)
UNKNOWN: Final = "unknown"


class AgeClasses(TypedDict):
    """The numbers of entries that are at most an hour, a day, a week, 30 days old, and older.

    `unknown` are entries without a timestamp, or in an open ledger that was not read.
    """

    hour: int
    day: int
    week: int
    month: int
    older: int
    unknown: int


class BacklogAge(TypedDict):
    """The age of a backlog. Null is unknown.

    `oldest` is the first unacknowledged entry and `since` its time in milliseconds, according to the `clock`
    of the broker, of the producer (publish), or of its ledger: then the entry is older than `since`, which is
    when the ledger was closed. `entries` are the entries of the backlog by age.
    """

    oldest: str
    since: int | None
    clock: Literal["broker", "publish", "ledger"] | None
    entries: AgeClasses


@dataclass(slots=True)
class BacklogAges:
    """Finds the ages of backlogs at the time `now`, in milliseconds. `source` is None without entries.

    Entries that were read are cached, because subscriptions of a topic share their ledgers.
    """

    source: EntrySource | None
    now: int
    _readings: dict[Position, Reading] = field(default_factory=dict)

    @classmethod
    def today(cls, source: EntrySource | None) -> BacklogAges:
        """Find ages at the current time."""
        return cls(source, int(time() * 1000))

    def of(self, subscription: Subscription) -> BacklogAge | None:
        """Return the age of a subscription's backlog; None if there is none or it is unknown."""
        left = subscription.backlog
        if left is None or not left.runs:
            return None
        ledgers = {ledger.ledger_id: ledger for ledger in subscription.topic.ledgers}
        counts = dict.fromkeys((*CLASSES, UNKNOWN), 0)
        for ledger_id, runs in groupby(left.runs, key=lambda run: run.ledger_id):
            for name, entries in self._classes(ledgers[ledger_id], list(runs)):
                counts[name] += entries
        since, clock = self._since(left.runs[0], ledgers)
        return {
            "oldest": f"{left.runs[0].ledger_id}:{left.runs[0].first}",
            "since": since,
            "clock": clock,
            "entries": _classes_of(counts),
        }

    def _since(
        self, run: Run, ledgers: Mapping[int, Ledger]
    ) -> tuple[int | None, Literal["broker", "publish", "ledger"] | None]:
        reading = self._reading(run.ledger_id, run.first)
        if reading is not None and reading.broker_timestamp is not None:
            return reading.broker_timestamp, "broker"
        if reading is not None and reading.publish_time:
            return reading.publish_time, "publish"
        closed = ledgers[run.ledger_id].closed_at
        return closed, None if closed is None else "ledger"

    def _classes(self, ledger: Ledger, runs: Sequence[Run]) -> Iterator[tuple[str, int]]:
        """Yield (class, number of entries) of the runs of one ledger.

        An entry can be older than the ledger, because brokers stamp messages before they wait for a ledger.
        """
        total, closed = _count(runs), ledger.closed_at
        first, last = runs[0].first, runs[-1].last
        oldest, youngest = self._time(ledger.ledger_id, first), self._time(ledger.ledger_id, last)
        if oldest is None or youngest is None:
            yield UNKNOWN if closed is None else self._class(closed), total
            return
        before = 0
        for name in CLASSES[self._number(oldest) : self._number(youngest) : -1]:
            # The entries of this class end before the first one that is young enough for the next class.
            end = self._first_after(ledger.ledger_id, first, last, self.now - ENDS[CLASSES.index(name) - 1])
            counted = _count_before(runs, end)
            yield name, counted - before
            before = counted
        yield self._class(youngest), total - before

    def _first_after(self, ledger_id: int, first: int, last: int, start: int) -> int:
        """Return the first entry in [first, last] at or after the time `start`, or last + 1."""

        def is_after(entry_id: int) -> bool:
            entry_time = self._time(ledger_id, entry_id)
            return entry_time is not None and entry_time >= start

        return first + bisect_left(range(first, last + 1), True, key=is_after)

    def _time(self, ledger_id: int, entry_id: int) -> int | None:
        reading = self._reading(ledger_id, entry_id)
        if reading is None:
            return None
        return reading.publish_time or None if reading.broker_timestamp is None else reading.broker_timestamp

    def _reading(self, ledger_id: int, entry_id: int) -> Reading | None:
        if self.source is None:
            return None
        place = Position(ledger_id, entry_id)
        if place not in self._readings:
            self._readings[place] = read_one(self.source, ledger_id, entry_id)
        return self._readings[place]

    def _class(self, written: int) -> str:
        return CLASSES[self._number(written)]

    def _number(self, written: int) -> int:
        return bisect_left(ENDS, self.now - written)


def _count(runs: Sequence[Run]) -> int:
    return sum(run.last - run.first + 1 for run in runs)


def _count_before(runs: Sequence[Run], entry_id: int) -> int:
    """Count the entries before an entry id in the runs of one ledger."""
    at = bisect_right(runs, entry_id, key=lambda run: run.first)
    whole = _count(runs[: max(0, at - 1)])
    return whole + (min(runs[at - 1].last, entry_id - 1) - runs[at - 1].first + 1 if at else 0)


def _classes_of(counts: Mapping[str, int]) -> AgeClasses:
    return {
        "hour": counts["hour"],
        "day": counts["day"],
        "week": counts["week"],
        "month": counts["month"],
        "older": counts["older"],
        UNKNOWN: counts[UNKNOWN],
    }
