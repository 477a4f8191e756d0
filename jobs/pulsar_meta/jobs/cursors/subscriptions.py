"""Read subscriptions: the record, the cursor's ledger, how a broker recovers them, and persistence limits.

Acknowledgments beyond those limits are only in the broker's memory.

Source: apache/pulsar ServiceConfiguration (managedLedgerMax…ToPersist…), ManagedCursorImpl
(buildIndividualDeletedMessageRanges, buildBatchEntryDeletionIndexInfoList, shouldPersistUnackRangesToLedger).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import decode_cursor, managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rewrite.rules import read_settings
from pulsar_meta.jobs.topics.backlog import Backlog, backlog
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import CursorState, Recovery, recovered
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Report, Topic, with_bookkeeper
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
        """Add the ends of a topic's ledgers, as far as they are known."""
        with_metadata = self.store if self.knows_ledgers else None
        ledgers = with_bookkeeper(with_metadata, topic.ledgers, self.report)
        if self.source is not None:
            source = self.source
            ledgers = (with_end(ledger, source) for ledger in ledgers)
        return replace(topic, ledgers=tuple(ledgers))

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
