"""Subscriptions made again from cursors' ledgers, and the cursors of compaction from compacted ledgers.

A cursor's ledger belongs to the topic whose ledgers its positions name; nothing in it says which
subscription it is. It is `recovered-LEDGER` then: a subscription that keeps what it has not acknowledged.
Markers of replicated subscriptions have names, and where these stood at least.

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
from pulsar_meta.jobs.rebuild.replication import Standing, standings, whose
from pulsar_meta.jobs.rebuild.scan import Scanned
from pulsar_meta.jobs.rebuild.topics import LOST_TENANT, FoundTopic, compaction
from pulsar_meta.jobs.rebuild.transactions import LOG_CURSOR, LogClues
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.jobs.transactions.pending_acks import LOG_CURSOR as PENDING_CURSOR
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo

DEDUPLICATION: Final = "pulsar.dedup"
# The cursor of each kind of log, which has no other.
_OF_LOGS: Final = {"transaction-log": LOG_CURSOR, "pending-acks": PENDING_CURSOR}


@dataclass(frozen=True, slots=True)
class FoundCursor:
    """A cursor's ledger: the topic that its positions name (None: none of those on the disks), its name.

    `name` is None where nothing says which subscription it is. Not `sure`: it is the only one that fits.
    """

    clues: CursorClues
    topic: TopicName | None
    name: str | None
    why: str
    sure: bool = True

    @property
    def called(self) -> str:
        """The name under which it is written."""
        return self.name or f"recovered-{self.clues.ledger_id}"


def found_cursors(
    scanned: Scanned, topics: Sequence[FoundTopic], names: Names, cluster: str
) -> list[FoundCursor]:
    """Return the ledgers of cursors, each with its topic and name as far as something says them.

    `cluster` is what this cluster is called, where no marker says it.
    """
    owner = {ledger_id: topic.name for topic in topics for ledger_id in topic.ledgers}
    found = [
        _found(clues, names.get(at), owner, scanned)
        for at, clues in sorted(scanned.said(CursorClues).items())
    ]
    return list(_by_markers(found, {topic.name: replicated_in(topic, cluster) for topic in topics}))


def replicated_in(topic: FoundTopic, cluster: str) -> list[Standing]:
    """Return the replicated subscriptions that the markers in a topic name, and where each stood at least."""
    return standings({clues.ledger_id: clues.replicated for clues in topic.clues}, cluster)


def _by_markers(
    cursors: Iterable[FoundCursor], standing: Mapping[TopicName, Sequence[Standing]]
) -> Iterator[FoundCursor]:
    """Yield the cursors, those of replicated subscriptions with the names that markers have."""
    every = list(cursors)
    mine: dict[TopicName, dict[int, Position]] = defaultdict(dict)
    for one in every:
        if one.clues.replicated and one.name is None and one.topic is not None and one.clues.last is not None:
            mine[one.topic][one.clues.ledger_id] = one.clues.last
    named = {(one.topic, one.name) for one in every}
    found: dict[int, Standing] = {}
    for topic, last in mine.items():
        found |= whose([one for one in standing[topic] if (topic, one.subscription) not in named], last)
    for one in every:
        by = found.get(one.clues.ledger_id)
        if by is not None:
            yield replace(one, name=by.subscription, why=f"{by.why}; no other fits", sure=False)
        elif one.topic is not None and one.clues.ledger_id in mine[one.topic]:
            named_there = ", ".join(each.subscription for each in standing[one.topic]) or "none"
            why = f"it is replicated, and nothing says which subscription it is; markers name {named_there}"
            yield replace(one, why=why)
        else:
            yield one


def rebuilt_cursors(
    scanned: Scanned, topics: Iterable[FoundTopic], cursors: Iterable[FoundCursor]
) -> Iterator[Rebuilt]:
    """Yield a record for each cursor; of several ledgers of one that at which it stood last."""
    yield from _compactions(scanned, topics)
    newest: dict[tuple[TopicName, str], FoundCursor] = {}
    for one in cursors:
        if one.topic is None or one.clues.last is None:
            yield _without_topic(one)
        elif one.name != COMPACTION:
            key = one.topic, one.called
            newest[key] = max(newest.get(key, one), one, key=_newness)
    for (topic, name), one in newest.items():
        yield _of_ledger(topic, name, one, refused=one.clues.ledger_id not in scanned.kept)


class UnnamedCursor(TypedDict):
    """A cursor's ledger whose name nothing says; `cursor` is to be filled in."""

    ledger_id: int
    topic: str | None
    cursor: None
    position: str | None
    ledgers: list[int]
    evidence: list[str]


