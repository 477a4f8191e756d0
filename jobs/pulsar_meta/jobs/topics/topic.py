"""Read a topic from the store: its ledgers in reading order, its properties, and where it was terminated.

Numbers of entries are only decided here. All objects can be pickled, because they are sent to workers that
read entries. Cursors are in `cursors`, BookKeeper's metadata in `bookkeeper`.

Sources: apache/pulsar MLDataFormats.proto, ManagedLedgerImpl (initialize, ledgerClosed, asyncTerminate),
OffloadUtils.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, Final, Literal, NamedTuple, NotRequired, TypedDict
from uuid import UUID

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UsageError, decoding
from pulsar_meta.codecs.metadata.envelope import ledgers_by_id, managed_place, open_envelope
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, EntryFormat, bookkeeper_ledger_of
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.related import Shadow, ShadowSources, migrated_parts
from pulsar_meta.jobs.topics.scope import (
    WHICH_TOPICS,
    Scope,
    held_partitions,
    is_namespace,
    is_pattern,
    scope_of,
    select,
)
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo, OffloadContext
from pulsar_meta.stores.base import Store, Versioned

# Called with each fault that is reported without stopping the work.
Report = Callable[[PulsarMetaError], None]
Properties = tuple[tuple[str, str], ...]
# The result of reading BookKeeper's metadata of a ledger.
Metadata = Literal["unread", "known", "absent", "broken"]
# The number of ledgers whose metadata is read at once.
LEDGERS_AT_ONCE: Final = 500
# The property of a managed ledger with the last index that was assigned.
INDEX: Final = "index"
SNAPSHOT: Final = "only the ledgers in the shadow topic's own record are known, which may be outdated"
# The largest id of a ledger or an entry (Java's long).
MAX_ID: Final = 2**63 - 1
_position_re = re.compile(r"([0-9]{1,19}):(-1|[0-9]{1,19})(?::-?[0-9]{1,10})?")


class Position(NamedTuple):
    """The position of an entry. Positions are ordered as a topic is read."""

    ledger_id: int
    entry_id: int

    @property
    def text(self) -> str:
        """LEDGER:ENTRY."""
        return f"{self.ledger_id}:{self.entry_id}"


def parse_position(text: str, forms: str = "LEDGER:ENTRY") -> Position:
    """Parse LEDGER:ENTRY, or LEDGER:ENTRY:BATCH as the position of the entry that contains the batch.

    Raises UsageError for other texts; `forms` is the form that it says was expected.
    """
    match = _position_re.fullmatch(text)
    if not match or max(int(match[1]), int(match[2])) > MAX_ID:
        raise UsageError(f"{text!r}: expected {forms}")
    return Position(int(match[1]), int(match[2]))


def parse_ledger_id(text: str) -> int:
    """Parse a ledger id. Raises UsageError if it is not a valid one."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > MAX_ID:
        raise UsageError(f"invalid ledger id {text!r}: expected a number from 0 to {MAX_ID}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Offload:
    """A copy of a ledger in tiered storage. If `bookkeeper_deleted` is True, the bookies' copy was deleted.

    `begun_at` is in milliseconds, None if it was not recorded.
    """

    uuid: str
    complete: bool
    bookkeeper_deleted: bool
    driver: str
    begun_at: int | None = None

    @property
    def is_only_copy(self) -> bool:
        """Return True if the bookies' copy was deleted after the offload was complete."""
        return self.complete and self.bookkeeper_deleted


class TopicNames(TypedDict):
    """The names of a topic in documents. `scalable_topic` is the topic of which it is a segment."""

    topic: str
    scalable_topic: NotRequired[str]


class SegmentNames(TypedDict, total=False):
    """The names of a segment in documents; empty for other topics."""

    topic: str
    scalable_topic: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """A ledger of a topic, or one that was given by its id only (then `state` is unknown).

    `entries` is None if the number was not recorded, as for open ledgers. `counted` is the number in the
    topic's record, 0 if it has none; brokers use this number. `size` is in bytes, `closed_at` in
    milliseconds. A key can occur twice in `properties`, which check-index reports as a fault. `bookkeeper` is
    set after `with_bookkeeper` has read it, and `metadata` is the result of that. `topic` is the name of the
    topic that lists the ledger.
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
        """The average number of bytes per entry; 0.0 if unknown."""
        return (self.size or 0) / self.entries if self.entries else 0.0

    @property
    def format(self) -> EntryFormat:
        """How to read the entries, as far as BookKeeper's metadata and the topic's name show it."""
        form = EntryFormat() if self.bookkeeper is None else self.bookkeeper.format
        return form if self.topic is None else form.of_topic(self.topic)

    def values(self, key: str) -> tuple[str, ...]:
        """The values of a property. More than one value is a fault."""
        return tuple(value for name, value in self.properties if name == key)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's record. `codec` is that of its envelope, None for a record without an envelope.

    `ledgers` are in reading order; `in_order` is True if they have this order in the record. A shadow that
    was `followed` has the ledgers of its source, but everything else is its own. `scalable_topic` is the
    topic of which it is a segment; None if there is none or it is unknown.
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
        """The reason why the topic may have other ledgers than these; None if it can't."""
        return None if self.shadow is None else self.shadow.snapshot

    @property
    def names(self) -> TopicNames:
        """The names in documents: `{"topic", "scalable_topic"?}`."""
        return names_of(self.name, self.scalable_topic)

    def with_ledgers(self, ledgers: Iterable[Ledger]) -> Topic:
        """Copy the topic with other ledgers."""
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
        """The values of a property of the topic's managed ledger."""
        return tuple(value for name, value in self.properties if name == key)


def names_of(topic: str, scalable_topic: str | None) -> TopicNames:
    """The names of a topic in documents: `{"topic", "scalable_topic"?}`."""
    names: TopicNames = {"topic": topic}
    if scalable_topic is not None:
        names["scalable_topic"] = scalable_topic
    return names


def read_record(store: Store, topic: TopicName) -> Versioned:
    """Read the record of a topic as it is stored. Raises NotFoundError."""
    try:
        return store.read(topic.path)
    except NotFoundError as error:
        raise missing(store, topic.path) from error


def read_topic(
    store: Store, topic: TopicName, report: Report | None = None, sources: ShadowSources | None = None
) -> Topic:
    """Read a topic, with the ledgers of its source if it is a shadow.

    Pass `sources` when reading several topics. Raises NotFoundError, or DecodeError if its record is corrupt.
    If a shadow's source can't be read, that is reported.
    """
    own = replace(topic_of(read_record(store, topic)), scalable_topic=topic.scalable_topic)
    return followed(own, store, sources or ShadowSources(store), report)


def topics_in(store: Store, scope: Scope, report: Report | None = None) -> Iterator[Topic]:
    """Yield the topics of a scope in the store's order, shadows with the ledgers of their source.

    Corrupt records go to `report` and are skipped. Without `report`, their DecodeError is raised.
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
    """Yield the topics of a store. Corrupt records go to `report`, and an error if there are no topics."""
    return _some_topics(store, Scope(), report, "the store has no topics")


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
    """Yield the topic with this name, its partitions, or the topics of a `tenant/namespace` or glob.

    Missing and corrupt records go to `report`. Raises UsageError if the name is not valid.
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
    for topic in topics:
        try:
            yield read_topic(store, topic, report, sources)
        except (NotFoundError, DecodeError) as error:
            report(error)


def all_named(store: Store, names: Iterable[str], report: Report) -> Iterator[Topic]:
    """Yield the topics of several names like `named`, each topic once."""
    seen: set[str] = set()
    for name in names:
        for topic in named(store, name, report):
            if topic.path not in seen:
                seen.add(topic.path)
                yield topic


def chosen_by_name(
    store: Store, names: Sequence[str], report: Report, *, everything: bool = False
) -> Iterator[Topic]:
    """Yield the topics of several names, or all topics.

    Raises UsageError if neither or both are requested.
    """
    if everything == bool(names):
        raise UsageError(WHICH_TOPICS)
    return every_topic(store, report) if everything else all_named(store, names, report)


def topic_of(record: Versioned, known: TopicName | None = None) -> Topic:
    """Decode a topic's record. `known` is the topic's name, if it is known. Raises DecodeError."""
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
        in_order=all(before.ledgerId <= after.ledgerId for before, after in pairwise(info.ledgerInfo)),
    )


