"""What was read of one topic: its record, cursors and ledgers; and what of the cluster checks need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.jobs.check.codes import Finding, Where
from pulsar_meta.jobs.check.facts import (
    NOTHING,
    UNREAD,
    Created,
    FactsOf,
    LedgerFacts,
    Ledgers,
    mark_of,
    read_facts,
)
from pulsar_meta.jobs.entries.entry_sources import on_bookies
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.jobs.topics.owners import named_by
from pulsar_meta.jobs.topics.partitions import partition_count
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import Ledger, Position, Topic, read_topic, topic_of, with_metadata
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.memory import MemoryStore


@dataclass(frozen=True, slots=True)
class Cluster:
    """What checks know beside topics.

    `source`: where entries are, None where none was given; `asks_bookies`: it is running bookies. `live`:
    the store can change meanwhile. `now`: the time of the store in milliseconds, None where nothing says it.
    `releases`: brokers' that have to load what is there; `certain` where they were named, or run.
    `value_limit`: the largest value in bytes that the server takes. `min_age` is in milliseconds,
    and so is `idle`, after which a subscription counts as forgotten. `has_offload`: tiered storage is among
    the sources; `stored` are the ledgers that it has. `shadows` knows which topics are shadows, whose ledgers
    belong to another topic; `schemas` the versions of a topic's schema, None where nobody can say.
    """

    source: EntrySource | None = None
    asks_bookies: bool = False
    bookkeeper: bool = True
    live: bool = False
    now: int | None = None
    min_age: int = 0
    releases: tuple[str, ...] = ()
    certain: bool = False
    value_limit: int | None = None
    cookies: frozenset[str] = frozenset()
    registered: frozenset[str] = frozenset()
    has_offload: bool = False
    stored: frozenset[int] = frozenset()
    idle: int = 30 * 24 * 3_600_000
    shadows: ShadowSources = field(default_factory=lambda: ShadowSources(MemoryStore()))
    schemas: Callable[[TopicName], frozenset[int] | None] = lambda name: None

    @property
    def on_bookies(self) -> EntrySource | None:
        """Where entries of bookies are: the sources but tiered storage, which has copies of its own."""
        if not self.has_offload:
            return self.source
        parts = on_bookies(self.source)
        return JoinedEntries(parts) if parts else None

    def is_old(self, time: int | None) -> bool:
        """Return whether something happened so long ago that it should be over; unknown times are old."""
        return time is None or self.now is None or self.now - time >= self.min_age


@dataclass(frozen=True, slots=True)
class CursorSight:
    """A cursor: its record as stored, and what it says, or the `fault` for which it says nothing.

    `state` is the true one where it could be read.
    """

    name: str
    record: Versioned
    info: ManagedCursorInfo | None = None
    state: CursorState | None = None
    fault: DecodeError | None = None

    @property
    def path(self) -> str:
        """Where the record lies."""
        return self.record.path

    @property
    def known(self) -> bool:
        """Whether the true state is known, not only what the record had when the cursor was last closed."""
        return self.state is not None and self.state.state is not None

    @property
    def mark_delete(self) -> Position | None:
        """The true mark-delete position; None where it is not known."""
        return self.state.mark_delete if self.state is not None and self.known else None


@dataclass(frozen=True, slots=True)
class Sight:
    """One topic. `record` is None where the store has none; `topic` too, and where it cannot be decoded.

    `cursors` may be some of all (`whole` says). `owned` are the ledgers that were created for its data, by
    their custom metadata, `compacted` those for its compacted data. `partitions` is what the record of the
    partitioned topic says that it would be a partition of: None for no such record. `lists` says whether the
    topic of a name lists a ledger, `listed` are the ids of its own list; `shadowed` is what `is_shadow` says,
    once that is known.
    """

    name: TopicName
    record: Versioned | None
    cluster: Cluster
    facts: FactsOf
    topic: Topic | None = None
    fault: DecodeError | None = None
    cursors: tuple[CursorSight, ...] = ()
    owned: Sequence[int] = ()
    compacted: Sequence[int] = ()
    partitions: int | None = None
    whole: bool = False
    lists: Callable[[str, int], bool] = lambda name, ledger_id: False
    shadowed: bool | None = None
    listed: frozenset[int] = frozenset()

    @property
    def path(self) -> str:
        """Where the topic's record lies, or would."""
        return self.name.path

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The topic's ledgers in reading order, with what BookKeeper says of each."""
        return () if self.topic is None else self.topic.ledgers

    @property
    def shadow_of(self) -> str | None:
        """The topic whose shadow it is, None for none; DecodeError where that cannot be read."""
        if self.topic is None or self.shadowed is False:
            return None
        return self.cluster.shadows.of(self.name, self.topic.properties)

    @property
    def is_shadow(self) -> bool:
        """Whether its ledgers belong to another topic, or may: what would say it cannot be read."""
        if self.shadowed is not None:
            return self.shadowed
        try:
            return self.shadow_of is not None
        except DecodeError:
            return True

    def with_cursors(self, cluster: Cluster, facts: FactsOf, cursors: tuple[CursorSight, ...]) -> Sight:
        """Return the same topic with some of its cursors."""
        # `replace` takes three times as long.
        return Sight(
            self.name,
            self.record,
            cluster,
            facts,
            self.topic,
            self.fault,
            cursors,
            self.owned,
            self.compacted,
            self.partitions,
            shadowed=self.shadowed,
            listed=self.listed,
        )

    def with_entries(self, cluster: Cluster) -> Sight:
        """Return the same topic beside the entries of `cluster`, its cursors' states read from these."""
        cursors = tuple(cursor_sight(one.record, one.name, cluster.source) for one in self.cursors)
        return replace(self, cluster=cluster, cursors=cursors)

    def where(self, ledger_id: int | None = None) -> Where:
        """Return the places of a finding about the topic, or one of its ledgers."""
        return {"topic": str(self.name), "path": self.path, "ledger_id": ledger_id}

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether an entry is where entries were given."""
        source = self.cluster.source
        return source is not None and has_entry(source, ledger_id, entry_id)

    def held_of_open(self, ledger_id: int) -> int | None:
        """Return the last entry that the sources have of an open ledger that the topic did not list.

        None for none, and where a broker may have named it meanwhile: bookies that run are ahead of a copy of
        the store, and of a store that changes the record is read once more.
        """
        cluster = self.cluster
        if cluster.source is None or (cluster.asks_bookies and not cluster.live):
            return None
        last = cluster.source.last_entry(ledger_id)
        return None if last is not None and self.lists(str(self.name), ledger_id) else last

    def consumed(self, ledger: Ledger) -> bool:
        """Return whether every subscription is past a ledger, so that nobody will read it again."""
        ends = [cursor.mark_delete for cursor in self.cursors]
        last = (ledger.counted or ledger.entries or 0) - 1
        return bool(ends) and all(
            end is not None and (end.ledger_id, end.entry_id) >= (ledger.ledger_id, last) for end in ends
        )


Check = Callable[[Sight], Iterator[Finding]]
# Returns what knows some ledgers; what was created for a topic that has a list itself, or has not.
Several = Callable[[Iterable[int]], FactsOf]
CreatedFor = Callable[[bool], Created | None]


def cursor_sight(record: Versioned, name: str, source: EntrySource | None) -> CursorSight:
    """Return what a cursor's record says, and its true state where `source` has it."""
    try:
        info = decode_cursor(record.value)
    except DecodeError as error:
        return CursorSight(name, record, fault=error)
    return CursorSight(name, record, info, state_of(info, source))


