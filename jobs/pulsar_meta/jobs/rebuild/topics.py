"""Rebuild topics from groups of data ledgers, and their records; topics without a name go to lost+found.

Every ledger of a record gets its number of entries, the last one too, because a broker deletes a ledger
without
entries.

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
from pulsar_meta.jobs.rebuild.scan import Scanned
from pulsar_meta.jobs.rebuild.system_topics import SYSTEM_TOPICS
from pulsar_meta.jobs.rebuild.transactions import MAX_LOCAL_TXN_ID, LogClues, highest_ids, log_topic
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo


def record_of(
    ledgers: Iterable[FoundLedger], old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> tuple[ManagedLedgerInfo, list[int]]:
    """Return the record of a topic's managed ledger, and the ledgers that stay deleted."""
    record = ManagedLedgerInfo()
    found = {one.ledger_id: one for one in ledgers}
    newest = -1
    for before in old.ledgerInfo if old is not None else ():
        newest = max(newest, before.ledgerId)
        here = found.get(before.ledgerId)
        if here is not None or before.offloadContext.complete:
            kept = record.ledgerInfo.add()
            kept.CopyFrom(before)
            if here is not None and not (before.timestamp and before.entries):
                kept.entries, kept.size = here.last_entry + 1, here.length or 0
    known = {one.ledgerId for one in record.ledgerInfo}
    deleted = [one for one in sorted(found) if one not in known and one < newest]
    for one in sorted(found):
        if one > newest:
            record.ledgerInfo.add(
                ledgerId=one, entries=found[one].last_entry + 1, size=found[one].length or 0
            )
    if old is not None and old.HasField("terminatedPosition") and max(found, default=-1) <= newest:
        record.terminatedPosition.CopyFrom(old.terminatedPosition)
    _set_properties(record, old, properties)
    return record, deleted


def _set_properties(
    record: ManagedLedgerInfo, old: ManagedLedgerInfo | None, properties: Mapping[str, str]
) -> None:
    values = {one.key: one.value for one in old.properties} if old is not None else {}
    for key, value in properties.items():
        before = values.get(key, "")
        if key == MAX_LOCAL_TXN_ID and before.isdigit() and int(before) > int(value):
            continue
        values[key] = value
    for key, value in values.items():
        record.properties.add(key=key, value=value)


# Where topics are whose names nothing says, each by its first ledger.
LOST_TENANT: Final = "lost-found"
LOST_NAMESPACE: Final = "ledgers"
NAMELESS: Final = "nothing on the disks says its name"
# Messages that are shown of a topic without a name, and bytes of each.
PAYLOADS: Final = 3
PAYLOAD_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic: its ledgers in order, its name (in lost+found where nothing says one), and why.

    `mentions` are cursors' and compacted ledgers that name its data; `properties` are those of its managed
    ledger; `clues` what the messages of its data ledgers say. Of a system topic the ledgers `compacted_away`
    stay out of its record: a broker that loads it deletes them, whatever the retention, under its own reader.
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
        """Return its record; `old` is what an older store had. Ledgers that are refused are left out."""
        mine = [one for one in self.ledgers if one not in self.compacted_away]
        kept = [found[one] for one in mine if found[one].refused is None]
        facts: RebuiltFacts = {"topic": str(self.name), "ledgers": list(self.ledgers), **_sums(self.clues)}
        if mine and not kept and old is None:
            evidence = ("all its ledgers are refused", *self.evidence)
            return Rebuilt(self.name.path, "refused", evidence, None, facts)
        record, deleted = record_of(kept, old, self.properties)
        facts["ledgers"] = [one.ledgerId for one in record.ledgerInfo]
        evidence = (*self.evidence, *_deleted(deleted), *_compacted_away(self.compacted_away))
        return Rebuilt(self.name.path, self.certainty, evidence, record.SerializeToString(), facts)


def found_topics(scanned: Scanned, names: Names) -> list[FoundTopic]:
    """Return the topics of data, logs and compacted ledgers, each name once."""
    data = scanned.said(DataClues)
    known = {at: str(named.topic) for at, named in names.items() if at in data}
    groups = group_ledgers(data, scanned.mentions(), known, scanned.torn)
    topics = {topic.name: topic for topic in (_of_group(group, data, names) for group in groups)}
    for more in (*_logs(scanned, names), *_compacted_only(scanned, names, topics)):
        other = topics.get(more.name)
        topics[more.name] = more if other is None else _together(other, more)
    return [_without_compacted(topic, scanned) for topic in topics.values()]


@dataclass(frozen=True, slots=True)
class Compaction:
    """The newest compacted ledger of a topic, and up to where it goes.

    `pointed`: a cursor's ledger points to it.
    """

    ledger_id: int
    horizon: Position
    pointed: bool


def compaction(scanned: Scanned, mentions: Iterable[int]) -> Compaction | None:
    """Return the compacted data of a topic, which is one of the ledgers that name its data; None without."""
    compacted = scanned.said(CompactedClues)
    mine = [compacted[one] for one in mentions if one in compacted and one in scanned.kept]
    newest = max(mine, key=lambda one: one.ledger_id, default=None)
    if newest is None or newest.last is None:
        return None
    cursors = scanned.said(CursorClues).values()
    pointers = [one.last for one in cursors if one.compacted == newest.ledger_id and one.last is not None]
    return Compaction(newest.ledger_id, max([newest.last, *pointers]), bool(pointers))