def followed(topic: Topic, store: Store, sources: ShadowSources, report: Report | None = None) -> Topic:
    """Give a shadow topic the ledgers in its source's record, which its broker reads.

    Other topics are unchanged. If the source can't be read, the shadow keeps the ledgers of its own record,
    `shadow` contains the reason, and it goes to `report`. Raises UnreachableError.
    """
    name, source = TopicName.from_path(topic.path), None
    try:
        source = None if name is None else sources.of(name, topic.properties)
        followed_topic = None if source is None else topic_of(_source_record(store, source, topic.path))
    except (NotFoundError, DecodeError) as error:
        fault = type(error)(f"{error.message}; {SNAPSHOT}", source=topic.name)
        if report is not None:
            report(fault)
        return replace(topic, shadow=Shadow(source, fault.message))
    return topic if followed_topic is None else _with_ledgers_of(topic, followed_topic)


def _source_record(store: Store, source: str, path: str) -> Versioned:
    """Read the record of the source of the shadow at `path`. Raises NotFoundError, DecodeError."""
    try:
        name = TopicName.parse(source)
    except UsageError as error:
        raise DecodeError(f"its source has an invalid name: {error.message}") from error
    if name.path == path:
        raise DecodeError("its record names the topic itself as its source")
    try:
        return store.read(name.path)
    except NotFoundError as error:
        raise NotFoundError(f"its source {name} does not exist") from error