def topic_sight(
    name: TopicName,
    record: Versioned | None,
    cluster: Cluster,
    several: Several,
    created_for: CreatedFor,
    cursors: Iterable[CursorSight] = (),
    partitions: int | None = None,
) -> Sight:
    """Return what a topic's record says, beside what else was read of it."""
    topic, fault, shadowed, facts, listed = None, None, None, several(()), frozenset[int]()
    if record is not None:
        try:
            topic = topic_of(record, name)
        except DecodeError as error:
            fault = error
    if topic is not None:
        topic, facts = _with_metadata(topic, several)
        listed = frozenset(ledger.ledger_id for ledger in topic.ledgers)
        # Almost every check asks.
        shadowed = _is_shadow(cluster, name, topic)
    created = created_for(fault is not None or (topic is not None and bool(topic.ledgers))) or NOTHING
    return Sight(
        name,
        record,
        cluster,
        facts,
        topic,
        fault,
        tuple(cursors),
        owned=created.data,
        compacted=created.compacted,
        partitions=partitions,
        shadowed=shadowed,
        listed=listed,
    )


def _with_metadata(topic: Topic, several: Several) -> tuple[Topic, FactsOf]:
    """Return a topic with what BookKeeper says of its ledgers; several checks ask for these again."""
    facts = several([ledger.ledger_id for ledger in topic.ledgers])
    known = {ledger.ledger_id: facts(ledger.ledger_id) for ledger in topic.ledgers}
    ledgers = [_with_facts(ledger, known[ledger.ledger_id]) for ledger in topic.ledgers]
    return topic.with_ledgers(ledgers), lambda ledger_id: known.get(ledger_id) or facts(ledger_id)


def _with_facts(ledger: Ledger, facts: LedgerFacts) -> Ledger:
    return with_metadata(ledger, facts.metadata, facts.last_entry, facts.known)