class MessageSums(TypedDict):
    """How many messages, and the times of the first and the last one in milliseconds."""

    messages: int
    first_time: int | None
    last_time: int | None


class FirstPayload(TypedDict):
    """The beginning of the first message of a ledger, as text."""

    ledger_id: int
    key: str | None
    payload: str


class UnnamedTopic(MessageSums):
    """Ledgers of a topic whose name nothing says; `topic` is to be filled in."""

    ledger_id: int
    topic: None
    ledgers: list[int]
    producers: list[str]
    payloads: list[FirstPayload]
    evidence: list[str]


def unnamed(source: EntrySource, topics: Iterable[FoundTopic]) -> Iterator[UnnamedTopic]:
    """Yield each topic with data and without a name, as a line of a file of names to be filled in."""
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
    """Return the name that a topic has in lost+found."""
    return TopicName(LOST_TENANT, LOST_NAMESPACE, f"ledger-{ledger_id}")


def _of_group(group: Group, data: Mapping[int, DataClues], names: Names) -> FoundTopic:
    named = next((names[one] for one in group.ledgers if one in names), None)
    clues = tuple(data[one] for one in group.ledgers)
    evidence = (NAMELESS if named is None else named.why, *group.evidence)
    if named is None:
        name, certainty = lost_name(group.ledgers[0]), _lost()
    else:
        name = named.topic
        certainty = "certain" if group.certain and named.sure else "likely"
    return FoundTopic(name, certainty, group.ledgers, evidence, group.mentions, clues)


def _without_compacted(topic: FoundTopic, scanned: Scanned) -> FoundTopic:
    """Return a topic, a system topic without the ledgers whose entries are all in its compacted data."""
    found = compaction(scanned, topic.mentions) if topic.name.local in SYSTEM_TOPICS else None
    if found is None:
        return topic
    ends = {one: Position(one, scanned.found[one].last_entry) for one in topic.ledgers}
    return replace(topic, compacted_away=frozenset(one for one, end in ends.items() if end <= found.horizon))


def _lost() -> Certainty:
    return "lost+found"


def _logs(scanned: Scanned, names: Names) -> Iterator[FoundTopic]:
    """Yield the logs of coordinators and of pending acknowledgments.

    Of a coordinator that messages name and that has no log on the disks only the property is left.
    """
    logs, data = scanned.said(LogClues), scanned.said(DataClues)
    highest = highest_ids(
        [one.highest for one in logs.values()] + [one.highest_txns for one in data.values()]
    )
    of: dict[TopicName, list[int]] = defaultdict(list)
    for ledger_id in logs:
        of[names[ledger_id].topic if ledger_id in names else lost_name(ledger_id)].append(ledger_id)
    counted = {log_topic(number): str(least) for number, least in highest.items()}
    for name in dict.fromkeys((*of, *counted)):
        ledgers = tuple(of.get(name, ()))
        lost = any(one not in names for one in ledgers)
        properties = {MAX_LOCAL_TXN_ID: counted[name]} if name in counted else {}
        why = names[ledgers[0]].why if ledgers and not lost else NAMELESS
        evidence = [why] if ledgers else ["messages on the disks name its coordinator"]
        if properties:
            evidence.append(f"the highest transaction on the disks is {properties[MAX_LOCAL_TXN_ID]}")
        certainty: Certainty = "lost+found" if lost else "certain" if ledgers else "likely"
        yield FoundTopic(name, certainty, ledgers, tuple(evidence), properties=properties)


def _compacted_only(
    scanned: Scanned, names: Names, topics: Mapping[TopicName, FoundTopic]
) -> Iterator[FoundTopic]:
    """Yield the topics of compacted ledgers whose data is all gone."""
    mentioned = {one for topic in topics.values() for one in topic.mentions}
    for ledger_id in scanned.said(CompactedClues):
        if ledger_id not in mentioned:
            named = names.get(ledger_id)
            name = lost_name(ledger_id) if named is None else named.topic
            why = NAMELESS if named is None else named.why
            evidence = (why, f"only its compacted data, in ledger {ledger_id}, is left")
            yield FoundTopic(name, "lost+found" if named is None else "likely", (), evidence, (ledger_id,))


def _together(one: FoundTopic, other: FoundTopic) -> FoundTopic:
    return replace(
        one,
        ledgers=tuple(sorted({*one.ledgers, *other.ledgers})),
        evidence=(*one.evidence, *other.evidence),
        mentions=(*one.mentions, *other.mentions),
        clues=(*one.clues, *other.clues),
        properties={**one.properties, **other.properties},
    )


def _deleted(ledgers: Sequence[int]) -> Iterator[str]:
    if ledgers:
        named = ", ".join(map(str, ledgers))
        yield f"ledgers {named} are on the disks, and had been deleted from it when the old store was taken"


def _compacted_away(ledgers: Iterable[int]) -> Iterator[str]:
    named = ", ".join(map(str, sorted(ledgers)))
    if named:
        yield f"ledgers {named} stay out: all of them is in its compacted data"


def _sums(clues: Sequence[DataClues]) -> MessageSums:
    first = [clue.first_time for clue in clues if clue.first_time is not None]
    last = [clue.last_time for clue in clues if clue.last_time is not None]
    return {
        "messages": sum(clue.messages for clue in clues),
        "first_time": min(first, default=None),
        "last_time": max(last, default=None),
    }


def _payloads(source: EntrySource, ledgers: Iterable[int]) -> Iterator[FirstPayload]:
    """Yield the beginning of the first message of each ledger that can be opened."""
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
