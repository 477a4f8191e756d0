"""Simulate how a producer groups messages into batches, with the rule of issue #16680 and variants.

`same-values`   a message joins the open batch only with the same values of the chosen keys (the intent)
`as-proposed`   the condition that the proposal prints: `!multiSchema || sameSchema || sameProperties`
`by-properties` the rejected alternative: one open batch for each set of values, published together

A batch also ends at `max_messages`, at `max_bytes` (properties and payload, uncompressed), before a message
of another transaction, of another schema (unless `as-proposed` allows it), and at a flush.

Sources: apache/pulsar issue #16680 (PIP-191), ProducerImpl.canAddToCurrentBatch,
BatchMessageContainerImpl.add, hasSameSchema, hasSameTxn, AbstractBatchMessageContainer.haveEnoughSpace.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Rule = Literal["same-values", "as-proposed", "by-properties"]
RULES: Final[tuple[Rule, ...]] = ("same-values", "as-proposed", "by-properties")

# The defaults in ProducerConfigurationData.
DEFAULT_MAX_MESSAGES: Final = 1000
DEFAULT_MAX_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message before it is batched. `flush`: open batches are published before it.

    `alone`: the message is never batched (deliver-at times). `size` is in bytes, including properties.
    `number` is its number in the producer's order.
    """

    number: int
    properties: Mapping[str, str]
    size: int
    schema: bytes | None = None
    transaction: tuple[int, int] | None = None
    flush: bool = False
    alone: bool = False
    content: Any = field(default=None, repr=False)


@dataclass(slots=True)
class Batch:
    """The messages of one batch, and the values that all of them should share."""

    values: tuple[str | None, ...]
    schema: bytes | None
    transaction: tuple[int, int] | None
    alone: bool = False
    messages: list[Outgoing] = field(default_factory=list)
    size: int = 0

    def add(self, message: Outgoing) -> None:
        """Add a message to the batch."""
        self.messages.append(message)
        self.size += message.size


@dataclass(frozen=True, slots=True)
class Batching:
    """The rule and its limits. `keys` are the hoisted properties, `multi_schema` is the producer's mode."""

    keys: Sequence[str] = ()
    rule: Rule = "same-values"
    max_messages: int = DEFAULT_MAX_MESSAGES
    max_bytes: int = DEFAULT_MAX_BYTES
    multi_schema: bool = True

    def values(self, message: Outgoing) -> tuple[str | None, ...]:
        """The message's values of the keys; None for missing properties."""
        return tuple(message.properties.get(key) for key in self.keys)


@dataclass(slots=True)
class Breaks:
    """The reasons why batches ended, and how often each key differed."""

    reasons: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str) -> None:
        """Count the end of a batch."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


class Batcher:
    """The open batches of one producer. `add` and `finish` return the published batches, in order."""

    def __init__(self, batching: Batching, breaks: Breaks) -> None:
        """The reasons why batches end are counted in `breaks`."""
        self._batching, self._breaks = batching, breaks
        self._open: dict[Hashable, Batch] = {}

    def add(self, message: Outgoing) -> list[Batch]:
        """Add a message to its batch. Returns the batches that are published because of it."""
        published: list[Batch] = []
        if message.flush and self._open:
            self._breaks.count("flush")
            published += self.finish()
        slot = self._batching.values(message) if self._batching.rule == "by-properties" else None
        current = self._open.get(slot)
        reason = None if current is None else why_not_into(current, message, self._batching)
        if current is None or reason is not None:
            if current is not None and reason is not None:
                self._count(reason, current, message)
                # As in the Java client, a message that does not fit publishes all open batches.
                published += self.finish()
            shared = (self._batching.values(message), message.schema, message.transaction)
            current = self._open[slot] = Batch(*shared, alone=message.alone)
        current.add(message)
        return published

    def finish(self) -> list[Batch]:
        """Publish all open batches, in the order in which they were started."""
        published = list(self._open.values())
        self._open.clear()
        return published

    def _count(self, reason: str, batch: Batch, message: Outgoing) -> None:
        self._breaks.count(reason)
        if reason != "properties":
            return
        pairs = zip(self._batching.keys, batch.values, self._batching.values(message), strict=True)
        for key in (key for key, old, new in pairs if old != new):
            self._breaks.keys[key] = self._breaks.keys.get(key, 0) + 1


def why_not_into(batch: Batch, message: Outgoing, batching: Batching) -> str | None:
    """The reason why a message can't join a batch; None if it can."""
    if batch.alone or message.alone:
        return "alone"
    if len(batch.messages) >= batching.max_messages:
        return "max-messages"
    if batch.size + message.size > batching.max_bytes:
        return "max-bytes"
    if batch.transaction != message.transaction:
        return "transaction"
    same_schema, same_values = batch.schema == message.schema, batch.values == batching.values(message)
    if batching.rule == "as-proposed":
        return None if not batching.multi_schema or same_schema or same_values else "schema and properties"
    if not same_schema:
        return "schema"
    return None if same_values else "properties"


@dataclass(slots=True)
class OrderWatch:
    """Counts the messages of one producer that are published after a later message."""

    newest: int = -1
    left_behind: int = 0

    def see(self, batch: Batch) -> None:
        """Add the next published batch."""
        for message in batch.messages:
            self.left_behind += message.number < self.newest
            self.newest = max(self.newest, message.number)


def wrong_for(batch: Batch, batching: Batching) -> tuple[bool, bool]:
    """Whether the batch's properties, and its schema, are wrong for any of its messages."""
    properties = any(batching.values(message) != batch.values for message in batch.messages)
    return properties, any(message.schema != batch.schema for message in batch.messages)
