"""The state of one topic that rules check: its record, cursors and ledgers, as they were read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import read_header
from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, Place
from pulsar_meta.jobs.check.context import Context
from pulsar_meta.jobs.check.ledger_facts import NO_LEDGERS, FactsOf, LedgerFacts, OwnedLedgers, owner_hash
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION
from pulsar_meta.jobs.topics.topic import Ledger, Position, Topic, topic_of, with_metadata
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Versioned


@dataclass(frozen=True, slots=True)
class CursorView:
    """A cursor's record, decoded, or the `fault` that prevents it; `state` is the true state if readable."""

    name: str
    record: Versioned
    info: ManagedCursorInfo | None = None
    state: CursorState | None = None
    fault: DecodeError | None = None

    @property
    def path(self) -> str:
        """The path of the record."""
        return self.record.path

    @property
    def known(self) -> bool:
        """True if the true state is known, not only the state at the cursor's last close."""
        return self.state is not None and self.state.state is not None

    @property
    def mark_delete(self) -> Position | None:
        """The true mark-delete position, None if it is unknown."""
        return self.state.mark_delete if self.state is not None and self.known else None

    @property
    def compacted_ledger(self) -> int | None:
        """The ledger with compacted data that the true state refers to."""
        state = None if self.state is None else self.state.state
        properties = () if state is None else state.properties
        return next((item.value for item in properties if item.name == COMPACTED_LEDGER), None)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic. `record` is None if the store has none; `topic` also if it can't be decoded.

    `cursors` are all cursors if `whole`, else some of them. `owned` are the ledgers whose custom metadata
    names the topic, `compacted` those with its compacted data. `partitions` is the number of partitions in
    the partitioned topic's record, None without a record. `lists` tells if a topic (by name) lists a ledger,
    and `listed` are the ids in this topic's own list. `shadowed` caches `is_shadow`.
    """

    name: TopicName
    record: Versioned | None
    context: Context
    facts: FactsOf
    topic: Topic | None = None
    fault: DecodeError | None = None
    cursors: tuple[CursorView, ...] = ()
    owned: Sequence[int] = ()
    compacted: Sequence[int] = ()
    partitions: int | None = None
    whole: bool = False
    lists: Callable[[str, int], bool] = lambda name, ledger_id: False
    shadowed: bool | None = None
    listed: frozenset[int] = frozenset()

    @property
    def path(self) -> str:
        """The path of the topic's record, whether or not it exists."""
        return self.name.path

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The listed ledgers in reading order, with BookKeeper's metadata of each."""
        return () if self.topic is None else self.topic.ledgers

    @property
    def own_hash(self) -> int:
        """The owner hash of the topic's own ledgers."""
        return owner_hash("data", str(self.name))

    @property
    def shadow_of(self) -> str | None:
        """The source of a shadow topic, None for other topics. Raises DecodeError if it can't be read."""
        if self.topic is None or self.shadowed is False:
            return None
        return self.context.shadows.of(self.name, self.topic.properties)

    @property
    def is_shadow(self) -> bool:
        """True if the topic's ledgers belong to another topic, or may because that can't be read."""
        if self.shadowed is not None:
            return self.shadowed
        try:
            return self.shadow_of is not None
        except DecodeError:
            return True

    def with_cursors(self, context: Context, facts: FactsOf, cursors: tuple[CursorView, ...]) -> TopicView:
        """Return the same topic with some of its cursors."""
        # `replace` takes three times as long.
        return TopicView(
            self.name,
            self.record,
            context,
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

    def with_entries(self, context: Context) -> TopicView:
        """Return the same topic with the entry sources of `context`, from which cursor states are read."""
        cursors = tuple(view_cursor(each.record, each.name, context.source) for each in self.cursors)
        return replace(self, context=context, cursors=cursors)

    def place(self, ledger_id: int | None = None) -> Place:
        """Return the place of a finding about the topic, or about one of its ledgers."""
        return {"topic": str(self.name), "path": self.path, "ledger_id": ledger_id}

    def cursor_place(self, cursor: str, ledger_id: int | None = None) -> Place:
        """Return the place of a finding about a cursor, and a ledger that it refers to."""
        path = self.name.cursor_path(cursor)
        return {"topic": str(self.name), "cursor": cursor, "path": path, "ledger_id": ledger_id}

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        """Return True if an entry source has the entry."""
        source = self.context.source
        return source is not None and has_entry(source, ledger_id, entry_id)

    def last_on_bookies(self, ledger_id: int) -> int | None:
        """Return the last entry that bookies have of a ledger, None if they have none or were not given."""
        source = self.context.on_bookies
        return None if source is None else source.last_entry(ledger_id)

    def has_every_bookie(self, facts: LedgerFacts) -> bool:
        """Return True if every bookie of a ledger's ensembles is asked or was given."""
        source = self.context.on_bookies
        given = None if source is None else source.bookies
        return self.context.asks_bookies or (given is not None and facts.bookies.all <= given)

    def length_on_bookies(self, ledger: Ledger) -> int | None:
        """Return the length of a ledger up to the last entry that its list counts, by that entry's header.

        Returns None if bookies were not given, or don't have the entry.
        """
        source = self.context.on_bookies
        if source is None:
            return None
        try:
            raw = source.read(ledger.ledger_id, ledger.counted - 1)
            return read_header(raw.data)[3] if raw.bookie else None
        except (NotFoundError, DecodeError):
            return None

    def last_of_unlisted(self, ledger_id: int) -> int | None:
        """Return the last entry that the sources have of an open ledger that the topic did not list.

        Returns None if there is none, or if a broker may have listed the ledger since: running bookies are
        ahead of a copy of the store, and in a live store the record is read once more.
        """
        context = self.context
        if context.source is None or (context.asks_bookies and not context.live):
            return None
        last = context.source.last_entry(ledger_id)
        return None if last is not None and self.lists(str(self.name), ledger_id) else last

    def has_entries(self, ledger_id: int) -> bool:
        """Return True if a ledger certainly has entries: it was closed with some, or a source has some."""
        last = self.facts(ledger_id).last_entry
        if last is None:
            last = self.last_of_unlisted(ledger_id)
        return last is not None and last >= 0

    def is_covered(self, ledger_id: int) -> bool:
        """Return True if a system topic's compacted ledger has everything that this ledger has."""
        cursor = next((each for each in self.cursors if each.name == COMPACTION), None)
        compacted = None if cursor is None else cursor.compacted_ledger
        full = None if compacted is None else self.facts(compacted).full
        if full is None or full.compacted_to is None or not is_internal(self.name.local):
            return False
        last = self.facts(ledger_id).last_entry
        return last is not None and (ledger_id, last) <= full.compacted_to

    def consumed(self, ledger: Ledger) -> bool:
        """Return True if there are subscriptions and all are past a ledger, so that none reads it again."""
        ends = [cursor.mark_delete for cursor in self.cursors]
        last = (ledger.counted or ledger.entries or 0) - 1
        return bool(ends) and all(end is not None and end >= (ledger.ledger_id, last) for end in ends)

    def recorded_entries(self, ledger: Ledger) -> int:
        """Return the number of entries that the topic's record has for a ledger, 0 if it has none."""
        end = None if self.topic is None else self.topic.terminated
        if end is not None and end.ledger_id == ledger.ledger_id and not ledger.counted:
            return max(0, end.entry_id + 1)
        return ledger.counted

    def disagrees(self, ledger: Ledger) -> bool:
        """Return True if BookKeeper and the list have different ends, or only the list has one."""
        facts, recorded = self.facts(ledger.ledger_id), self.recorded_entries(ledger)
        if facts.metadata != "known" or not recorded or facts.last_entry == recorded - 1:
            return False
        # A termination in the middle of a ledger is not its end.
        return facts.last_entry is None or facts.last_entry + 1 < recorded or recorded == ledger.counted

    def first_after_termination(self) -> Position | None:
        """Return the last entry of the first ledger that ends after the termination, None if none does."""
        end = None if self.topic is None else self.topic.terminated
        for ledger in () if end is None else self.ledgers:
            last = self.facts(ledger.ledger_id).last_entry
            last = ledger.counted - 1 if last is None else last
            if last >= 0 and (ledger.ledger_id, last) > (end or ()):
                return Position(ledger.ledger_id, last)
        return None


Rule = Callable[[TopicView], Iterator[Finding]]
# Returns the facts about ledgers, prepared for some.
Lookup = Callable[[Iterable[int]], FactsOf]
# Returns the topic's ledgers by custom metadata; the argument is True if it has a list.
OwnedBy = Callable[[bool], OwnedLedgers | None]


def view_cursor(record: Versioned, name: str, source: EntrySource | None) -> CursorView:
    """Return the view of a cursor; its true state is read from `source` if it is in a ledger."""
    try:
        info = decode_cursor(record.value)
    except DecodeError as error:
        return CursorView(name, record, fault=error)
    return CursorView(name, record, info, state_of(info, source))


def view_topic(
    name: TopicName,
    record: Versioned | None,
    context: Context,
    lookup: Lookup,
    owned_by: OwnedBy,
    cursors: Iterable[CursorView] = (),
    partitions: int | None = None,
) -> TopicView:
    """Return the view of a topic from its record."""
    topic, fault, shadowed, facts, listed = None, None, None, lookup(()), frozenset[int]()
    if record is not None:
        try:
            topic = topic_of(record, name)
        except DecodeError as error:
            fault = error
    if topic is not None:
        topic, facts = _with_metadata(topic, lookup)
        listed = frozenset(ledger.ledger_id for ledger in topic.ledgers)
        # Almost every rule asks for this.
        shadowed = _is_shadow(context, name, topic)
    owned = owned_by(fault is not None or (topic is not None and bool(topic.ledgers))) or NO_LEDGERS
    return TopicView(
        name,
        record,
        context,
        facts,
        topic,
        fault,
        tuple(cursors),
        owned=owned.data,
        compacted=owned.compacted,
        partitions=partitions,
        shadowed=shadowed,
        listed=listed,
    )


def _with_metadata(topic: Topic, lookup: Lookup) -> tuple[Topic, FactsOf]:
    """Return the topic with BookKeeper's metadata of its ledgers, and facts that are looked up only once."""
    facts = lookup([ledger.ledger_id for ledger in topic.ledgers])
    known = {ledger.ledger_id: facts(ledger.ledger_id) for ledger in topic.ledgers}
    ledgers = [_with_facts(ledger, known[ledger.ledger_id]) for ledger in topic.ledgers]
    return topic.with_ledgers(ledgers), lambda ledger_id: known.get(ledger_id) or facts(ledger_id)


def _with_facts(ledger: Ledger, facts: LedgerFacts) -> Ledger:
    return with_metadata(ledger, facts.metadata, facts.last_entry, facts.full)


def _is_shadow(context: Context, name: TopicName, topic: Topic) -> bool:
    try:
        return context.shadows.of(name, topic.properties) is not None
    except DecodeError:
        return True


def is_internal(name: str) -> bool:
    """Return True if a topic or cursor with this local name belongs to the brokers."""
    return name.startswith(("__", "pulsar.", "transaction.")) or "__transaction" in name


def has_entry(source: EntrySource, ledger_id: int, entry_id: int) -> bool:
    """Return True if a source has an entry that can be read. Raises UnreachableError."""
    try:
        source.read(ledger_id, entry_id)
    except (NotFoundError, DecodeError):
        return False
    return True
