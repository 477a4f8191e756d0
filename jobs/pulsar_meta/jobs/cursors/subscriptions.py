"""Read subscriptions: the record, the cursor's ledger, how a broker recovers them, and their backlog's age.

Acknowledgments beyond the limits of persistence are only in the broker's memory.

In a backlog, an entry is as old as its timestamp says: the broker's, or else the producer's publish time.
Timestamps hardly ever go back within a ledger, so a binary search reads few entries. Without entries, an
entry is at least as old as the time at which its ledger was closed.

Source: apache/pulsar ServiceConfiguration (managedLedgerMax…ToPersist…), ManagedCursorImpl
(buildIndividualDeletedMessageRanges, buildBatchEntryDeletionIndexInfoList, shouldPersistUnackRangesToLedger),
MLDataFormats.proto (LedgerInfo.timestamp), Entry.getEntryTimestamp.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from time import time
from typing import Final, Literal, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor, managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.rules import read_settings
from pulsar_meta.jobs.seek.readings import Reading, read_one
from pulsar_meta.jobs.topics.backlog import Backlog, Run, backlog, count_entries
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import CursorState, Recovery, recovered
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Position, Report, Topic, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import Store, Versioned


@dataclass(frozen=True)
class Subscription:
    """A subscription of a topic: its record, its state, and how a broker recovers it.

    The ledgers of `topic` have their ends, from BookKeeper's metadata and the entries. `ledger` is the
    cursor's ledger; None if the state is in the record.
    """

    topic: Topic
    name: str
    stored: Versioned
    cursor_state: CursorState
    ledger: Ledger | None
    recovery: Recovery

    @property
    def record(self) -> ManagedCursorInfo:
        """The record in the store."""
        return self.cursor_state.record

    @cached_property
    def backlog(self) -> Backlog | None:
        """The backlog after a broker has loaded the topic; None if the state is unknown."""
        position, acks = self.recovery.mark_delete, self.recovery.acks
        if position is None or acks is None:
            return None
        return backlog(self.topic.ledgers, position, acks)


@dataclass(frozen=True, slots=True)
class SubscriptionReader:
    """Reads the subscriptions of topics. `source` is None if no entries were given."""

    store: Store
    source: EntrySource | None
    report: Report
    knows_ledgers: bool

    @classmethod
    def of(cls, store: Store, source: EntrySource | None, report: Report) -> SubscriptionReader:
        """Make a reader of this store. Corrupt records go to `report`."""
        return cls(store, source, report, has_metadata(store))

    def topic(self, topic: Topic) -> Topic:
        """Add the ends of a topic's ledgers, as far as they are known.

        Reads only about the ledgers whose end is not in the topic's record.
        """
        with_metadata = self.store if self.knows_ledgers else None
        without_end = [ledger for ledger in topic.ledgers if ledger.entries is None]
        ledgers = with_bookkeeper(with_metadata, without_end, self.report)
        if self.source is not None:
            source = self.source
            ledgers = (with_end(ledger, source) for ledger in ledgers)
        ends = {ledger.ledger_id: ledger for ledger in ledgers}
        return replace(topic, ledgers=tuple(ends.get(ledger.ledger_id, ledger) for ledger in topic.ledgers))

    def all(self, topic: Topic) -> Iterator[Subscription]:
        """Yield the subscriptions of a topic in the store's order. Corrupt ones go to `report`."""
        with_ends = self.topic(topic)
        for record in self.store.scan(topic.path):
            place = managed_place(record.path, record.value)
            if place is None or place[1] is None or record.path.rpartition("/")[0] != topic.path:
                continue
            try:
                yield self._subscription(with_ends, place[1], record)
            except DecodeError as error:
                self.report(error)

    def one(self, topic: Topic, name: str) -> Subscription:
        """Read one subscription of a topic. Raises NotFoundError, DecodeError."""
        path = TopicName.parse(topic.name).cursor_path(name)
        try:
            record = self.store.read(path)
        except NotFoundError as error:
            raise missing(self.store, path) from error
        return self._subscription(self.topic(topic), name, record)

    def _subscription(self, topic: Topic, name: str, record: Versioned) -> Subscription:
        try:
            info = decode_cursor(record.value)
        except DecodeError as error:
            raise error.within(record.path) from error
        with_metadata = self.store if self.knows_ledgers else None
        cursor = recovered(info, with_metadata, self.source, topic.ledgers)
        return Subscription(topic, name, record, cursor.state, cursor.ledger, cursor.recovery)