def _with_ledgers_of(topic: Topic, source: Topic) -> Topic:
    # The last index belongs to the ledgers, so it comes from the source.
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
    """Yield the ledgers in the record of the topic with this name, in reading order."""
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
    """Add BookKeeper's metadata to the ledgers, reading many at once. Corrupt metadata goes to `report`.

    If the topic's record has no number of entries, it comes from BookKeeper's metadata of the closed ledger.
    """
    waiting = iter(ledgers)
    while group := list(islice(waiting, LEDGERS_AT_ONCE)):
        if store is None:
            yield from group
            continue
        records = store.read_many([ledger_path(ledger.ledger_id) for ledger in group])
        for ledger, record in zip(group, records, strict=True):
            yield _with_record(ledger, record, report)


def _with_record(ledger: Ledger, record: Versioned | None, report: Report) -> Ledger:
    if record is None:
        return with_metadata(ledger, "absent")
    try:
        bookkeeper = bookkeeper_ledger_of(ledger.ledger_id, record)
    except DecodeError as error:
        report(error)
        return with_metadata(ledger, "broken")
    return with_metadata(ledger, "known", bookkeeper.last_entry, bookkeeper)


def with_metadata(
    ledger: Ledger,
    metadata: Metadata,
    last_entry: int | None = None,
    bookkeeper: BookkeeperLedger | None = None,
) -> Ledger:
    """Copy the ledger with BookKeeper's metadata. `last_entry` is None while the ledger is open."""
    entries, state = ledger.entries, ledger.state
    if entries is None and last_entry is not None:
        entries, state = max(0, last_entry + 1), "closed"
    elif state == "unknown" and metadata == "known":
        state = "open"
    # `replace` takes three times as long, and stores can have millions of ledgers.
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
    """Yield the contradictions between BookKeeper's metadata of a ledger and the topic's record."""
    offloaded = ledger.offload is not None and ledger.offload.is_only_copy
    if ledger.metadata == "absent" and ledger.state != "unknown" and not offloaded:
        yield "BookKeeper has no metadata of it, so it can't be opened"
    last = None if ledger.bookkeeper is None else ledger.bookkeeper.last_entry
    if ledger.entries is not None and last is not None and last + 1 != ledger.entries:
        yield f"it has {ledger.entries} entries according to the topic, {last + 1} according to BookKeeper"


def entry_count(info: ManagedLedgerInfo, ledger: ManagedLedgerInfo.LedgerInfo) -> int | None:
    """The number of entries of a ledger; None while it is open.

    The record contains the number and a time for closed ledgers. If the topic was terminated, the ledger that
    was open has neither, so its number follows from the topic's last position.
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
    return Offload(
        str(UUID(int=number)),
        context.complete,
        context.bookkeeperDeleted,
        context.driverMetadata.name,
        context.timestamp or None,
    )


def _pairs(properties: Iterable[Any]) -> Properties:
    return tuple((item.key, item.value) for item in properties)
