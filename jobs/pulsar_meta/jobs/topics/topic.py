"""What the store says of one topic: its ledgers in reading order, its properties, where it was terminated.

The one place that says how many entries a ledger has. All values are plain, so that they can travel to
the workers that read entries. Cursors are in `cursors`, what BookKeeper itself knows in `bookkeeper`.

Sources: apache/pulsar MLDataFormats.proto, ManagedLedgerImpl (initialize, ledgerClosed, asyncTerminate),
OffloadUtils.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UsageError, decoding
from pulsar_meta.codecs.metadata.envelope import ledgers_by_id, open_envelope
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, EntryFormat, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.scope import Scope, held_partitions, is_namespace, is_pattern, scope_of, select
from pulsar_meta.jobs.topics.segments import migrated_parts
from pulsar_meta.jobs.topics.shadow import Shadow, ShadowSources
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo, OffloadContext
from pulsar_meta.stores.base import Store, Versioned

# Takes a fault that is reported while the work goes on.
Report = Callable[[PulsarMetaError], None]
Properties = tuple[tuple[str, str], ...]
# What came of reading BookKeeper's metadata of a ledger.
Metadata = Literal["unread", "known", "absent", "broken"]
# Ledgers whose metadata is read in one go.
LEDGERS_AT_ONCE: Final = 500
# The property of a managed ledger that has the last index given out.
INDEX: Final = "index"
SNAPSHOT: Final = "of this shadow topic only the ledgers in its own record are known, which is a snapshot"
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
    """A copy of a ledger in tiered storage; `bookkeeper_deleted`: the bookies' copy is gone.

    `begun_at` is in milliseconds, None where nobody wrote it down.
    """

    uuid: str
    complete: bool
    bookkeeper_deleted: bool
    driver: str
    driver_properties: Properties
    begun_at: int | None = None


class TopicNames(TypedDict):
    """What a topic is called in documents; `scalable_topic` is the one of which it is a segment."""

    topic: str
    scalable_topic: NotRequired[str]


class SegmentNames(TypedDict, total=False):
    """What a segment is called in documents; of any other topic nothing."""

    topic: str
    scalable_topic: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of a topic, or one that was named by its number alone (then `state` is unknown).

    `entries` is None where nobody has written it down: an open ledger. `counted` is the number in the topic's
    record itself, 0 where it has none: what a broker goes by. `size` is in bytes, `closed_at` in
    milliseconds. A key may be twice among `properties`, which is a fault that check-index reports.
    `bookkeeper` is there once `with_bookkeeper` has read it; `metadata` says what came of that.
    `topic` is the name of the topic whose record names the ledger.
    """

    ledger_id: int
    entries: int | None = None
    state: Literal["open", "closed", "unknown"] = "unknown"
    size: int | None = None
    closed_at: int | None = None
    properties: Properties = ()
    offload: Offload | None = None
    bookkeeper: BookkeeperLedger | None = field(default=None, repr=False)
    metadata: Metadata = "unread"
    topic: str | None = None
    counted: int = 0

    @property
    def entry_size(self) -> float:
        """The bytes of an entry, on average; 0.0 where nobody has written it down."""
        return (self.size or 0) / self.entries if self.entries else 0.0

    @property
    def format(self) -> EntryFormat:
        """How the entries are to be read, as far as BookKeeper's metadata and the topic's name say."""
        form = EntryFormat() if self.bookkeeper is None else self.bookkeeper.format
        return form if self.topic is None else form.of_topic(self.topic)

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a property: none, one, or (a fault) several."""
        return tuple(value for name, value in self.properties if name == key)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic's record says. `codec` is that of its envelope, None for a plain record.

    `ledgers` are in reading order; `in_order` says whether the record itself has them so.
    A shadow that was `followed` has the ledgers of its source; all else is its own.
    `scalable_topic` is the topic of which it is a segment, None where it is none, or that is not known.
    """

    name: str
    path: str
    ledgers: tuple[Ledger, ...]
    properties: Properties = ()
    terminated: Position | None = None
    codec: str | None = None
    version: int = 0
    in_order: bool = True
    shadow: Shadow | None = None
    scalable_topic: str | None = None

    @property
    def snapshot(self) -> str | None:
        """Why it may have more ledgers than these, None where it has not."""
        return None if self.shadow is None else self.shadow.snapshot

    @property
    def names(self) -> TopicNames:
        """What it is called, as documents have it: `{"topic", "scalable_topic"?}`."""
        return names_of(self.name, self.scalable_topic)

    def with_ledgers(self, ledgers: Iterable[Ledger]) -> Topic:
        """Return the topic with other ledgers, or with more that is known of them."""
        # `replace` takes three times as long.
        return Topic(
            self.name,
            self.path,
            tuple(ledgers),
            self.properties,
            self.terminated,
            self.codec,
            self.version,
            self.in_order,
            self.shadow,
            self.scalable_topic,
        )

    def values(self, key: str) -> tuple[str, ...]:
        """Return the values of a property of the topic's managed ledger."""
        return tuple(value for name, value in self.properties if name == key)


