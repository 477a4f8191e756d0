"""`repair compaction`: restore, correct or remove a topic's reference to its compacted data.

The reference is a property of the cursor `__compaction`. Readers of compacted data continue at the cursor's
position in the original topic, so this repair writes the reference together with the position of the last
message in the compacted ledger. A broker would write a later position if the messages in between had no key
or deleted theirs. These messages are then redelivered, which does not change the last value of any key.
Compacted ledgers are found by their custom metadata.

Sources: apache/pulsar TwoPhaseCompactor, CompactedTopicImpl, PersistentTopic (the horizon is the cursor's
mark-delete position); apache/pulsar#26483, #26512. Tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.frame import decode_raw_message
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD
from pulsar_meta.codecs.names import LEDGERS, TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.ledger_facts import LedgerFacts, owner_hash, read_facts
from pulsar_meta.jobs.check.ledger_index import index_ledgers
from pulsar_meta.jobs.cursors.conversion import record_with
from pulsar_meta.jobs.cursors.subscriptions import SubscriptionReader
from pulsar_meta.jobs.repair.cursor import Diagnosis, diagnosis
from pulsar_meta.jobs.repair.repair import Repair, becoming, packed
from pulsar_meta.jobs.rewrite.decision import keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.completeness import completeness_of, missing_logs
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION
from pulsar_meta.jobs.topics.topic import Ledger, Position, Topic, read_topic, with_bookkeeper
from pulsar_meta.jobs.transactions.topic_entries import Gap, read_data
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import Store, Versioned, current


@dataclass(frozen=True, slots=True)
class Candidate:
    """A closed ledger with compacted data of a topic. `end` is the last position that it covers.

    `why_not` is the reason against referring to it.
    """

    ledger_id: int
    end: Position
    entries: int
    why_not: str | None = None

    @property
    def text(self) -> str:
        """A sentence that describes the ledger."""
        fit = "" if self.why_not is None else f": {self.why_not}"
        holds = f"{self.entries} entries of compacted data up to {self.end.text}"
        return f"ledger {self.ledger_id} has {holds}{fit}"


def repair_compaction(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    readers: Readers,
    *,
    ledger_id: int | None = None,
    drop: bool = False,
) -> Repair:
    """Make a topic refer to its compacted data in `ledger_id`, or in the ledger that reaches farthest.

    `drop` removes the reference instead. Raises NotFoundError if there is no such topic or ledger, and
    UsageError if the cursor's state is unknown or no ledger fits.
    """
    topic = SubscriptionReader.of(store, source, lambda error: None).topic(read_topic(store, name))
    seen = current(store, name.cursor_path(COMPACTION))
    found = _cursor(store, source, topic, name, seen)
    pointer = _pointer(found)
    there = pointer is not None and _may_be_compacted(read_facts(store, [pointer])[pointer])
    looked, unlooked = {"ledgers": len(topic.ledgers)}, {}
    if source is None:
        unlooked["entries"] = "no --entries"
    said = [_said(name, found, pointer, there=there)]
    candidates = _candidates(store, source, topic, name, found)
    said += [one.text for one in candidates]
    if drop:
        fitting = [one.ledger_id for one in candidates if one.why_not is None and one.ledger_id != pointer]
        if pointer is not None and (there or _may_be_on_disks(store, source, pointer)):
            fitting.append(pointer)
        return _dropped(topic, found, seen, readers, pointer, fitting, said)
    is_behind = any(one.ledger_id == pointer and _is_behind(found, one) for one in candidates)
    healthy = (pointer is not None and there) or (pointer is None and not candidates)
    healthy = healthy and not is_behind
    if healthy and ledger_id in (None, pointer):
        return Repair("compaction", ((seen, keep(seen, "already")),), looked, unlooked, tuple(said))
    chosen = _chosen(candidates, pointer if is_behind and ledger_id is None else ledger_id)
    losses = _given_up(topic, found, chosen)
    return Repair(
        "compaction",
        (becoming(seen, packed(seen, _pointing(found, chosen).SerializeToString(), readers)),),
        checked=looked | {"compacted ledgers": len(candidates)},
        not_checked=unlooked,
        said=(*said, _will(found, chosen)),
        losses=losses,
        confirm=str(name) if losses else None,
    )


def _cursor(
    store: Store, source: EntrySource | None, topic: Topic, name: TopicName, seen: Versioned
) -> Diagnosis:
    """Find the state of the cursor. It has no position if there is no record."""
    try:
        found = diagnosis(store, source, topic, name, COMPACTION, seen)
    except NotFoundError:
        return Diagnosis(ManagedCursorInfo(cursorsLedgerId=STATE_IN_RECORD), "it has no record")
    if found.unseen is not None:
        raise UsageError(f"cannot tell if it points to compacted data: {found.unseen}; add --entries")
    return found


def _pointer(found: Diagnosis) -> int | None:
    held = () if found.state is None else found.state.properties
    return next((one.value for one in held if one.name == COMPACTED_LEDGER), None)


def _is_behind(found: Diagnosis, pointed: Candidate) -> bool:
    """Return True if the cursor is before the end of the compacted data that it refers to."""
    return found.mark_delete is not None and found.mark_delete < pointed.end


def _may_be_compacted(facts: LedgerFacts) -> bool:
    """Return True if a ledger exists and was not created for something else."""
    return facts.metadata != "absent" and facts.role in ("", "other", "compacted")


def _may_be_on_disks(store: Store, source: EntrySource | None, ledger_id: int) -> bool:
    """Return True if the entries of a ledger without metadata may still be on bookies.

    Then `repair ledger-metadata` can bring it back, as long as something names it.
    """
    if read_facts(store, [ledger_id])[ledger_id].metadata == "known":
        return False
    if source is None or not all(part.bookies is not None for part in source.parts):
        # Live bookies answer only for ledgers that have metadata.
        return True
    complete = completeness_of(source)
    hidden = bool(complete.every_gap) or next(missing_logs(source, ledger_id), None) is not None
    return hidden or source.last_entry(ledger_id) is not None


def _said(name: TopicName, found: Diagnosis, pointer: int | None, *, there: bool) -> str:
    if found.state is None:
        return f"{name}: cannot tell which ledger {COMPACTION} points to: {found.wrong}"
    at = found.mark_delete
    assert at is not None
    stands = f"{name}: {COMPACTION} is at {at.text} and points to"
    if pointer is None:
        return f"{stands} no compacted data"
    return f"{stands} ledger {pointer}" + ("" if there else ", which is gone or has no compacted data")


def _candidates(
    store: Store, source: EntrySource | None, topic: Topic, name: TopicName, found: Diagnosis
) -> list[Candidate]:
    """Find the ledgers with compacted data of the topic, by their custom metadata."""
    ids = index_ledgers(store.scan(LEDGERS)).with_owner(owner_hash("compacted", str(name), COMPACTION))
    facts = read_facts(store, ids)
    ledgers = with_bookkeeper(store, map(Ledger, ids), lambda error: None)
    made = (_candidate(source, topic, found, one, facts[one.ledger_id]) for one in ledgers)
    return [one for one in made if one is not None]


def _candidate(
    source: EntrySource | None, topic: Topic, found: Diagnosis, ledger: Ledger, facts: LedgerFacts
) -> Candidate | None:
    """Examine a ledger; None if it is open, empty, or has no end in its metadata."""
    if facts.full is None or facts.full.compacted_to is None or facts.last_entry in (None, -1):
        return None
    end, entries = Position(*facts.full.compacted_to), (facts.last_entry or 0) + 1
    last, fault = _read_through(source, ledger, entries)
    if fault is None:
        fault = _misfit(topic, found, end, last, is_pointed=ledger.ledger_id == _pointer(found))
    return Candidate(ledger.ledger_id, end, entries, fault)


def _read_through(
    source: EntrySource | None, ledger: Ledger, entries: int
) -> tuple[Position | None, str | None]:
    """Return the original position of the last compacted entry, and the first fault in the entries."""
    if source is None:
        return None, None
    count, last = 0, Position(-1, -1)
    for found in read_data(source, [ledger]):
        if isinstance(found, Gap):
            return None, found.why
        try:
            origin = decode_raw_message(found[1]).message_id
        except DecodeError as error:
            return None, f"entry {found[0].entry_id} is not a compacted message: {error.message}"
        place = Position(origin.ledgerId, origin.entryId)
        if place < last:
            return None, f"entry {found[0].entry_id} is out of order: {place} after {last}"
        count, last = count + 1, place
    return (last, None) if count == entries else (None, f"only {count} of its {entries} entries were found")


def _misfit(
    topic: Topic, found: Diagnosis, end: Position, last: Position | None, *, is_pointed: bool
) -> str | None:
    """Return the reason why a ledger that covers up to `end` does not fit, None if it does.

    A broker refers to a ledger (`is_pointed`) when its compaction has ended.
    """
    if last == end:
        return None
    if last is not None and last > end:
        return "it has messages after the end that its metadata records"
    at = found.mark_delete
    if at is None:
        listed = any(one.ledger_id == end.ledger_id for one in topic.ledgers)
        return None if listed else "it may belong to a deleted topic of the same name"
    if at >= end or is_pointed:
        return None
    return "it ends after the cursor, so its compaction may not have finished"


def _chosen(candidates: Sequence[Candidate], ledger_id: int | None) -> Candidate:
    """Choose the given ledger, or the fitting one that reaches farthest."""
    if ledger_id is not None:
        named = next((one for one in candidates if one.ledger_id == ledger_id), None)
        if named is None:
            raise NotFoundError(f"ledger {ledger_id} has no compacted data of this topic")
        if named.why_not is not None:
            raise UsageError(named.text)
        return named
    fitting = [one for one in candidates if one.why_not is None]
    if not fitting:
        why = "; ".join(one.text for one in candidates) or "no ledger has compacted data of this topic"
        raise UsageError(f"{why}: remove the pointer with --drop, then compact the topic again")
    return max(fitting, key=lambda one: (one.end, one.ledger_id))


def _given_up(topic: Topic, found: Diagnosis, chosen: Candidate) -> tuple[str, ...]:
    """Describe the compacted data after the chosen ledger's end that was trimmed from the topic."""
    at = found.mark_delete
    if (
        at is None
        or at <= chosen.end
        or not topic.ledgers
        or chosen.end.ledger_id >= topic.ledgers[0].ledger_id
    ):
        return ()
    first = topic.ledgers[0].ledger_id
    end = chosen.end.text
    return (f"messages between {end} and ledger {first} were trimmed, and this ledger does not have them",)


