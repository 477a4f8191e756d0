"""Rebuild topics and their records from groups of data ledgers. Topics without a name go to lost+found.

A record contains the number of entries of every ledger, including the last one, because a broker deletes
ledgers without entries.

Source: apache/pulsar ManagedLedgerImpl.java (initialize, internalTrimLedgers), MLDataFormats.proto.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.cursor_ledgers import CompactedClues, CursorClues
from pulsar_meta.jobs.rebuild.evidence import Certainty, DataClues, Rebuilt, RebuiltFacts
from pulsar_meta.jobs.rebuild.groups import Group, group_ledgers
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger
from pulsar_meta.jobs.rebuild.names import Names
from pulsar_meta.jobs.rebuild.scan import ScanResult
from pulsar_meta.jobs.rebuild.system_topics import SYSTEM_TOPICS
from pulsar_meta.jobs.rebuild.transactions import MAX_LOCAL_TXN_ID, LogClues, highest_ids, log_topic
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo


def record_of(
    ledgers: Iterable[FoundLedger], old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> tuple[ManagedLedgerInfo, list[int]]:
    """Make the record of a topic's managed ledger. Returns it and the ledgers that stay deleted."""
    record = ManagedLedgerInfo()
    on_disk = {ledger.ledger_id: ledger for ledger in ledgers}
    newest = -1
    for before in old.ledgerInfo if old is not None else ():
        newest = max(newest, before.ledgerId)
        here = on_disk.get(before.ledgerId)
        if here is not None or before.offloadContext.complete:
            kept = record.ledgerInfo.add()
            kept.CopyFrom(before)
            if here is not None and not (before.timestamp and before.entries):
                kept.entries, kept.size = here.last_entry + 1, here.length or 0
    known = {info.ledgerId for info in record.ledgerInfo}
    deleted = [ledger_id for ledger_id in sorted(on_disk) if ledger_id not in known and ledger_id < newest]
    for ledger_id, ledger in sorted(on_disk.items()):
        if ledger_id > newest:
            entries, size = ledger.last_entry + 1, ledger.length or 0
            record.ledgerInfo.add(ledgerId=ledger_id, entries=entries, size=size)
    if old is not None and old.HasField("terminatedPosition") and max(on_disk, default=-1) <= newest:
        record.terminatedPosition.CopyFrom(old.terminatedPosition)
    _set_properties(record, old, properties)
    return record, deleted