def names_of(topic: str, scalable_topic: str | None) -> TopicNames:
    """Return what a topic is called, as documents have it: `{"topic", "scalable_topic"?}`."""
    names: TopicNames = {"topic": topic}
    if scalable_topic is not None:
        names["scalable_topic"] = scalable_topic
    return names


def read_record(store: Store, topic: TopicName) -> Versioned:
    """Return the record of a topic as stored; NotFoundError where the store has none."""
    try:
        return store.read(topic.path)
    except NotFoundError as error:
        raise missing(store, topic.path) from error


def read_topic(
    store: Store, topic: TopicName, report: Report | None = None, sources: ShadowSources | None = None
) -> Topic:
    """Return what the store says of a topic, a shadow `followed`; `sources` where several are read.

    NotFoundError, DecodeError where its record is broken; a shadow's source that cannot be read is reported.
    """
    found = replace(topic_of(read_record(store, topic)), scalable_topic=topic.scalable_topic)
    return followed(found, store, sources or ShadowSources(store), report)


def topics_in(store: Store, scope: Scope, report: Report | None = None) -> Iterator[Topic]:
    """Yield the topics of a scope as the store scans them, shadows `followed`.

    A broken record goes to `report` and is passed over; without `report` its DecodeError is raised.
    """
    sources, migrated = ShadowSources(store, many=True), migrated_parts(store)
    for record in select(store, scope, "ledger"):
        try:
            topic = topic_of(record)
            if topic.name in migrated:
                topic = replace(topic, scalable_topic=migrated[topic.name])
        except DecodeError as error:
            if report is None:
                raise
            report(error)
        else:
            yield followed(topic, store, sources, report)


def every_topic(store: Store, report: Report) -> Iterator[Topic]:
    """Yield the topics of a store; a broken record, and that there is no topic, goes to `report`."""
    return _some_topics(store, Scope(), report, "no topic in it")


def _some_topics(store: Store, scope: Scope, report: Report, absent: str) -> Iterator[Topic]:
    records = 0

    def broken(error: PulsarMetaError) -> None:
        nonlocal records
        records += 1
        report(error)

    for topic in topics_in(store, scope, broken):
        records += 1
        yield topic
    if not records:
        report(NotFoundError(absent, source=store.url))


def named(store: Store, name: str, report: Report) -> Iterator[Topic]:
    """Yield the topic of this name, its partitions, or the topics of `tenant/namespace` or of a glob.

    What is not there, or is broken, goes to `report`. UsageError for what is no name.
    """
    if is_pattern(store, name) or is_namespace(name):
        yield from _some_topics(store, scope_of(name), report, f"no topic {name}")
        return
    try:
        topics, absent = held_partitions(store, TopicName.parse(name))
    except DecodeError as error:
        report(error)
        return
    if absent:
        report(NotFoundError(f"{absent} partitions of {name} have no record", source=store.url))
    sources = ShadowSources(store)
    for one in topics:
        try:
            yield read_topic(store, one, report, sources)
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


def chosen_by_name(
    store: Store, names: Sequence[str], report: Report, *, everything: bool = False
) -> Iterator[Topic]:
    """Yield what `all_named` does, or all topics; UsageError where neither, or both, are asked for."""
    if everything == bool(names):
        raise UsageError("which topics? Name topics or namespaces (tenant/namespace), or give --all")
    return every_topic(store, report) if everything else all_named(store, names, report)