def _will(found: Diagnosis, chosen: Candidate) -> str:
    moved = "" if found.mark_delete == chosen.end else f", and its position will be {chosen.end.text}"
    return f"it will point to ledger {chosen.ledger_id}{moved}"


def _pointing(found: Diagnosis, chosen: Candidate) -> ManagedCursorInfo:
    """Make the record that refers to a ledger, at the position where the ledger ends."""
    new = _with_state(found)
    if found.mark_delete != chosen.end:
        for field in ("individualDeletedMessages", "batchedEntryDeletionIndexInfo"):
            new.ClearField(field)
    new.markDeleteLedgerId, new.markDeleteEntryId = chosen.end
    _set_pointer(new, chosen.ledger_id)
    return new


def _dropped(
    topic: Topic,
    found: Diagnosis,
    seen: Versioned,
    readers: Readers,
    pointer: int | None,
    existing: Sequence[int],
    said: list[str],
) -> Repair:
    """Remove the reference. Compacted data in existing ledgers becomes unreachable."""
    if pointer is None:
        return Repair("compaction", ((seen, keep(seen, "already")),), said=tuple(said))
    new = _with_state(found)
    _set_pointer(new, None)
    losses = tuple(
        f"entries that are only in ledger {each}, because they were trimmed, become unreachable"
        for each in existing
    )
    if not losses:
        said.append(
            "messages that were trimmed and were only in that ledger are lost; compact the topic again"
        )
    return Repair(
        "compaction",
        (becoming(seen, packed(seen, new.SerializeToString(), readers)),),
        checked={"ledgers": len(topic.ledgers)},
        said=tuple(said),
        losses=losses,
        confirm=topic.name if losses else None,
    )


def _with_state(found: Diagnosis) -> ManagedCursorInfo:
    """Make a record with the current state, because brokers ignore properties next to a cursor ledger."""
    if isinstance(found.state, PositionInfo):
        return record_with(found.record, found.state)
    new = ManagedCursorInfo()
    new.CopyFrom(found.record)
    new.cursorsLedgerId = STATE_IN_RECORD
    return new


def _set_pointer(record: ManagedCursorInfo, ledger_id: int | None) -> None:
    others = [one for one in record.properties if one.name != COMPACTED_LEDGER]
    record.ClearField("properties")
    record.properties.extend(others)
    if ledger_id is not None:
        record.properties.add(name=COMPACTED_LEDGER, value=ledger_id)