def _is_shadow(cluster: Cluster, name: TopicName, topic: Topic) -> bool:
    """Return whether a topic is a shadow, or may be one: what would say it cannot be read."""
    try:
        return cluster.shadows.of(name, topic.properties) is not None
    except DecodeError:
        return True


@dataclass(slots=True)
class Reader:
    """Reads topics again whole, as they are just now."""

    store: Store
    cluster: Cluster
    ledgers: Ledgers

    def whole(self, name: TopicName) -> Sight:
        """Return a topic with all its cursors and ledgers: their metadata first, the records after.

        So what a record names was there before, or was created since (and is not judged); what is gone from
        BookKeeper was let go of by the record before.
        """
        before = self._records(name)
        listed = any(cursor is None and _has_list(record) for record, cursor in before)
        created = self.ledgers.created(name, listed)
        ids = set(self._named(before)).union(*(created or NOTHING))
        if created is None:
            ids |= self._stood_in(before)
        facts = self._facts_now(ids)
        if created is None:
            created = _among(ids, name, facts)
        records = self._records(name)
        source = self.cluster.source
        cursors = [cursor_sight(record, cursor, source) for record, cursor in records if cursor is not None]
        own = next((record for record, cursor in records if cursor is None), None)
        partitions = self.partitions(name)
        sight = topic_sight(
            name, own, self.cluster, lambda ids: facts, lambda listed: created, cursors, partitions
        )
        return replace(sight, whole=True, lists=self.lists)

    def keeps(self, sight: Sight) -> bool:
        """Return whether BookKeeper still has all of the topic's own ledgers that it had."""
        facts = self._facts_now(set(sight.owned))
        had = [ledger_id for ledger_id in sight.owned if sight.facts(ledger_id).metadata != "absent"]
        return all(facts(ledger_id).metadata != "absent" for ledger_id in had)

    def lists(self, name: str, ledger_id: int) -> bool:
        """Return whether a topic's record lists a ledger just now."""
        with suppress(NotFoundError, DecodeError, UsageError):
            topic = read_topic(self.store, TopicName.parse(name))
            return any(ledger.ledger_id == ledger_id for ledger in topic.ledgers)
        return False

    def partitions(self, name: TopicName) -> int | None:
        """Return how many partitions the topic has that `name` is one of; None where there is no record."""
        base = name.partitioned
        if base is None:
            return None
        with suppress(DecodeError):
            return partition_count(self.store, base) or None
        return 0

    def _facts_now(self, ledger_ids: set[int]) -> FactsOf:
        if not self.cluster.bookkeeper:
            return lambda ledger_id: UNREAD
        found = read_facts(self.store, ledger_ids)
        return lambda ledger_id: found.get(ledger_id, UNREAD)

    def _records(self, name: TopicName) -> list[tuple[Versioned, str | None]]:
        """Return the records of a topic and its cursors, the cursors before the topic."""
        paths = [f"{name.path}/{child}" for child in self.store.children(name.path)]
        found = []
        for record in self.store.read_many([*paths, name.path]):
            place = None if record is None else managed_place(record.path, record.value)
            if record is not None and place is not None and place[0] == name:
                found.append((record, place[1]))
        return found

    def _named(self, records: Iterable[tuple[Versioned, str | None]]) -> Iterator[int]:
        for record, _ in records:
            with suppress(DecodeError):
                for owner in named_by(record, self.cluster.source, lambda path, why: None):
                    yield owner.ledger_id

    def _stood_in(self, records: Iterable[tuple[Versioned, str | None]]) -> set[int]:
        """Return the ledgers in which cursors have acknowledged something."""
        found = set[int]()
        for record, name in records:
            cursor = None if name is None else cursor_sight(record, name, self.cluster.source)
            if cursor is not None and cursor.state is not None and cursor.state.state is not None:
                found |= {cursor.state.mark_delete.ledger_id, *acks_of(cursor.state.state).entries}
        return found


def _has_list(record: Versioned) -> bool:
    """Return whether a topic's record lists ledgers, or cannot be read."""
    try:
        return bool(record.value) and bool(decode_managed_ledger(record.value).ledgerInfo)
    except DecodeError:
        return True


def _among(ledger_ids: Iterable[int], name: TopicName, facts: FactsOf) -> Created:
    """Return those of these ledgers that were created for the data of a topic: who looked for no others."""
    mine = mark_of("data", str(name))
    return Created(sorted(one for one in ledger_ids if facts(one).mark == mine))


def has_entry(source: EntrySource, ledger_id: int, entry_id: int) -> bool:
    """Return whether a source has an entry that can be read; UnreachableError."""
    try:
        source.read(ledger_id, entry_id)
    except (NotFoundError, DecodeError):
        return False
    return True
