"""Cursor ledgers and compacted ledgers: first and last position, compaction, and the topic they belong to.

A cursor ledger names neither its subscription nor its topic; the data ledgers of its positions belong to the
topic. A
compacted ledger that was not finished contains a prefix: readers may continue in the topic after its last
message.

Sources: apache/pulsar MLDataFormats.proto (PositionInfo), ManagedCursorImpl.java, CompactedTopicImpl.java,
PersistentSubscription.java, MessageDeduplication.java, TwoPhaseCompactor.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_raw_message
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.jobs.rebuild.replication import REPLICATED
from pulsar_meta.jobs.rebuild.system_topics import NOTHING, Announced, announced
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


@dataclass(frozen=True, slots=True)
class CompactedClues:
    """What a compacted ledger says: the data ledgers that it is made from, the last position of them."""

    ledger_id: int
    named: frozenset[int]
    last: Position | None
    announced: Announced = NOTHING


def compacted_clues(source: EntrySource, ledger_id: int, digest: DigestType | None) -> CompactedClues:
    """Return what a compacted ledger says; entries that cannot be read are passed over."""
    named, last = set[int](), None
    for _, outcome in read_each(source, ledger_id):
        if isinstance(outcome, RawEntry):
            try:
                found = decode_raw_message(decode_bookie_entry(outcome.data, digest).data).message_id
            except DecodeError:
                continue
            position = Position(found.ledgerId, found.entryId)
            named.add(position.ledger_id)
            last = position if last is None else max(last, position)
    return CompactedClues(ledger_id, frozenset(named), last, announced(source, ledger_id))