def topic_of(record: Versioned, known: TopicName | None = None) -> Topic:
    """Return what a topic's record says; DecodeError, naming the record, where it is broken.

    `known` is the topic's name where that is known already.
    """
    with decoding(record.path):
        envelope = open_envelope(record.value)
        info = parse_message(ManagedLedgerInfo, record.value if envelope is None else envelope.payload)
    if known is None and (place := managed_place(record.path, record.value)) is not None:
        known = place[0]
    name = str(known) if known else record.path
    terminated = info.terminatedPosition
    return Topic(
        name=name,
        scalable_topic=known.scalable_topic if known else None,
        path=record.path,
        ledgers=tuple(ledgers_of(info, name)),
        properties=_pairs(info.properties),
        terminated=Position(terminated.ledgerId, terminated.entryId)
        if info.HasField("terminatedPosition")
        else None,
        codec=None if envelope is None else envelope.codec,
        version=record.version,
        in_order=_is_ordered([ledger.ledgerId for ledger in info.ledgerInfo]),
    )


def _is_ordered(ids: list[int]) -> bool:
    return ids == sorted(ids)


def followed(topic: Topic, store: Store, sources: ShadowSources, report: Report | None = None) -> Topic:
    """Return a topic with the ledgers that its broker reads: of a shadow those in its source's record.

    Where that cannot be read the shadow keeps the ledgers of its own record, `shadow` says why, and `report`
    is given it too. UnreachableError.
    """
    name, source = TopicName.from_path(topic.path), None
    try:
        source = None if name is None else sources.of(name, topic.properties)
        found = None if source is None else topic_of(_source_record(store, source, topic.path))
    except (NotFoundError, DecodeError) as error:
        fault = type(error)(f"{error.message}; {SNAPSHOT}", source=topic.name)
        if report is not None:
            report(fault)
        return replace(topic, shadow=Shadow(source, fault.message))
    return topic if found is None else _with_ledgers_of(topic, found)


def _source_record(store: Store, source: str, path: str) -> Versioned:
    """Return the record of the source of the shadow at `path`; NotFoundError, DecodeError for no name."""
    try:
        name = TopicName.parse(source)
    except UsageError as error:
        raise DecodeError(f"its source is no topic: {error.message}") from error
    if name.path == path:
        raise DecodeError("its source is said to be the topic itself")
    try:
        return store.read(name.path)
    except NotFoundError as error:
        raise NotFoundError(f"there is no record of its source {name}") from error


def _with_ledgers_of(topic: Topic, source: Topic) -> Topic:
    # The last index that was given out counts what lies in the ledgers.
    own = [pair for pair in topic.properties if pair[0] != INDEX]
    index = [pair for pair in source.properties if pair[0] == INDEX]
    return replace(
        topic,
        ledgers=source.ledgers,
        terminated=source.terminated,
        properties=(*own, *index),
        shadow=Shadow(source.name),
    )


def ledgers_of(info: ManagedLedgerInfo, topic: str) -> Iterator[Ledger]:
    """Yield the ledgers of the record of the topic of this name, in reading order."""
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
            topic=topic,
            counted=max(0, ledger.entries),
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
        return with_metadata(ledger, "absent")
    try:
        found = bookkeeper_ledger_of(ledger.ledger_id, record)
    except DecodeError as error:
        report(error)
        return with_metadata(ledger, "broken")
    return with_metadata(ledger, "known", found.last_entry, found)


def with_metadata(
    ledger: Ledger,
    metadata: Metadata,
    last_entry: int | None = None,
    bookkeeper: BookkeeperLedger | None = None,
) -> Ledger:
    """Return the ledger with what BookKeeper says of it; `last_entry` is None while it is not closed."""
    entries, state = ledger.entries, ledger.state
    if entries is None and last_entry is not None:
        entries, state = max(0, last_entry + 1), "closed"
    elif state == "unknown" and metadata == "known":
        state = "open"
    # `replace` takes three times as long, and there are as many ledgers as there are.
    return Ledger(
        ledger.ledger_id,
        entries,
        state,
        ledger.size,
        ledger.closed_at,
        ledger.properties,
        ledger.offload,
        bookkeeper,
        metadata,
        ledger.topic,
        ledger.counted,
    )


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
        context.timestamp or None,
    )


def _pairs(properties: Iterable[Any]) -> Properties:
    return tuple((item.key, item.value) for item in properties)
