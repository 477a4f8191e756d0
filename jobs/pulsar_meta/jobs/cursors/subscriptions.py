"""Subscriptions: the record, the cursor's ledger, what a broker makes of both, and the limits of persistence.

Acknowledgements beyond those limits are kept in the broker's memory only.

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
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.metadata.managed_place import managed_place
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
    """One subscription of a topic: its record, the state that was found, and what a broker makes of it.

    `topic` has its ledgers with what BookKeeper and the entries say of their ends. `ledger` is the cursor's
    own as BookKeeper knows it, None where the state is in the record.
    """

    topic: Topic
    name: str
    stored: Versioned
    found: CursorState
    ledger: Ledger | None
    recovery: Recovery

    @property
    def record(self) -> ManagedCursorInfo:
        """The record as it is in the store."""
        return self.found.record

    @cached_property
    def backlog(self) -> Backlog | None:
        """What is left after the broker loaded the topic; None where the state is not known."""
        position, acks = self.recovery.mark_delete, self.recovery.acks
        if position is None or acks is None:
            return None
        return backlog(self.topic.ledgers, position, acks)


@dataclass(frozen=True, slots=True)
class SubscriptionReader:
    """Reads the subscriptions of topics; `source` is None where no entries were given."""

    store: Store
    source: EntrySource | None
    report: Report
    knows_ledgers: bool

    @classmethod
    def of(cls, store: Store, source: EntrySource | None, report: Report) -> SubscriptionReader:
        """Return a reader of this store; broken records go to `report`."""
        return cls(store, source, report, has_metadata(store))

    def topic(self, topic: Topic) -> Topic:
        """Return a topic whose ledgers have their ends, as far as they are known."""
        known = self.store if self.knows_ledgers else None
        ledgers = with_bookkeeper(known, topic.ledgers, self.report)
        if self.source is not None:
            source = self.source
            ledgers = (with_end(ledger, source) for ledger in ledgers)
        return replace(topic, ledgers=tuple(ledgers))

    def all(self, topic: Topic) -> Iterator[Subscription]:
        """Yield the subscriptions of a topic in the store's order; broken ones are reported."""
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
        """Return one subscription of a topic; NotFoundError, DecodeError where its record is broken."""
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
        known = self.store if self.knows_ledgers else None
        found = recovered(info, known, self.source, topic.ledgers)
        return Subscription(topic, name, record, found.state, found.ledger, found.recovery)


RANGES: Final = "managedLedgerMaxUnackedRangesToPersist"
RANGES_IN_RECORD: Final = "managedLedgerMaxUnackedRangesToPersistInMetadataStore"
# Older releases know the setting by this name, and where it is positive it counts.
RANGES_IN_ZOOKEEPER: Final = "managedLedgerMaxUnackedRangesToPersistInZooKeeper"
BATCHES: Final = "managedLedgerMaxBatchDeletedIndexToPersist"
# Of the broker.conf of 2.8 to 4.2.
DEFAULTS: Final = {RANGES: 10_000, RANGES_IN_RECORD: 1000, BATCHES: 10_000}
BEYOND: Final = {
    RANGES: "what is acknowledged beyond is consumed again after a restart",
    RANGES_IN_RECORD: "with more the state stays in the cursor's ledger when the topic is closed",
    BATCHES: "batches beyond are consumed again whole after a restart",
}


# `from` is no name of Python's. Its origin: `default`, or the path of a broker.conf.
UsedLimit = TypedDict("UsedLimit", {"setting": str, "limit": int, "from": str, "used": int, "beyond": str})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits by their settings, and where each comes from: `default`, or a file's path."""

    values: dict[str, tuple[int, str]]

    @classmethod
    def of(cls, conf: Path | None) -> Limits:
        """Return those of a broker.conf, defaults for what it does not say; DecodeError for no number."""
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
        """Return how much of each limit is used; nothing where the state is not known."""
        state = subscription.found.state
        return [] if state is None else self.used_by(state)

    def used_by(self, state: PositionInfo | ManagedCursorInfo) -> list[UsedLimit]:
        """Return how much of each limit the state of a cursor uses."""
        acks = acks_of(state)
        by_bits = isinstance(state, PositionInfo) and not len(state.individualDeletedMessages)
        used = {
            # Of bit sets the bits are counted, not the ranges.
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
