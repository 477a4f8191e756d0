"""Properties of a topic's ledgers (PIP-404): read them, and change them in one write per topic.

One of them is the index: the first index of each ledger. Pulsar does not write such a property, so a search
by index has to read entries to find the ledger. With the property, the topic's record is enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import Envelope, decode_managed_ledger, open_envelope, wrap_envelope
from pulsar_meta.codecs.metadata.ledger_metadata import Edit, edit_properties, ledger_ids
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.index.check import index_number
from pulsar_meta.jobs.rewrite.decision import UNDECODABLE, Decided, Decision, Rule, by_rule, keep, skip, write
from pulsar_meta.jobs.rewrite.rules import WhereThere
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.jobs.seek.readings import State, read_one
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.scope import named_topics
from pulsar_meta.jobs.topics.topic import Ledger, Topic, read_record, read_topic, topic_of
from pulsar_meta.stores.base import ABSENT, Store, Versioned

Edits = Mapping[int, Iterable[Edit]]

LAST_LEDGER = (
    "the last ledger of a topic: released brokers drop its properties when they close it"
    " (apache/pulsar#26227) or load the topic again (#26509)"
)


REFUSED_SHADOW = "a shadow topic: the properties of its ledgers are in the record of its source"


class LedgerProperties(TypedDict):
    """The properties of a ledger. `shadow_of` is the source topic, if the topic is a shadow topic."""

    topic: str
    scalable_topic: NotRequired[str]
    shadow_of: NotRequired[str | None]
    ledger_id: int
    properties: dict[str, str]


def properties_of(topic: Topic, keys: Sequence[str] = ()) -> Iterator[LedgerProperties]:
    """Yield a document for each ledger of a topic, with `keys` only for ledgers that have one of them.

    The ledgers and properties of a shadow topic are those of its source, which `shadow_of` names.
    """
    for ledger in topic.ledgers:
        properties = {key: value for key, value in ledger.properties if not keys or key in keys}
        if properties or not keys:
            document: LedgerProperties = {
                **topic.names,
                "ledger_id": ledger.ledger_id,
                "properties": properties,
            }
            if topic.shadow is not None:
                document["shadow_of"] = topic.shadow.source
            yield document


def refuse_shadow(store: Store, name: TopicName) -> None:
    """Raise GuardError for a shadow topic, because its properties are in the record of its source.

    A topic without a record, or with a broken one, is not refused.
    """
    with suppress(NotFoundError, DecodeError):
        shadow = read_topic(store, named_topics(store, name)[0]).shadow
        if shadow is not None:
            raise GuardError(f"{REFUSED_SHADOW} {shadow.source or ''}".rstrip(), source=str(name))


def topic_of_ledgers(store: Store, name: TopicName, ledgers: Iterable[int]) -> TopicName:
    """Return the topic, partition or segment that has all these ledgers. Raises NotFoundError."""
    topics, wanted = named_topics(store, name), set(ledgers)
    if topics == [name]:
        return name
    for topic in topics:
        # A partition or segment that was never used has no record.
        with suppress(NotFoundError):
            if wanted.issubset(ledger_ids(message_of(read_record(store, topic))[0])):
                return topic
    missing = ", ".join(map(str, sorted(wanted)))
    part = "partition" if topics[0].partition is not None else "segment"
    raise NotFoundError(f"no {part} of {name} has ledger {missing}", source=store.url)


def parse_sets(pairs: Iterable[str]) -> list[Edit]:
    """Return the edits of `KEY=VALUE` arguments. Raises UsageError if an argument has no `=` or no key."""
    edits = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"invalid property {pair!r}: give KEY=VALUE")
        edits.append(Edit(key, value))
    return edits


def last_ledger(info: bytes) -> int | None:
    """Return the id of the last ledger of a serialized ManagedLedgerInfo, None if it has no ledger."""
    return max(ledger_ids(info), default=None)


def message_of(seen: Versioned) -> tuple[bytes, Envelope | None]:
    """Return the serialized ManagedLedgerInfo of a value, and its compression envelope if it has one."""
    envelope = open_envelope(seen.value)
    return (seen.value, None) if envelope is None else (envelope.payload, envelope)


def property_rule(edits: Edits) -> Rule:
    """Return the rule that applies `edits` to a topic's record, and keeps its envelope and codec.

    The rule raises NotFoundError if the topic does not have a ledger of the edits.
    """

    def decide(seen: Versioned) -> Decision:
        if seen.version == ABSENT:
            raise NotFoundError("the topic is gone", source=seen.path)
        try:
            payload, envelope = message_of(seen)
            edited = edit_properties(payload, edits)
            decode_managed_ledger(edited)
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        except NotFoundError as error:
            raise error.within(seen.path) from error
        codec = "none" if envelope is None else envelope.codec
        if edited == payload:
            return keep(seen, "already", codec)
        if envelope is not None:
            edited = wrap_envelope(edited, codec, unknown=envelope.unknown)
        return write(seen, edited, codec, codec)

    return decide


@dataclass(frozen=True, slots=True)
class Removal:
    """The rule that removes properties from all ledgers of a topic in one write.

    It skips shadow topics, because their ledgers and properties are those of another topic.
    """

    keys: tuple[str, ...]
    sources: ShadowSources

    def __call__(self, seen: Versioned) -> Decision:
        """Return the decision about a topic's record."""
        if seen.version == ABSENT:
            return skip(seen, "gone")
        try:
            topic, name = topic_of(seen), TopicName.from_path(seen.path)
            if name is not None and self.sources.of(name, topic.properties) is not None:
                return skip(seen, "shadow")
        except DecodeError as error:
            return skip(seen, UNDECODABLE, note=str(error))
        edits = [Edit(key, None) for key in self.keys]
        return property_rule({ledger.ledger_id: edits for ledger in topic.ledgers})(seen)