def unnamed_cursors(cursors: Iterable[FoundCursor]) -> Iterator[UnnamedCursor]:
    """Yield each cursor's ledger without a name, as a line of a file of names to be filled in."""
    for one in cursors:
        if one.name is None:
            lost = one.topic is None or one.topic.tenant == LOST_TENANT
            yield {
                "ledger_id": one.clues.ledger_id,
                "topic": None if lost else str(one.topic),
                "cursor": None,
                "position": place_text(one.clues.last),
                "ledgers": sorted(one.clues.named),
                "evidence": [one.why],
            }


def _found(
    clues: CursorClues, named: Named | None, owner: Mapping[int, TopicName], scanned: Scanned
) -> FoundCursor:
    last = () if clues.last is None else (clues.last.ledger_id,)
    at = next((one for one in (*last, *sorted(clues.named)) if one in owner), None)
    topic = owner.get(at) if at is not None else None
    if named is not None:
        return FoundCursor(clues, named.topic, named.cursor, named.why)
    if clues.compacted is not None:
        return FoundCursor(clues, topic, COMPACTION, "only the cursor of compaction points to compacted data")
    if clues.deduplicates:
        return FoundCursor(clues, topic, DEDUPLICATION, "only deduplication keeps sequence ids of producers")
    log = scanned.clues.get(at) if at is not None else None
    if isinstance(log, LogClues):
        return FoundCursor(clues, topic, _OF_LOGS[log.kind], "a log has no other cursor")
    why = "nothing says which subscription it is"
    return FoundCursor(clues, topic, None, why)


def _newness(one: FoundCursor) -> tuple[Position, int]:
    return one.clues.last or Position(-1, -1), one.clues.ledger_id


def _of_ledger(topic: TopicName, name: str, one: FoundCursor, *, refused: bool) -> Rebuilt:
    position = one.clues.last
    assert position is not None
    path = topic.cursor_path(name)
    facts = cursor_facts(topic, name)
    facts |= {"position": place_text(position), "cursor_ledger": one.clues.ledger_id}
    if refused:
        return Rebuilt(path, "refused", ("its ledger is refused",), None, facts)
    record = ManagedCursorInfo(
        cursorsLedgerId=one.clues.ledger_id,
        markDeleteLedgerId=position.ledger_id,
        markDeleteEntryId=position.entry_id,
    )
    certainty: Certainty = "lost+found" if one.name is None else "certain" if one.sure else "likely"
    moved = f"its ledger {one.clues.ledger_id} has where it stood last"
    return Rebuilt(path, certainty, (one.why, moved), record.SerializeToString(), facts)


def _without_topic(one: FoundCursor) -> Rebuilt:
    """Return what is said of a cursor that can be put nowhere."""
    why = "its entries cannot be read" if one.clues.last is None else "its positions are in no ledger here"
    path = f"/managed-ledgers/lost-found/ledgers/persistent/recovered-{one.clues.ledger_id}"
    facts: RebuiltFacts = {
        "topic": None,
        "cursor": one.name,
        "position": place_text(one.clues.last),
        "cursor_ledger": one.clues.ledger_id,
    }
    return Rebuilt(path, "lost+found", (why, "no record of it is written"), None, facts)


def _compactions(scanned: Scanned, topics: Iterable[FoundTopic]) -> Iterator[Rebuilt]:
    """Yield the cursor of each topic with compacted data: it points to the newest of it."""
    for topic in topics:
        found = compaction(scanned, topic.mentions)
        if found is not None:
            why = f"ledger {found.ledger_id} has compacted data of it"
            facts = cursor_facts(topic.name, COMPACTION)
            facts |= {"position": place_text(found.horizon), "compacted_ledger": found.ledger_id}
            value = state_in_record(found.horizon, {COMPACTED_LEDGER: found.ledger_id})
            path = topic.name.cursor_path(COMPACTION)
            yield Rebuilt(path, "certain" if found.pointed else "likely", (why,), value, facts)


def state_in_record(position: Position, properties: Mapping[str, int] | None = None) -> bytes:
    """Return the record of a cursor whose state is in the record."""
    record = ManagedCursorInfo(
        cursorsLedgerId=STATE_IN_RECORD,
        markDeleteLedgerId=position.ledger_id,
        markDeleteEntryId=position.entry_id,
    )
    for name, value in (properties or {}).items():
        record.properties.add(name=name, value=value)
    return record.SerializeToString()


def cursor_facts(topic: TopicName, cursor: str) -> RebuiltFacts:
    """Return what a reader of a subscription's value looks at first."""
    return {"topic": str(topic), "cursor": cursor}


def place_text(position: Position | None) -> str | None:
    """Return a position as it is shown."""
    return None if position is None else f"{position.ledger_id}:{position.entry_id}"
