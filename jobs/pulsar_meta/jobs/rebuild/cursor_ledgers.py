"""Find clues in cursor ledgers and compacted ledgers: positions, and the data ledgers they refer to.

A cursor ledger contains neither its subscription's name nor its topic's, but the data ledgers of its
positions belong to the topic. If compaction did not finish, the compacted ledger contains only the beginning
of the topic, and readers may continue in the topic after its last message.

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
from pulsar_meta.jobs.rebuild.system_topics import NO_MENTIONS, TopicMentions, topic_mentions
from pulsar_meta.jobs.topics.cursors import states_of
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo


@dataclass(frozen=True, slots=True)
class CursorClues:
    """The clues in a cursor ledger. `first` and `last` are None if none of its entries can be read.

    `named` are the data ledgers in any of its states. `compacted` is the compacted ledger that the last state
    points to; only the cursor of compaction has one. `ranges` counts acknowledged ranges. `replicated` is
    True if the state of the subscription is replicated, `deduplicates` if the properties are sequence ids of
    producers.
    """

    ledger_id: int
    named: frozenset[int]
    first: Position | None
    last: Position | None
    ranges: int = 0
    compacted: int | None = None
    replicated: bool = False
    deduplicates: bool = False

    @property
    def is_plain(self) -> bool:
        """True if the last state is only a position."""
        return not (self.ranges or self.compacted or self.replicated or self.deduplicates)


def cursor_clues(source: EntrySource, ledger_id: int) -> CursorClues:
    """Collect the clues in a cursor ledger. Unreadable entries are skipped."""
    named, first, last = set[int](), None, None
    for _, state in states_of(source, ledger_id):
        if isinstance(state, PositionInfo):
            named |= set(_ledgers_in(state))
            first, last = first or state, state
    if first is None or last is None:
        return CursorClues(ledger_id, frozenset(), None, None)
    properties = {item.name: item.value for item in last.properties}
    compacted, replicated = properties.get(COMPACTED_LEDGER), REPLICATED in properties
    return CursorClues(
        ledger_id,
        frozenset(named),
        _position(first),
        _position(last),
        acks_of(last).range_count,
        compacted,
        replicated,
        bool(properties) and compacted is None and not replicated,
    )


def _position(state: PositionInfo) -> Position:
    return Position(state.ledgerId, state.entryId)


def _ledgers_in(state: PositionInfo) -> Iterator[int]:
    """Yield the ledgers in a cursor's state."""
    yield state.ledgerId
    for messages in state.individualDeletedMessages:
        yield messages.upperEndpoint.ledgerId
    yield from (batch.position.ledgerId for batch in state.batchedEntryDeletionIndexInfo)
    yield from (ranges.key for ranges in state.individualDeletedMessageRanges)


@dataclass(frozen=True, slots=True)
class CompactedClues:
    """The clues in a compacted ledger: the data ledgers it was made from, and the last position in them."""

    ledger_id: int
    named: frozenset[int]
    last: Position | None
    topic_mentions: TopicMentions = NO_MENTIONS


def compacted_clues(source: EntrySource, ledger_id: int, digest: DigestType | None) -> CompactedClues:
    """Collect the clues in a compacted ledger. Unreadable entries are skipped."""
    named, last = set[int](), None
    for _, outcome in read_each(source, ledger_id):
        if isinstance(outcome, RawEntry):
            try:
                message_id = decode_raw_message(decode_bookie_entry(outcome.data, digest).data).message_id
            except DecodeError:
                continue
            position = Position(message_id.ledgerId, message_id.entryId)
            named.add(position.ledger_id)
            last = position if last is None else max(last, position)
    return CompactedClues(ledger_id, frozenset(named), last, topic_mentions(source, ledger_id))
