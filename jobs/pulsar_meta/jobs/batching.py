"""How a producer would put messages into batches, under issue #16680's rule and its relatives.

`same-values`   a message joins the open batch only with the same values of the chosen keys (the intent)
`as-proposed`   the condition that the proposal prints: `!multiSchema || sameSchema || sameProperties`
`by-properties` the rejected alternative: one open batch for each set of values, published together

A batch also ends at `max_messages`, at `max_bytes` (properties and payload, uncompressed), with another
transaction, with another schema (except where `as-proposed` lets it pass), and at a flush.

Sources: apache/pulsar issue #16680 (PIP-191), ProducerImpl.canAddToCurrentBatch,
BatchMessageContainerImpl.add, hasSameSchema, hasSameTxn, AbstractBatchMessageContainer.haveEnoughSpace.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Rule = Literal["same-values", "as-proposed", "by-properties"]
RULES: Final[tuple[Rule, ...]] = ("same-values", "as-proposed", "by-properties")

# ProducerConfigurationData's default; its default of bytes is 128 KiB.
DEFAULT_MAX_MESSAGES: Final = 1000
DEFAULT_MAX_BYTES: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message before it is batched. `flush`: whatever is open is published before it.

    `alone`: never batched (deliver-at times). `size` counts bytes, properties included; `number` is its
    place in the producer's order.
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
    """The messages of one batch, and what every one of them should share."""

    values: tuple[str | None, ...]
    schema: bytes | None
    transaction: tuple[int, int] | None
    alone: bool = False
    messages: list[Outgoing] = field(default_factory=list)
    size: int = 0

    def add(self, message: Outgoing) -> None:
        """Put a message into the batch."""
        self.messages.append(message)
        self.size += message.size


@dataclass(frozen=True, slots=True)
class Batching:
    """The rule and its limits; `keys` are the properties hoisted. `multi_schema`: the producer's mode."""

    keys: Sequence[str] = ()
    rule: Rule = "same-values"
    max_messages: int = DEFAULT_MAX_MESSAGES
    max_bytes: int = DEFAULT_MAX_BYTES
    multi_schema: bool = True

    def values(self, message: Outgoing) -> tuple[str | None, ...]:
        """Return the message's values of the keys, None for a property that it does not have."""
        return tuple(message.properties.get(key) for key in self.keys)


@dataclass(slots=True)
class Breaks:
    """Why batches ended, and how often each key was one of those that differed."""

    reasons: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)

    def count(self, reason: str) -> None:
        """Count one batch that ended so."""
        self.reasons[reason] = self.reasons.get(reason, 0) + 1


def into_batches(messages: Iterable[Outgoing], batching: Batching, breaks: Breaks) -> Iterable[Batch]:
    """Yield the batches of one producer in the order in which they would be published."""
    open_batches: dict[Hashable, Batch] = {}
    for message in messages:
        if message.flush and open_batches:
            breaks.count("flush")
            yield from _publish(open_batches)
        slot = batching.values(message) if batching.rule == "by-properties" else None
        current = open_batches.get(slot)
        reason = None if current is None else why_not_into(current, message, batching)
        if reason is not None:
            breaks.count(reason)
            if reason == "properties" and current is not None:
                _count_keys(current, message, batching, breaks)
            # As the Java client does: what does not fit publishes everything that is open.
            yield from _publish(open_batches)
        if open_batches.get(slot) is None:
            shared = (batching.values(message), message.schema, message.transaction)
            open_batches[slot] = Batch(*shared, alone=message.alone)
        open_batches[slot].add(message)
    yield from _publish(open_batches)


def why_not_into(batch: Batch, message: Outgoing, batching: Batching) -> str | None:
    """Return why a message cannot join a batch, None where it can."""
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


def wrong_batches(batches: Iterable[Batch], batching: Batching) -> dict[str, int]:
    """Return how many batches have messages for which the batch's own properties or schema are wrong."""
    wrong = {"properties": 0, "schema": 0}
    for batch in batches:
        wrong["properties"] += any(batching.values(message) != batch.values for message in batch.messages)
        wrong["schema"] += any(message.schema != batch.schema for message in batch.messages)
    return wrong


def out_of_order(batches: Iterable[Batch]) -> int:
    """Return how many messages would be published behind one that was sent after them."""
    newest, left_behind = -1, 0
    for message in (message for batch in batches for message in batch.messages):
        left_behind += message.number < newest
        newest = max(newest, message.number)
    return left_behind


def _publish(open_batches: dict[Hashable, Batch]) -> list[Batch]:
    """Return the open batches in the order in which they were begun, and forget them."""
    published = list(open_batches.values())
    open_batches.clear()
    return published


def _count_keys(batch: Batch, message: Outgoing, batching: Batching, breaks: Breaks) -> None:
    for key, old, new in zip(batching.keys, batch.values, batching.values(message), strict=True):
        if old != new:
            breaks.keys[key] = breaks.keys.get(key, 0) + 1