def _set_properties(
    record: ManagedLedgerInfo, old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> None:
    values = {pair.key: pair.value for pair in old.properties} if old is not None else {}
    for key, value in properties.items():
        before = values.get(key, "")
        if key == MAX_LOCAL_TXN_ID and before.isdigit() and int(before) > int(value):
            continue
        values[key] = value
    for key, value in values.items():
        record.properties.add(key=key, value=value)


# The tenant and namespace of topics without a known name; each is called after its first ledger.
LOST_TENANT: Final = "lost-found"
LOST_NAMESPACE: Final = "ledgers"
NAMELESS: Final = "its name is not on the disks"
# The number of messages to show of a topic without a name, and the number of bytes of each.
PAYLOADS: Final = 3
PAYLOAD_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic: its name (in lost+found if unknown), its ledgers in order, and the evidence.

    `mentions` are the cursor ledgers and compacted ledgers that refer to its data, `clues` those in its data
    ledgers, and `properties` those of its managed ledger. The ledgers `compacted_away` of a system topic are
    left out of its record, because a broker that loads it deletes them regardless of retention, while its own
    reader still needs them.
    """

    name: TopicName
    certainty: Certainty
    ledgers: tuple[int, ...]
    evidence: tuple[str, ...]
    mentions: tuple[int, ...] = ()
    clues: tuple[DataClues, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    compacted_away: frozenset[int] = frozenset()

    def rebuilt(self, found: Mapping[int, FoundLedger], old: ManagedLedgerInfo | None = None) -> Rebuilt:
        """Make its record. `old` is the record in an older store. Refused ledgers are left out."""
        wanted = [found[ledger_id] for ledger_id in self.ledgers if ledger_id not in self.compacted_away]
        kept = [ledger for ledger in wanted if ledger.refused is None]
        facts: RebuiltFacts = {"topic": str(self.name), "ledgers": list(self.ledgers), **_sums(self.clues)}
        if wanted and not kept and old is None:
            evidence = ("all its ledgers are refused", *self.evidence)
            return Rebuilt(self.name.path, "refused", evidence, None, facts)
        record, deleted = record_of(kept, old, self.properties)
        facts["ledgers"] = [info.ledgerId for info in record.ledgerInfo]
        evidence = (*self.evidence, *_deleted(deleted), *_compacted_away(self.compacted_away))
        return Rebuilt(self.name.path, self.certainty, evidence, record.SerializeToString(), facts)


def found_topics(scanned: ScanResult, names: Names) -> list[FoundTopic]:
    """Find the topics of all data ledgers, logs and compacted ledgers. Each name occurs once."""
    data = scanned.clues_of(DataClues)
    known = {at: str(named.topic) for at, named in names.items() if at in data}
    groups = group_ledgers(data, scanned.mentions(), known, scanned.torn)
    topics = {topic.name: topic for topic in (_of_group(group, data, names) for group in groups)}
    for more in (*_logs(scanned, names), *_compacted_only(scanned, names, topics)):
        other = topics.get(more.name)
        topics[more.name] = more if other is None else _together(other, more)
    return [_without_compacted(topic, scanned) for topic in topics.values()]


@dataclass(frozen=True, slots=True)
class Compaction:
    """The newest compacted ledger of a topic, and the last position it covers.

    `pointed` is True if a cursor ledger points to it.
    """

    ledger_id: int
    horizon: Position
    pointed: bool


def compaction(scanned: ScanResult, mentions: Iterable[int]) -> Compaction | None:
    """Find the newest compacted ledger among those that refer to a topic's data; None if there is none."""
    compacted = scanned.clues_of(CompactedClues)
    ids = [ledger_id for ledger_id in mentions if ledger_id in compacted and ledger_id in scanned.kept]
    newest = compacted[max(ids)] if ids else None
    if newest is None or newest.last is None:
        return None
    cursors = scanned.clues_of(CursorClues).values()
    pointers = [clues.last for clues in cursors if clues.compacted == newest.ledger_id and clues.last]
    return Compaction(newest.ledger_id, max([newest.last, *pointers]), bool(pointers))


class MessageSums(TypedDict):
    """The number of messages, and the times of the first and the last one in milliseconds."""

    messages: int
    first_time: int | None
    last_time: int | None


class FirstPayload(TypedDict):
    """The beginning of the first message of a ledger, as text."""

    ledger_id: int
    key: str | None
    payload: str


class UnnamedTopic(MessageSums):
    """The ledgers of a topic without a known name; the operator fills in `topic`."""

    ledger_id: int
    topic: None
    ledgers: list[int]
    producers: list[str]
    payloads: list[FirstPayload]
    evidence: list[str]


def unnamed(source: EntrySource, topics: Iterable[FoundTopic]) -> Iterator[UnnamedTopic]:
    """Yield each topic that has data but no name, as a line of a file of names."""
    for topic in topics:
        if topic.certainty == "lost+found" and topic.clues:
            yield {
                "ledger_id": topic.ledgers[0],
                "topic": None,
                "ledgers": list(topic.ledgers),
                **_sums(topic.clues),
                "producers": sorted({name for clue in topic.clues for name in clue.producers}),
                "payloads": list(islice(_payloads(source, topic.ledgers), PAYLOADS)),
                "evidence": list(topic.evidence),
            }


def lost_name(ledger_id: int) -> TopicName:
    """Make the name of a topic in lost+found."""
    return TopicName(LOST_TENANT, LOST_NAMESPACE, f"ledger-{ledger_id}")


def _of_group(group: Group, data: Mapping[int, DataClues], names: Names) -> FoundTopic:
    named = next((names[ledger_id] for ledger_id in group.ledgers if ledger_id in names), None)
    clues = tuple(data[ledger_id] for ledger_id in group.ledgers)
    evidence = (NAMELESS if named is None else named.why, *group.evidence)
    name = lost_name(group.ledgers[0]) if named is None else named.topic
    certainty: Certainty = "lost+found"
    if named is not None:
        certainty = "certain" if group.certain and named.sure else "likely"
    return FoundTopic(name, certainty, group.ledgers, evidence, group.mentions, clues)


def _without_compacted(topic: FoundTopic, scanned: ScanResult) -> FoundTopic:
    """Leave the ledgers out of a system topic whose entries are all in its compacted data."""
    newest = compaction(scanned, topic.mentions) if topic.name.local in SYSTEM_TOPICS else None
    if newest is None:
        return topic
    ends = [Position(ledger_id, scanned.ledgers[ledger_id].last_entry) for ledger_id in topic.ledgers]
    return replace(topic, compacted_away=frozenset(end.ledger_id for end in ends if end <= newest.horizon))


def _logs(scanned: ScanResult, names: Names) -> Iterator[FoundTopic]:
    """Yield the logs of coordinators and of pending acknowledgments.

    If the log of a coordinator is on no disk but messages contain its transactions, only the property is
    rebuilt.
    """
    logs, data = scanned.clues_of(LogClues), scanned.clues_of(DataClues)
    highest = highest_ids(
        [log.highest for log in logs.values()] + [clues.highest_txns for clues in data.values()]
    )
    ledgers_by_topic: dict[TopicName, list[int]] = defaultdict(list)
    for ledger_id in logs:
        topic = names[ledger_id].topic if ledger_id in names else lost_name(ledger_id)
        ledgers_by_topic[topic].append(ledger_id)
    highest_by_topic = {log_topic(number): str(least) for number, least in highest.items()}
    for name in dict.fromkeys((*ledgers_by_topic, *highest_by_topic)):
        ledgers = tuple(ledgers_by_topic.get(name, ()))
        lost = any(ledger_id not in names for ledger_id in ledgers)
        properties = {MAX_LOCAL_TXN_ID: highest_by_topic[name]} if name in highest_by_topic else {}
        why = names[ledgers[0]].why if ledgers and not lost else NAMELESS
        evidence = [why] if ledgers else ["messages on the disks contain transactions of its coordinator"]
        if properties:
            evidence.append(f"the highest transaction on the disks is {properties[MAX_LOCAL_TXN_ID]}")
        certainty: Certainty = "lost+found" if lost else "certain" if ledgers else "likely"
        yield FoundTopic(name, certainty, ledgers, tuple(evidence), properties=properties)


def _compacted_only(
    scanned: ScanResult, names: Names, topics: Mapping[TopicName, FoundTopic]
) -> Iterator[FoundTopic]:
    """Yield the topics of compacted ledgers whose data is all gone."""
    mentioned = {ledger_id for topic in topics.values() for ledger_id in topic.mentions}
    for ledger_id in scanned.clues_of(CompactedClues):
        if ledger_id not in mentioned:
            named = names.get(ledger_id)
            name = lost_name(ledger_id) if named is None else named.topic
            why = NAMELESS if named is None else named.why
            evidence = (why, f"only its compacted data, in ledger {ledger_id}, is left")
            yield FoundTopic(name, "lost+found" if named is None else "likely", (), evidence, (ledger_id,))


def _together(topic: FoundTopic, other: FoundTopic) -> FoundTopic:
    return replace(
        topic,
        ledgers=tuple(sorted({*topic.ledgers, *other.ledgers})),
        evidence=(*topic.evidence, *other.evidence),
        mentions=(*topic.mentions, *other.mentions),
        clues=(*topic.clues, *other.clues),
        properties={**topic.properties, **other.properties},
    )


def _deleted(ledgers: Sequence[int]) -> Iterator[str]:
    if ledgers:
        named = ", ".join(map(str, ledgers))
        yield f"ledgers {named} are on the disks, but had been deleted when the old store was copied"


def _compacted_away(ledgers: Iterable[int]) -> Iterator[str]:
    named = ", ".join(map(str, sorted(ledgers)))
    if named:
        yield f"ledgers {named} are left out, because all their entries are in its compacted data"


def _sums(clues: Sequence[DataClues]) -> MessageSums:
    first = [clue.first_time for clue in clues if clue.first_time is not None]
    last = [clue.last_time for clue in clues if clue.last_time is not None]
    return {
        "messages": sum(clue.messages for clue in clues),
        "first_time": min(first, default=None),
        "last_time": max(last, default=None),
    }


def _payloads(source: EntrySource, ledgers: Iterable[int]) -> Iterator[FirstPayload]:
    """Yield the beginning of the first message of each ledger that can be read."""
    for ledger_id in ledgers:
        try:
            frame = decode_frame(decode_bookie_entry(source.read(ledger_id, 0).data).data, verify=False)
            messages = open_entry(frame).messages
        except (DecodeError, NotFoundError):
            continue
        if messages:
            text = bytes(messages[0].payload[:PAYLOAD_BYTES]).decode("utf-8", "replace")
            key = messages[0].metadata.partition_key or None
            yield {"ledger_id": ledger_id, "key": key, "payload": text}
