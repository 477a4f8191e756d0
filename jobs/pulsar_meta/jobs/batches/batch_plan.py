"""Simulate a batching rule with the messages of a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame, strip_broker_metadata
from pulsar_meta.codecs.protobuf.to_json import readable
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.batches.batching import Batch, Batcher, Batching, Breaks, OrderWatch, wrong_for
from pulsar_meta.jobs.batches.packing import Numbering, Packing, messages_of_entry, outgoing, pack_batch
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, Limits
from pulsar_meta.jobs.entries.entry_reading import DataEntry, read_entries
from pulsar_meta.jobs.entries.filters import Filter, parse_filter
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.stores.base import Store


class TallyDocument(TypedDict):
    """Numbers of batches and messages. `bytes` are those of entries without the broker's metadata."""

    batches: int
    messages_per_batch: float
    largest_batch: int
    bytes: int


class KeyChanges(TypedDict):
    """A property: how many messages have it, and how often it differs from the producer's last message."""

    key: str
    messages: int
    changes: int


class FilterEffect(TypedDict):
    """How many entries a broker could skip by their own metadata, because no message in them matches."""

    where: str
    skippable_before: int
    skippable_after: int


class BatchPlanDocument(TypedDict):
    """The effect of a batching rule. Counts are by reason or by key.

    `properties` is there if the keys were found, `filter` if one was given.
    """

    keys: list[str]
    strategy: str
    producers: int
    messages: int
    unopened: dict[str, int]
    before: TallyDocument
    after: TallyDocument
    breaks: dict[str, int]
    breaking_keys: dict[str, int]
    wrong_batches: dict[str, int]
    out_of_order: int
    properties: NotRequired[list[KeyChanges]]
    filter: NotRequired[FilterEffect]


class TopicBatchPlan(BatchPlanDocument):
    """The plan of a topic, or of a ledger that was given by its id."""

    topic: str
    scalable_topic: NotRequired[str]


@dataclass(slots=True)
class Tally:
    """Numbers of batches, messages, and bytes of entries (without the broker's metadata)."""

    batches: int = 0
    messages: int = 0
    largest: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        """Count one batch."""
        self.batches += 1
        self.messages += messages
        self.largest = max(self.largest, messages)
        self.bytes += size

    def document(self) -> TallyDocument:
        """Convert to the JSON of `plan-batches`."""
        return {
            "batches": self.batches,
            "messages_per_batch": round(self.messages / self.batches, 3) if self.batches else 0,
            "largest_batch": self.largest,
            "bytes": self.bytes,
        }


class KeyFinder:
    """Finds the properties that are worth sharing: their values change rarely from message to message."""

    def __init__(self) -> None:
        self._messages = 0
        self._last: dict[str, Mapping[str, str]] = {}
        self._having, self._changes = Counter[str](), Counter[str]()

    def add(self, data: memoryview) -> None:
        """Add the next entry. Raises DecodeError."""
        frame = decode_frame(data, verify=False)
        opened = open_entry(frame)
        if opened.unopened is not None:
            return
        name = readable(frame.metadata.producer_name)
        for message in messages_of_entry(frame, opened):
            self._see(name, outgoing(message, 0, flush=False).properties)

    def _see(self, producer: str, properties: Mapping[str, str]) -> None:
        self._messages += 1
        last = self._last.get(producer, properties)
        self._last[producer] = properties
        self._having.update(properties.keys())
        for key in {*last, *properties}:
            self._changes[key] += last.get(key) != properties.get(key)

    def changes(self) -> list[KeyChanges]:
        """List all properties, those that change least first."""
        keys = sorted(self._changes, key=lambda key: (self._changes[key], key))
        return [{"key": key, "messages": self._having[key], "changes": self._changes[key]} for key in keys]

    def keys(self) -> tuple[str, ...]:
        """Choose keys that together change at most once in MESSAGES_PER_CHANGE messages."""
        chosen: list[str] = []
        changes = 0
        for key in self.changes():
            changes += key["changes"]
            if changes * MESSAGES_PER_CHANGE > self._messages:
                break
            chosen.append(key["key"])
        return tuple(chosen)


# If keys change more often, the batches would have fewer messages than this on average.
MESSAGES_PER_CHANGE: Final = 10


@dataclass(slots=True)
class FilterWatch:
    """Counts the entries that a broker's filter could skip, before and after the rule is applied.

    A broker sees only an entry's metadata (PIP-105). That of a batch has no properties today, and the shared
    ones after the change.
    """

    text: str
    filter: Filter
    before: int = 0
    after: int = 0

    def add_entry(self, frame: Frame, properties: Mapping[str, str]) -> None:
        """Count a stored entry, whose message has `properties` if it is not a batch."""
        if not frame.metadata.HasField("num_messages_in_batch"):
            self.before += not self.filter.holds(properties)

    def add_batch(self, batch: Batch, keys: Sequence[str]) -> None:
        """Count a batch of the plan. One message alone is not stored as a batch."""
        if len(batch.messages) == 1:
            self.after += not self.filter.holds(batch.messages[0].properties)
        elif self.filter.names() <= frozenset(keys):
            shared = {key: value for key, value in zip(keys, batch.values, strict=True) if value is not None}
            self.after += not self.filter.holds(shared)

    def document(self) -> FilterEffect:
        """Convert to the JSON of `plan-batches`."""
        return {"where": self.text, "skippable_before": self.before, "skippable_after": self.after}


