"""Rebuild subscriptions from cursor ledgers, and cursors of compaction from compacted ledgers.

A cursor ledger belongs to the topic whose data ledgers its positions refer to. It does not contain the name
of its subscription. If nothing else reveals the name, the subscription is rebuilt as `recovered-LEDGER`, so
that unacknowledged messages are kept. Markers contain the names of replicated subscriptions and a lower bound
of their positions.

Sources: apache/pulsar ManagedCursorImpl.java (recover), CompactedTopicImpl.java, PersistentTopic.java,
MessageDeduplication.java, PersistentSubscription.java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rebuild.cursor_ledgers import CursorClues
from pulsar_meta.jobs.rebuild.evidence import Certainty, Rebuilt, RebuiltFacts
from pulsar_meta.jobs.rebuild.names import Named, Names
from pulsar_meta.jobs.rebuild.replication import (
    ReplicatedSubscription,
    assign_by_position,
    replicated_subscriptions,
)
from pulsar_meta.jobs.rebuild.scan import ScanResult
from pulsar_meta.jobs.rebuild.topics import LOST_TENANT, FoundTopic, compaction
from pulsar_meta.jobs.rebuild.transactions import LOG_CURSOR, LogClues
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.jobs.transactions.pending_acks import LOG_CURSOR as PENDING_CURSOR
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo

DEDUPLICATION: Final = "pulsar.dedup"
# Each kind of log has only this cursor.
_OF_LOGS: Final = {"transaction-log": LOG_CURSOR, "pending-acks": PENDING_CURSOR}


@dataclass(frozen=True, slots=True)
class FoundCursor:
    """A cursor ledger with its topic and subscription.

    `topic` is None if no ledger in its positions is on the disks. `name` is None if the subscription is
    unknown. `sure` is False if the name is only the last one that remains possible.
    """

    clues: CursorClues
    topic: TopicName | None
    name: str | None
    why: str
    sure: bool = True

    @property
    def written_name(self) -> str:
        """The name under which the cursor is written."""
        return self.name or f"recovered-{self.clues.ledger_id}"

    @property
    def certainty(self) -> Certainty:
        """How certain its name is."""
        if self.name is None:
            return "lost+found"
        return "certain" if self.sure else "likely"


def found_cursors(
    scanned: ScanResult, topics: Sequence[FoundTopic], names: Names, cluster: str
) -> list[FoundCursor]:
    """Find the topic and the name of each cursor ledger.

    `cluster` is the name of this cluster, used if no marker contains it.
    """
    owner = {ledger_id: topic.name for topic in topics for ledger_id in topic.ledgers}
    cursors = [
        _found(clues, names.get(ledger_id), owner, scanned)
        for ledger_id, clues in sorted(scanned.clues_of(CursorClues).items())
    ]
    return list(_by_markers(cursors, {topic.name: replicated_in(topic, cluster) for topic in topics}))


def replicated_in(topic: FoundTopic, cluster: str) -> list[ReplicatedSubscription]:
    """List the replicated subscriptions that the markers in a topic name."""
    return replicated_subscriptions({clues.ledger_id: clues.replicated for clues in topic.clues}, cluster)


def _by_markers(
    found: Iterable[FoundCursor], replicated: Mapping[TopicName, Sequence[ReplicatedSubscription]]
) -> Iterator[FoundCursor]:
    """Yield the cursors. Replicated subscriptions without a name get the one that fits by the markers."""
    cursors = list(found)
    unnamed: dict[TopicName, dict[int, Position]] = defaultdict(dict)
    for cursor in cursors:
        clues = cursor.clues
        if clues.replicated and cursor.name is None and cursor.topic is not None and clues.last is not None:
            unnamed[cursor.topic][clues.ledger_id] = clues.last
    named = {(cursor.topic, cursor.name) for cursor in cursors}
    assigned: dict[int, ReplicatedSubscription] = {}
    for topic, last in unnamed.items():
        candidates = [item for item in replicated[topic] if (topic, item.subscription) not in named]
        assigned |= assign_by_position(candidates, last)
    for cursor in cursors:
        by = assigned.get(cursor.clues.ledger_id)
        if by is not None:
            yield replace(cursor, name=by.subscription, why=f"{by.why}; no other fits", sure=False)
        elif cursor.topic is not None and cursor.clues.ledger_id in unnamed[cursor.topic]:
            in_markers = ", ".join(item.subscription for item in replicated[cursor.topic]) or "none"
            why = f"it is replicated, but its subscription is unknown; subscriptions in markers: {in_markers}"
            yield replace(cursor, why=why)
        else:
            yield cursor


def rebuilt_cursors(
    scanned: ScanResult,
    topics: Iterable[FoundTopic],
    cursors: Iterable[FoundCursor],
    ends: Mapping[TopicName, Position],
) -> Iterator[Rebuilt]:
    """Yield a record for each cursor. If a cursor has several ledgers, the last position counts.

    `ends` are the last positions of topics.
    """
    yield from _compactions(scanned, topics)
    newest: dict[tuple[TopicName, str], FoundCursor] = {}
    for cursor in cursors:
        if cursor.topic is None or cursor.clues.last is None:
            yield _without_topic(cursor)
        elif cursor.name != COMPACTION:
            key = cursor.topic, cursor.written_name
            newest[key] = max(newest.get(key, cursor), cursor, key=_newness)
    for (topic, name), cursor in newest.items():
        refused = cursor.clues.ledger_id not in scanned.kept
        end, last = ends.get(topic), cursor.clues.last
        if end and last and not refused and cursor.clues.is_plain and is_after(last, end):
            yield _at_end(topic, name, cursor, end)
        else:
            yield _of_ledger(topic, name, cursor, refused=refused)


class UnnamedCursor(TypedDict):
    """A cursor ledger without a known name; the operator fills in `cursor`."""

    ledger_id: int
    topic: str | None
    cursor: None
    position: str | None
    ledgers: list[int]
    evidence: list[str]


def unnamed_cursors(cursors: Iterable[FoundCursor]) -> Iterator[UnnamedCursor]:
    """Yield each cursor ledger without a name, as a line of a file of names."""
    for cursor in cursors:
        if cursor.name is None:
            lost = cursor.topic is None or cursor.topic.tenant == LOST_TENANT
            yield {
                "ledger_id": cursor.clues.ledger_id,
                "topic": None if lost else str(cursor.topic),
                "cursor": None,
                "position": place_text(cursor.clues.last),
                "ledgers": sorted(cursor.clues.named),
                "evidence": [cursor.why],
            }


def _found(
    clues: CursorClues, named: Named | None, owner: Mapping[int, TopicName], scanned: ScanResult
) -> FoundCursor:
    last = () if clues.last is None else (clues.last.ledger_id,)
    at = next((ledger_id for ledger_id in (*last, *sorted(clues.named)) if ledger_id in owner), None)
    topic = owner.get(at) if at is not None else None
    if named is not None:
        return FoundCursor(clues, named.topic, named.cursor, named.why)
    if clues.compacted is not None:
        return FoundCursor(clues, topic, COMPACTION, "only the cursor of compaction points to compacted data")
    if clues.deduplicates:
        return FoundCursor(clues, topic, DEDUPLICATION, "only deduplication stores sequence ids of producers")
    log = scanned.clues.get(at) if at is not None else None
    if isinstance(log, LogClues):
        return FoundCursor(clues, topic, _OF_LOGS[log.kind], "a log has no other cursor")
    return FoundCursor(clues, topic, None, "its subscription is unknown")


def _newness(cursor: FoundCursor) -> tuple[Position, int]:
    return cursor.clues.last or Position(-1, -1), cursor.clues.ledger_id


def _of_ledger(topic: TopicName, name: str, cursor: FoundCursor, *, refused: bool) -> Rebuilt:
    ledger_id, position = cursor.clues.ledger_id, cursor.clues.last
    assert position is not None
    path = topic.cursor_path(name)
    facts = cursor_facts(topic, name)
    facts |= {"position": place_text(position), "cursor_ledger": ledger_id}
    if refused:
        return Rebuilt(path, "refused", ("its ledger is refused",), None, facts)
    record = ManagedCursorInfo(
        cursorsLedgerId=ledger_id,
        markDeleteLedgerId=position.ledger_id,
        markDeleteEntryId=position.entry_id,
    )
    evidence = cursor.why, f"its ledger {ledger_id} contains its last position"
    return Rebuilt(path, cursor.certainty, evidence, record.SerializeToString(), facts)


def is_after(at: Position, end: Position) -> bool:
    """Return True if a position is before the first entry of a ledger that followed the topic's last one.

    Brokers create a ledger when they load a topic, and cursors move into it. If nothing is published, no disk
    has it, and such a position would be beyond the end of the rebuilt topic.
    """
    return at.entry_id < 0 and at.ledger_id > end.ledger_id


def _at_end(topic: TopicName, name: str, cursor: FoundCursor, end: Position) -> Rebuilt:
    facts = cursor_facts(topic, name)
    facts |= {"position": place_text(end), "cursor_ledger": cursor.clues.ledger_id}
    why = f"its ledger {cursor.clues.ledger_id} has the position {place_text(cursor.clues.last)}"
    evidence = cursor.why, f"{why}, so all entries on the disks are acknowledged"
    return Rebuilt(topic.cursor_path(name), cursor.certainty, evidence, state_in_record(end), facts)


def _without_topic(cursor: FoundCursor) -> Rebuilt:
    """Report a cursor for which no record can be written."""
    unreadable = cursor.clues.last is None
    why = "its entries can't be read" if unreadable else "none of its ledgers is on the disks"
    path = f"/managed-ledgers/lost-found/ledgers/persistent/recovered-{cursor.clues.ledger_id}"
    facts: RebuiltFacts = {
        "topic": None,
        "cursor": cursor.name,
        "position": place_text(cursor.clues.last),
        "cursor_ledger": cursor.clues.ledger_id,
    }
    return Rebuilt(path, "lost+found", (why, "no record of it is written"), None, facts)


def _compactions(scanned: ScanResult, topics: Iterable[FoundTopic]) -> Iterator[Rebuilt]:
    """Yield the cursor of compaction of each topic with compacted data. It points to the newest data."""
    for topic in topics:
        newest = compaction(scanned, topic.mentions)
        if newest is not None:
            why = f"ledger {newest.ledger_id} has its compacted data"
            facts = cursor_facts(topic.name, COMPACTION)
            facts |= {"position": place_text(newest.horizon), "compacted_ledger": newest.ledger_id}
            value = state_in_record(newest.horizon, {COMPACTED_LEDGER: newest.ledger_id})
            path = topic.name.cursor_path(COMPACTION)
            yield Rebuilt(path, "certain" if newest.pointed else "likely", (why,), value, facts)


def state_in_record(position: Position, properties: Mapping[str, int] | None = None) -> bytes:
    """Encode a cursor record that contains the cursor's state, without a cursor ledger."""
    record = ManagedCursorInfo(
        cursorsLedgerId=STATE_IN_RECORD,
        markDeleteLedgerId=position.ledger_id,
        markDeleteEntryId=position.entry_id,
    )
    for name, value in (properties or {}).items():
        record.properties.add(name=name, value=value)
    return record.SerializeToString()


def cursor_facts(topic: TopicName, cursor: str) -> RebuiltFacts:
    """Make the first facts of a subscription's value."""
    return {"topic": str(topic), "cursor": cursor}


def place_text(position: Position | None) -> str | None:
    """Format a position as `ledger:entry`."""
    return None if position is None else f"{position.ledger_id}:{position.entry_id}"