def remove_properties(
    store: Store, values: Callable[[], Iterable[Versioned]], keys: Sequence[str]
) -> Rewrite:
    """Return the rewrite that removes properties from the topics that `values` reads."""
    rule = Removal(tuple(dict.fromkeys(keys)), ShadowSources(store, many=True))
    first = WhereThere(rule)
    return Rewrite(
        "unset-property",
        lambda batches: ((seen, first(seen)) for seen in values()),
        by_rule(rule),
        with_new=True,
    )


def set_properties(
    command: str, store: Store, topic: TopicName, edits: Edits, warn: Callable[[str], None]
) -> Rewrite:
    """Return the rewrite that applies edits to one topic's record in one write."""
    return Rewrite(
        command,
        lambda batches: topic_edits(store, topic, edits, warn),
        by_rule(property_rule(edits)),
        single=True,
        with_new=True,
    )


def topic_edits(
    store: Store, topic: TopicName, edits: Edits, warn: Callable[[str], None]
) -> Generator[Decided]:
    """Yield the decision about one topic's record. Warns about properties that brokers will drop."""
    seen = read_record(store, topic)
    decision = property_rule(edits)(seen)
    if decision.action == "rewrite":
        payload, _ = message_of(seen)
        last = last_ledger(payload)
        if last is not None and any(edit.value is not None for edit in edits.get(last, ())):
            warn(f"{topic}: ledger {last} is {LAST_LEDGER}")
    yield seen, decision


# The first entries of this many topics are read before the first of these topics is written.
TOPICS_AT_ONCE: Final = 500

NO_INDEX: Final = "the first entry has no index"
UNREADABLE: Final = "the first entry cannot be read"
MISSING: Final = "no source has the first entry"
SHADOW: Final = "shadow"
EMPTY: Final = "open, and no entry is known yet"

# Takes ledger ids, and returns the first index of each ledger or the reason why there is none.
FirstIndexes = Callable[[Sequence[int]], Sequence[int | str]]