RANGES: Final = "managedLedgerMaxUnackedRangesToPersist"
RANGES_IN_RECORD: Final = "managedLedgerMaxUnackedRangesToPersistInMetadataStore"
# The name of the setting in older releases, which has precedence if it is positive.
RANGES_IN_ZOOKEEPER: Final = "managedLedgerMaxUnackedRangesToPersistInZooKeeper"
BATCHES: Final = "managedLedgerMaxBatchDeletedIndexToPersist"
# The defaults in the broker.conf of releases 2.8 to 4.2.
DEFAULTS: Final = {RANGES: 10_000, RANGES_IN_RECORD: 1000, BATCHES: 10_000}
BEYOND: Final = {
    RANGES: "messages acknowledged beyond it are redelivered after a restart",
    RANGES_IN_RECORD: "with more, the state stays in the cursor's ledger when the topic is closed",
    BATCHES: "batches beyond it are redelivered completely after a restart",
}


# Functional syntax, because `from` is a keyword. It is `default`, or the path of a broker.conf.
UsedLimit = TypedDict("UsedLimit", {"setting": str, "limit": int, "from": str, "used": int, "beyond": str})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits by setting, each with its origin: `default`, or the path of a file."""

    values: dict[str, tuple[int, str]]

    @classmethod
    def of(cls, conf: Path | None) -> Limits:
        """Read the limits from a broker.conf, with defaults. Raises DecodeError if one is not a number."""
        values = {name: (value, "default") for name, value in DEFAULTS.items()}
        if conf is not None:
            settings = read_settings(conf)
            old = settings.get(RANGES_IN_ZOOKEEPER, "").strip()
            if old.isascii() and old.isdecimal() and int(old) > 0:
                settings[RANGES_IN_RECORD] = old
            for name in DEFAULTS:
                if name in settings:
                    values[name] = _number(settings[name], name, str(conf)), str(conf)
        return cls(values)

    def of_subscription(self, subscription: Subscription) -> list[UsedLimit]:
        """The usage of each limit; empty if the state is unknown."""
        state = subscription.cursor_state.state
        return [] if state is None else self.used_by(state)

    def used_by(self, state: PositionInfo | ManagedCursorInfo) -> list[UsedLimit]:
        """The usage of each limit by the state of a cursor."""
        acks = acks_of(state)
        by_bits = isinstance(state, PositionInfo) and not len(state.individualDeletedMessages)
        used = {
            # In bit sets, brokers count the bits instead of the ranges.
            RANGES: acks.entry_count if by_bits else acks.range_count,
            RANGES_IN_RECORD: acks.range_count,
            BATCHES: len(state.batchedEntryDeletionIndexInfo),
        }
        return [
            {"setting": name, "limit": limit, "from": origin, "used": used[name], "beyond": BEYOND[name]}
            for name, (limit, origin) in self.values.items()
        ]


def _number(text: str, name: str, source: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdecimal()):
        raise DecodeError(f"{name}={text}: not a number", source=source)
    return int(word)


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
        total, closed = count_entries(runs), ledger.closed_at
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


def _count_before(runs: Sequence[Run], entry_id: int) -> int:
    """Count the entries before an entry id in the runs of one ledger."""
    at = bisect_right(runs, entry_id, key=lambda run: run.first)
    whole = count_entries(runs[: max(0, at - 1)])
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
