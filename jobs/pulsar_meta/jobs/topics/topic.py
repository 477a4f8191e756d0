"""What the store says of one topic: its ledgers in reading order, its properties, where it was terminated.

The one place that says how many entries a ledger has. All values are plain, so that they can travel to
the workers that read entries. Cursors are in `cursors`, what BookKeeper itself knows in `bookkeeper`.

Sources: apache/pulsar MLDataFormats.proto, ManagedLedgerImpl (initialize, ledgerClosed, asyncTerminate),
OffloadUtils.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UsageError, decoding
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger, ledgers_by_id
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, EntryFormat, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.partitions import held_partitions
from pulsar_meta.jobs.topics.scope import Scope, is_glob, is_namespace, scope_of, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo, OffloadContext
from pulsar_meta.stores.base import Store, Versioned

# Takes a fault that is reported while the work goes on.
Report = Callable[[PulsarMetaError], None]
Properties = tuple[tuple[str, str], ...]
# Ledgers whose metadata is read in one go.
LEDGERS_AT_ONCE: Final = 500
# The largest id of a ledger or an entry (Java's long).
MAX_ID: Final = 2**63 - 1
_position_re = re.compile(r"([0-9]{1,19}):(-1|[0-9]{1,19})(?::-?[0-9]{1,10})?")


class Position(NamedTuple):
    """Where an entry is; orders as a topic is read."""

    ledger_id: int
    entry_id: int


def parse_position(text: str, forms: str = "LEDGER:ENTRY") -> Position:
    """Return the position in LEDGER:ENTRY, or in LEDGER:ENTRY:BATCH (the entry that has the batch).

    UsageError for anything else; `forms` is what it says was expected.
    """
    match = _position_re.fullmatch(text)
    if not match or max(int(match[1]), int(match[2])) > MAX_ID:
        raise UsageError(f"{text!r}: expected {forms}")
    return Position(int(match[1]), int(match[2]))


def parse_ledger_id(text: str) -> int:
    """Return the number of a ledger; UsageError where no ledger can have it."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_ID:
        raise UsageError(f"a ledger id is 0 to {MAX_ID}, not {text}")
    return int(text)


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
    `bookkeeper` is there once `with_bookkeeper` has read it; `metadata` says what came of that.
    """

    ledger_id: int
    entries: int | None = None
    state: Literal["open", "closed", "unknown"] = "unknown"
    size: int | None = None
    closed_at: int | None = None
    properties: Properties = ()
    offload: Offload | None = None
    bookkeeper: BookkeeperLedger | None = field(default=None, repr=False)
    metadata: Literal["unread", "known", "absent", "broken"] = "unread"

    @property
    def format(self) -> EntryFormat:
        """How the entries are to be read, as far as BookKeeper's metadata says."""
        return EntryFormat() if self.bookkeeper is None else self.bookkeeper.format

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


def read_record(store: Store, topic: TopicName) -> Versioned:
    """Return the record of a topic as stored; NotFoundError where the store has none."""
    try:
        return store.read(topic.path)
    except NotFoundError as error:
        raise missing(store, topic.path) from error


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


def named(store: Store, name: str, report: Report) -> Iterator[Topic]:
    """Yield the topic of this name, its partitions, or the topics of `tenant/namespace` or of a glob.

    What is not there, or is broken, goes to `report`. UsageError for what is no name.
    """
    if is_glob(name) or is_namespace(name):
        found = False
        for topic in topics_in(store, scope_of(name), report):
            found = True
            yield topic
        if not found:
            report(NotFoundError(f"no topic {name}", source=store.url))
        return
    try:
        topics, absent = held_partitions(store, TopicName.parse(name))
    except DecodeError as error:
        report(error)
        return
    if absent:
        report(NotFoundError(f"{absent} partitions of {name} have no record", source=store.url))
    for one in topics:
        try:
            yield read_topic(store, one)
        except (NotFoundError, DecodeError) as error:
            report(error)


def all_named(store: Store, names: Iterable[str], report: Report) -> Iterator[Topic]:
    """Yield what `named` does for each name, each topic once."""
    seen: set[str] = set()
    for name in names:
        for topic in named(store, name, report):
            if topic.path not in seen:
                seen.add(topic.path)
                yield topic


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


def with_bookkeeper(store: Store | None, ledgers: Iterable[Ledger], report: Report) -> Iterator[Ledger]:
    """Yield the ledgers with what BookKeeper's metadata says of each; broken metadata is reported.

    Where the topic's record has no number of entries, BookKeeper has it as soon as it closed the ledger.
    Many are read in one go.
    """
    waiting = iter(ledgers)
    while some := list(islice(waiting, LEDGERS_AT_ONCE)):
        if store is None:
            yield from some
            continue
        records = store.read_many([ledger_path(ledger.ledger_id) for ledger in some])
        for ledger, record in zip(some, records, strict=True):
            yield _with_record(ledger, record, report)


def _with_record(ledger: Ledger, record: Versioned | None, report: Report) -> Ledger:
    if record is None:
        return replace(ledger, metadata="absent")
    try:
        found = bookkeeper_ledger_of(ledger.ledger_id, record)
    except DecodeError as error:
        report(error)
        return replace(ledger, metadata="broken")
    entries, state = ledger.entries, ledger.state
    if entries is None and found.last_entry is not None:
        entries, state = max(0, found.last_entry + 1), "closed"
    elif state == "unknown":
        state = "open"
    return replace(ledger, entries=entries, state=state, bookkeeper=found, metadata="known")


def contradictions(ledger: Ledger) -> Iterator[str]:
    """Yield where BookKeeper's metadata of a ledger, once read, is not what the topic's record needs."""
    offloaded = ledger.offload is not None and ledger.offload.bookkeeper_deleted
    if ledger.metadata == "absent" and ledger.state != "unknown" and not offloaded:
        yield "BookKeeper has no metadata of it: nobody can open it"
    last = None if ledger.bookkeeper is None else ledger.bookkeeper.last_entry
    if ledger.entries is not None and last is not None and last + 1 != ledger.entries:
        yield f"the topic says {ledger.entries} entries, BookKeeper {last + 1}"


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