@dataclass(slots=True)
class _Producer:
    batcher: Batcher
    order: OrderWatch = field(default_factory=OrderWatch)


class BatchPlan:
    """The plan for one topic. Add every frame in order, then call `document`.

    Each entry is treated as one flush, so its messages stay together unless the rule separates them. With
    `rebatch`, only the rule and the limits separate messages.
    """

    def __init__(
        self,
        batching: Batching,
        *,
        rebatch: bool = False,
        watch: FilterWatch | None = None,
    ) -> None:
        """`watch` counts what a filter could skip."""
        self._watch = watch
        self._batching, self._rebatch = batching, rebatch
        self._before, self._after, self._breaks = Tally(), Tally(), Breaks()
        self._wrong = {"properties": 0, "schema": 0}
        self._unopened: dict[str, int] = {}
        self._numbering = Numbering()
        self._producers: dict[str, _Producer] = {}

    def add(self, data: memoryview) -> None:
        """Add the next entry. Raises DecodeError."""
        frame = decode_frame(data, verify=False)
        opened = open_entry(frame)
        name = readable(frame.metadata.producer_name)
        producer = self._producers.setdefault(name, _Producer(Batcher(self._batching, self._breaks)))
        if opened.unopened is not None:
            self._unopened[opened.unopened] = self._unopened.get(opened.unopened, 0) + 1
            self._publish(producer, producer.batcher.finish())
            return
        messages = list(messages_of_entry(frame, opened))
        self._before.add(len(messages), len(strip_broker_metadata(data)[0]))
        for place, message in enumerate(messages):
            flush = place == 0 and not self._rebatch
            sent = outgoing(message, self._numbering.number(name), flush=flush)
            if self._watch is not None and place == 0:
                self._watch.add_entry(frame, sent.properties)
            self._publish(producer, producer.batcher.add(sent))

    def document(self) -> BatchPlanDocument:
        """Publish the open batches, and convert the plan to the JSON of `plan-batches`."""
        for producer in self._producers.values():
            self._publish(producer, producer.batcher.finish())
        document: BatchPlanDocument = {
            "keys": list(self._batching.keys),
            "strategy": self._batching.rule,
            "producers": len(self._producers),
            "messages": self._before.messages,
            "unopened": self._unopened,
            "before": self._before.document(),
            "after": self._after.document(),
            "breaks": self._breaks.reasons,
            "breaking_keys": {key: self._breaks.keys.get(key, 0) for key in self._batching.keys},
            "wrong_batches": self._wrong,
            "out_of_order": sum(producer.order.left_behind for producer in self._producers.values()),
        }
        if self._watch is not None:
            document["filter"] = self._watch.document()
        return document

    def _publish(self, producer: _Producer, batches: Iterable[Batch]) -> None:
        for batch in batches:
            packing = Packing(keys=self._batching.keys)
            self._after.add(len(batch.messages), len(pack_batch(batch, packing)))
            producer.order.see(batch)
            if self._watch is not None:
                self._watch.add_batch(batch, self._batching.keys)
            properties, schema = wrong_for(batch, self._batching)
            self._wrong["properties"] += properties
            self._wrong["schema"] += schema


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How to plan the batches of topics: the entries, how many of them, and how to batch them.

    With `find_keys`, the keys worth sharing are found first and added to those of `batching`. `where` is a
    subscription's filter.
    """

    limits: Limits
    count: int | None
    batching: Batching
    rebatch: bool
    find_keys: bool = False
    where: str | None = None


def plan_choice(
    rule: BatchRule,
    choice: Choice,
    source: EntrySource,
    store: Store | None,
    report: Report,
    coverage: Coverage,
) -> BatchPlanDocument:
    """Return the plan of a topic. Its entries are read twice if the keys have to be found."""
    places, batching, finder = [(choice, rule.limits)], rule.batching, KeyFinder()
    if rule.find_keys:
        for data in _frames(read_entries(places, source, store, _ignore), rule.count):
            with suppress(DecodeError):
                finder.add(data)
        batching = replace(batching, keys=tuple(dict.fromkeys([*batching.keys, *finder.keys()])))
    watch = None if rule.where is None else FilterWatch(rule.where, parse_filter(rule.where))
    plan = BatchPlan(batching, rebatch=rule.rebatch, watch=watch)
    entries = read_entries(places, source, store, report, coverage)
    document = plan_entries(plan, entries, rule.count, report)
    if rule.find_keys:
        document["properties"] = finder.changes()
    return document


def _ignore(error: PulsarMetaError) -> None:
    """Drop an error that the second reading reports."""


def _frames(entries: Iterable[tuple[DataEntry, EntryFormat]], count: int | None) -> Iterator[memoryview]:
    return (entry.data for entry, form in islice(entries, count) if form.content is None)


def plan_entries(
    plan: BatchPlan, entries: Iterable[tuple[DataEntry, EntryFormat]], count: int | None, report: Report
) -> BatchPlanDocument:
    """Add the first `count` entries (None: all) to a plan, and return its document.

    Unreadable entries go to `report`.
    """
    for entry, form in islice(entries, count):
        if form.content is not None:
            continue
        try:
            plan.add(entry.data)
        except DecodeError as error:
            where = f"entry {entry.ledger_id}:{entry.entry_id}"
            report(error.within(where))
    return plan.document()
