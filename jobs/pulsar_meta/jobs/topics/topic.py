"""What the store says of one topic: its ledgers in reading order, its properties, where it was terminated.

The one place that says how many entries a ledger has. All values are plain, so that they can travel to
the workers that read entries. Cursors are in `cursors`, what BookKeeper itself knows in `bookkeeper`.

Sources: apache/pulsar MLDataFormats.proto, ManagedLedgerImpl (initialize, ledgerClosed, asyncTerminate),
OffloadUtils.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from uuid import UUID

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, decoding
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger, ledgers_by_id
from pulsar_meta.codecs.names import TopicName, split_managed_ledger_path
from pulsar_meta.jobs.topics.nearest import did_you_mean
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo, OffloadContext
from pulsar_meta.stores.base import Store, Versioned

# Takes a fault that is reported while the work goes on.
Report = Callable[[PulsarMetaError], None]
Properties = tuple[tuple[str, str], ...]


class Position(NamedTuple):
    """Where an entry is; orders as a topic is read."""

    ledger_id: int
    entry_id: int


@dataclass(frozen=True, slots=True)
class Offload:
    """A copy of a ledger in tiered storage; `bookkeeper_deleted`: the bookies' copy is gone."""

    uuid: str
    complete: bool
    bookkeeper_deleted: bool
    driver: str
    driver_properties: Properties


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of a topic, or one that was named by its number alone (then `state` is unknown).

    `entries` is None where nobody has written it down: an open ledger. `size` is in bytes, `closed_at` in
    milliseconds. A key may be twice among `properties`, which is a fault that check-index reports.
    """

    ledger_id: int
    entries: int | None = None
    state: Literal["open", "closed", "unknown"] = "unknown"
    size: int | None = None
    closed_at: int | None = None
    properties: Properties = ()
    offload: Offload | None = None

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a property: none, one, or (a fault) several."""
        return tuple(value for name, value in self.properties if name == key)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic's record says. `codec` is that of its envelope, None for a plain record."""

    name: str
    path: str
    ledgers: tuple[Ledger, ...]
    properties: Properties = ()
    terminated: Position | None = None
    codec: str | None = None
    version: int = 0

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a property of the topic's managed ledger."""
        return tuple(value for name, value in self.properties if name == key)

    @property
    def last_ledger(self) -> Ledger | None:
        """The ledger that is written to, or was last."""
        return self.ledgers[-1] if self.ledgers else None


def read_record(store: Store, topic: TopicName) -> Versioned:
    """Return the record of a topic as stored; NotFoundError where the store has none."""
    try:
        return store.read(topic.path)
    except NotFoundError as error:
        hint = did_you_mean(store, topic.path)
        raise NotFoundError(f"no topic {topic}{hint}", source=store.url) from error


def read_topic(store: Store, topic: TopicName) -> Topic:
    """Return what the store says of a topic; NotFoundError, DecodeError where its record is broken."""
    return topic_of(read_record(store, topic))


def topics_in(store: Store, scope: Scope, report: Report | None = None) -> Iterator[Topic]:
    """Yield the topics of a scope as the store scans them.

    A broken record goes to `report` and is passed over; without `report` its DecodeError is raised.
    """
    for record in select(store, scope, "ledger"):
        try:
            yield topic_of(record)
        except DecodeError as error:
            if report is None:
                raise
            report(error)


def topic_of(record: Versioned) -> Topic:
    """Return what a topic's record says; DecodeError, naming the record, where it is broken."""
    with decoding(record.path):
        envelope = open_envelope(record.value)
        info = decode_managed_ledger(record.value)
    place = split_managed_ledger_path(record.path)
    terminated = info.terminatedPosition
    return Topic(
        name=str(place[0]) if place else record.path,
        path=record.path,
        ledgers=tuple(ledgers_of(info)),
        properties=_pairs(info.properties),
        terminated=Position(terminated.ledgerId, terminated.entryId)
        if info.HasField("terminatedPosition")
        else None,
        codec=None if envelope is None else envelope.codec,
        version=record.version,
    )


def ledgers_of(info: ManagedLedgerInfo) -> Iterator[Ledger]:
    """Yield the ledgers of a topic's record in reading order."""
    for ledger in ledgers_by_id(info):
        entries = entry_count(info, ledger)
        yield Ledger(
            ledger.ledgerId,
            entries,
            "open" if entries is None else "closed",
            ledger.size if ledger.timestamp or ledger.size else None,
            ledger.timestamp or None,
            _pairs(ledger.properties),
            _offload(ledger.offloadContext) if ledger.HasField("offloadContext") else None,
        )


def entry_count(info: ManagedLedgerInfo, ledger: ManagedLedgerInfo.LedgerInfo) -> int | None:
    """Return how many entries a ledger has, None while it is open.

    The record has the number and the time from when the ledger was closed; of the ledger that was open
    when the topic was terminated it has neither, but the topic's last position.
    """
    if info.HasField("terminatedPosition"):
        last = info.terminatedPosition
        if ledger.ledgerId == last.ledgerId:
            return max(0, last.entryId + 1)
        if ledger.ledgerId > last.ledgerId:
            return 0
    if ledger.timestamp or ledger.entries > 0:
        return max(0, ledger.entries)
    return None


def _offload(context: OffloadContext) -> Offload:
    number = (context.uidMsb & (2**64 - 1)) << 64 | context.uidLsb & (2**64 - 1)
    driver = context.driverMetadata
    return Offload(
        str(UUID(int=number)),
        context.complete,
        context.bookkeeperDeleted,
        driver.name,
        _pairs(driver.properties),
    )


def _pairs(properties: Iterable[Any]) -> Properties:
    return tuple((item.key, item.value) for item in properties)