def first_index(source: EntrySource, ledger_id: int) -> int | str:
    """Return the index of a ledger's first message, or why there is none. Raises UnreachableError."""
    reading = read_one(source, ledger_id, 0)
    if reading.state is State.UNREADABLE:
        return UNREADABLE
    if reading.state is State.MISSING:
        return MISSING
    # An index smaller than its batch makes the first one negative, which no property can hold.
    return NO_INDEX if reading.first_index is None else max(0, reading.first_index)


@dataclass(slots=True)
class IndexBuild:
    """One run of `build-index`: its settings, and its counts.

    With `repair`, existing properties are compared with the first entries and corrected. If the first entry
    has no index, the property is removed. `undone` counts ledgers that get no property, by reason, and
    `unchecked` counts ledgers whose property could not be compared. `last_ledgers` are topics' last ledgers
    that get a property, which released brokers may drop again. `shadows` are the paths of shadow topics;
    their properties belong in the records of their source topics, which `sources` knows.
    """

    key: str
    read: FirstIndexes
    sources: ShadowSources
    repair: bool = False
    undone: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    last_ledgers: set[int] = field(default_factory=set)
    shadows: set[str] = field(default_factory=set)
    _looked_at: Dedup = field(default_factory=Dedup)
    _edits: dict[str, dict[int, list[Edit]]] = field(default_factory=dict)

    def rewrite(self, topics: Callable[[], Iterable[Versioned]]) -> Rewrite:
        """Return the rewrite that stores the property in the records that `topics` reads."""
        return Rewrite(
            "build-index", lambda batches: self.decided(topics()), by_rule(self.decide), with_new=True
        )

    def decided(self, topics: Iterable[Versioned]) -> Generator[Decided]:
        """Yield each record with the decision about it. Reads first entries for TOPICS_AT_ONCE topics."""
        waiting = iter(topics)
        self.last_ledgers.clear()
        while some := list(islice(waiting, TOPICS_AT_ONCE)):
            self._find(some)
            for seen in some:
                yield seen, self.decide(seen)

    def decide(self, seen: Versioned) -> Decision:
        """Return the decision about one record in its present state, without ledgers that are gone."""
        edits = self._edits.get(seen.path, {})
        if seen.path in self.shadows:
            return skip(seen, SHADOW)
        try:
            payload, _ = message_of(seen)
            listed = ledger_ids(payload)
        except DecodeError:
            return property_rule({})(seen)
        chosen = {ledger: edits[ledger] for ledger in listed if ledger in edits}
        if listed and max(listed) in chosen:
            self.last_ledgers.add(max(listed))
        return property_rule(chosen)(seen)

    def _find(self, records: Sequence[Versioned]) -> None:
        """Read the first entries of ledgers without a known index, and note the edits. Reads a topic once."""
        new = [record for record in records if self._looked_at.is_new(record.path)]
        wanted = [(record.path, ledger) for record in new for ledger in self._in_question(record)]
        indexes = self.read([ledger.ledger_id for _, ledger in wanted])
        for (path, ledger), index in zip(wanted, indexes, strict=True):
            values = ledger.values(self.key)
            if isinstance(index, int):
                if len(values) != 1 or index_number(values[0]) != index:
                    self._edit(path, ledger.ledger_id, str(index))
            elif values and index == NO_INDEX:
                # No value of the property can be right.
                self._edit(path, ledger.ledger_id, None)
            elif values:
                self.unchecked[index] += 1
            else:
                self.undone[EMPTY if ledger.entries is None and index == MISSING else index] += 1

    def _edit(self, path: str, ledger_id: int, value: str | None) -> None:
        self._edits.setdefault(path, {})[ledger_id] = [Edit(self.key, value)]

    def _in_question(self, seen: Versioned) -> list[Ledger]:
        """Return the ledgers that may have entries and whose property is missing or must be checked."""
        name = TopicName.from_path(seen.path)
        try:
            topic = topic_of(seen)
            shadow = name is not None and self.sources.of(name, topic.properties) is not None
        except DecodeError:
            return []
        if shadow:
            self.shadows.add(seen.path)
            return []
        return [
            ledger
            for ledger in topic.ledgers
            if ledger.entries != 0 and (self.repair or not ledger.values(self.key))
        ]
