"""What a cursor's ledger says: where the subscription stood at its first and at its last entry.

Nothing in it names the subscription or its topic; the data ledgers of its positions are the topic's.

Sources: apache/pulsar MLDataFormats.proto (PositionInfo), ManagedCursorImpl.java, CompactedTopicImpl.java,
PersistentSubscription.java, MessageDeduplication.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.replication import REPLICATED
from pulsar_meta.jobs.topics.cursors import states_of
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo


@dataclass(frozen=True, slots=True)
class CursorClues:
    """What a cursor's ledger says; None where none of its entries can be read.

    `named` are the data ledgers that any of its states speaks of, `compacted` the compacted ledger that the
    last one points to: only the cursor of compaction has one. `ranges` counts acknowledged ranges.
    `replicated`: of a subscription whose state is replicated; `deduplicates`: its properties are sequence ids
    of producers.
    """

    ledger_id: int
    named: frozenset[int]
    first: Position | None
    last: Position | None
    ranges: int = 0
    compacted: int | None = None
    replicated: bool = False
    deduplicates: bool = False


def cursor_clues(source: EntrySource, ledger_id: int) -> CursorClues:
    """Return what a cursor's ledger says; entries that cannot be read are passed over."""
    named, first, last = set[int](), None, None
    for _, state in states_of(source, ledger_id):
        if isinstance(state, PositionInfo):
            named |= set(_ledgers_in(state))
            first, last = first or state, state
    if first is None or last is None:
        return CursorClues(ledger_id, frozenset(), None, None)
    compacted = next((one.value for one in last.properties if one.name == COMPACTED_LEDGER), None)
    ranges = acks_of(last).range_count
    properties = {one.name for one in last.properties}
    replicated = REPLICATED in properties
    return CursorClues(
        ledger_id,
        frozenset(named),
        _position(first),
        _position(last),
        ranges,
        compacted,
        replicated,
        bool(properties) and compacted is None and not replicated,
    )


def _position(state: PositionInfo) -> Position:
    return Position(state.ledgerId, state.entryId)


def _ledgers_in(state: PositionInfo) -> Iterator[int]:
    """Yield the ledgers that a cursor's state speaks of."""
    yield state.ledgerId
    for messages in state.individualDeletedMessages:
        yield messages.upperEndpoint.ledgerId
    yield from (batch.position.ledgerId for batch in state.batchedEntryDeletionIndexInfo)
    yield from (ranges.key for ranges in state.individualDeletedMessageRanges)
