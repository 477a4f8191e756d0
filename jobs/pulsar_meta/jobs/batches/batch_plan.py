"""Simulate a batching rule with the messages of a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import DEFAULT_MAX_SIZE, open_entry
from pulsar_meta.codecs.frames.frame import decode_frame, strip_broker_metadata
from pulsar_meta.codecs.protobuf.to_json import readable
from pulsar_meta.jobs.batches.batching import Batch, Batcher, Batching, Breaks, OrderWatch, wrong_for
from pulsar_meta.jobs.batches.packing import Numbering, Packing, messages_of_entry, outgoing, pack_batch
from pulsar_meta.jobs.entries.entry_reading import DataEntry
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import Report


class TallyDocument(TypedDict):
    """Numbers of batches and messages. `bytes` are those of entries without the broker's metadata."""

    batches: int
    messages_per_batch: float
    largest_batch: int
    bytes: int


class BatchPlanDocument(TypedDict):
    """The effect of a batching rule. Counts are by reason or by key."""

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
        self, batching: Batching, *, rebatch: bool = False, max_size: int = DEFAULT_MAX_SIZE
    ) -> None:
        """`max_size` limits the decompressed size of a payload, in bytes."""
        self._batching, self._rebatch, self._max_size = batching, rebatch, max_size
        self._before, self._after, self._breaks = Tally(), Tally(), Breaks()
        self._wrong = {"properties": 0, "schema": 0}
        self._unopened: dict[str, int] = {}
        self._numbering = Numbering()
        self._producers: dict[str, _Producer] = {}

    def add(self, data: memoryview) -> None:
        """Add the next entry. Raises DecodeError."""
        frame = decode_frame(data, verify=False)
        opened = open_entry(frame, max_size=self._max_size)
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
            self._publish(producer, producer.batcher.add(sent))

    def document(self) -> BatchPlanDocument:
        """Publish the open batches, and convert the plan to the JSON of `plan-batches`."""
        for producer in self._producers.values():
            self._publish(producer, producer.batcher.finish())
        return {
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

    def _publish(self, producer: _Producer, batches: Iterable[Batch]) -> None:
        for batch in batches:
            packing = Packing(keys=self._batching.keys)
            self._after.add(len(batch.messages), len(pack_batch(batch, packing)))
            producer.order.see(batch)
            properties, schema = wrong_for(batch, self._batching)
            self._wrong["properties"] += properties
            self._wrong["schema"] += schema


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
