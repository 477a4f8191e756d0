"""`repair cursor`: write a record that brokers can load, if a cursor's record or its ledger is unreadable.

The new record contains the state itself, which every release accepts, and refers to no ledger. The state
comes from the readable part of the record or from the cursor's ledger, even if BookKeeper has lost the
ledger's metadata. If the record doesn't name the ledger, the custom metadata of ledgers does. Otherwise the
operator has to choose a position.

Sources: apache/pulsar ManagedCursorImpl (recover, recoverFromLedger, isBkErrorNotRecoverable). The effects on
brokers were tested with 4.0.7 and 4.2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.names import LEDGERS, MAX_LEDGER_ID, TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.ledger_facts import owner_hash, read_facts
from pulsar_meta.jobs.check.ledger_index import index_ledgers
from pulsar_meta.jobs.cursors.conversion import record_with
from pulsar_meta.jobs.cursors.subscriptions import SubscriptionReader
from pulsar_meta.jobs.repair.losses import move_texts
from pulsar_meta.jobs.repair.repair import Repair, becoming, packed
from pulsar_meta.jobs.repair.salvage import Salvaged, salvage
from pulsar_meta.jobs.rewrite.decision import keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.backlog import backlog
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import CursorState, recovered, state_of
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.topic import Position, Topic, read_topic
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current

# The last entry that counts as acknowledged, or an end of the topic.
Target = Position | Literal["earliest", "latest"]
WHICH = "--position LEDGER:ENTRY, --earliest or --latest"


class Diagnosis(NamedTuple):
    """The damage to a cursor, and its last known state.

    `record` has the readable fields of its record. `wrong` describes the damage, None if brokers can load
    the record; `unseen` is the reason if that is unknown. `state` is from entry `entry_id` of `ledger_id`,
    or from the record, and None if it is lost. `rewinds` is the position to which a broker would go back.
    `salvaged` is the readable part of a damaged record, if brokers can load it.
    """

    record: ManagedCursorInfo
    wrong: str | None
    unseen: str | None = None
    state: ManagedCursorInfo | PositionInfo | None = None
    ledger_id: int | None = None
    entry_id: int | None = None
    rewinds: Position | None = None
    salvaged: ManagedCursorInfo | None = None

    @property
    def mark_delete(self) -> Position | None:
        """The mark-delete position, None if it is lost."""
        if isinstance(self.state, PositionInfo):
            return Position(self.state.ledgerId, self.state.entryId)
        if self.state is None:
            return None
        return Position(self.state.markDeleteLedgerId, self.state.markDeleteEntryId)


def repair_cursor(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    cursor: str,
    target: Target | None,
    readers: Readers,
) -> Repair:
    """Write a record that brokers can load, at `target` or, without it, with the last known state.

    Raises NotFoundError if there is no such topic or cursor, UsageError if the operator has to choose a
    position or chose one outside the topic, and DecodeError if the topic's own record is damaged.
    """
    topic = SubscriptionReader.of(store, source, lambda error: None).topic(read_topic(store, name))
    seen = current(store, name.cursor_path(cursor))
    found = diagnosis(store, source, topic, name, cursor, seen)
    looked = {"ledgers": len(topic.ledgers)}
    unlooked = {"entries": "no --entries"} if source is None else {}
    if target is None and found.wrong is None:
        return _healthy(seen, found, looked, unlooked)
    record, position = _new_record(topic, found, target)
    value = packed(seen, record.SerializeToString(), readers)
    said, losses = _consequences(topic, found, record, position, cursor, target is not None)
    return Repair(
        "cursor",
        (becoming(seen, value),),
        checked=looked,
        not_checked=unlooked,
        said=(f"{name}: the cursor {cursor!r}: {found.wrong or 'brokers can load it as it is'}", *said),
        losses=losses,
        confirm=str(name) if losses else None,
    )


def _healthy(seen: Versioned, found: Diagnosis, looked: dict[str, int], unlooked: dict[str, str]) -> Repair:
    """Keep a record that brokers can load. Raises UsageError if it is unknown whether they can."""
    if found.unseen is not None:
        raise UsageError(f"cannot tell if it needs repair: {found.unseen}; add --entries, or {WHICH}")
    decided = (seen, keep(seen, "already"))
    said = "brokers can load this cursor as it is; to move it, add"
    return Repair("cursor", (decided,), looked, unlooked, (f"{said} {WHICH}",))


def diagnosis(
    store: Store,
    source: EntrySource | None,
    topic: Topic,
    name: TopicName,
    cursor: str,
    seen: Versioned,
) -> Diagnosis:
    """Find the damage to a cursor. Raises NotFoundError if there is no record and no state of it."""
    try:
        record = decode_cursor(seen.value)
    except DecodeError as error:
        if seen.version == ABSENT:
            return _without_record(store, source, name, cursor)
        return _of_damaged(store, source, topic, name, cursor, seen, error)
    return _of_record(store, source, topic, record, name, cursor)


def _of_record(
    store: Store,
    source: EntrySource | None,
    topic: Topic,
    record: ManagedCursorInfo,
    name: TopicName,
    cursor: str,
) -> Diagnosis:
    ledger_id = record.cursorsLedgerId
    knows = has_metadata(store)
    if ledger_id != STATE_IN_RECORD and knows:
        facts = read_facts(store, [ledger_id])[ledger_id]
        if facts.owner_hash not in (0, owner_hash("cursor", str(name), cursor)):
            owner = "something else" if facts.owner is None else f"{facts.owner.role} of {facts.owner.name}"
            wrong = f"its state should be in ledger {ledger_id}, but that ledger was created as {owner}"
            return _found_in(record, wrong, next(_states(store, source, name, cursor), None))
    known = recovered(record, store if knows else None, source, topic.ledgers)
    recovery = known.recovery
    state: CursorState | None = known.state
    if recovery.believed == "record":
        return Diagnosis(record, None, state=record)
    if recovery.believed == "ledger" or (
        recovery.believed == "unknown" and not isinstance(known.state.fault, DecodeError)
    ):
        unseen = recovery.why if recovery.believed == "unknown" else None
        return _found_in(record, None, state)._replace(unseen=unseen)
    if recovery.believed != "unknown":
        state = _read_state(record, source)
    rewinds = recovery.mark_delete if recovery.believed == "rewind" else None
    return _found_in(record, recovery.why, state, rewinds)


def _found_in(
    record: ManagedCursorInfo, wrong: str | None, found: CursorState | None, rewinds: Position | None = None
) -> Diagnosis:
    if found is None or found.state is None:
        return Diagnosis(record, wrong, rewinds=rewinds)
    return Diagnosis(record, wrong, None, found.state, found.ledger_id, found.entry_id, rewinds)


def _without_record(store: Store, source: EntrySource | None, name: TopicName, cursor: str) -> Diagnosis:
    found = next(_states(store, source, name, cursor), None)
    if found is None:
        raise missing(store, name.cursor_path(cursor))
    return _found_in(ManagedCursorInfo(cursorsLedgerId=STATE_IN_RECORD), "it has no record", found)


def _of_damaged(
    store: Store,
    source: EntrySource | None,
    topic: Topic,
    name: TopicName,
    cursor: str,
    seen: Versioned,
    error: DecodeError,
) -> Diagnosis:
    """Return what is left of a damaged record; the state of the cursor's ledger if that is newer."""
    left = salvage(ManagedCursorInfo, seen.value)
    record, wrong = _intact(left), f"its record can't be read: {error.message}"
    wrong += f"; {left.how}" if left.how else ""
    if not left.message.HasField("cursorsLedgerId"):
        record.cursorsLedgerId = STATE_IN_RECORD
        return _found_in(record, wrong, next(_states(store, source, name, cursor), None))
    if record.cursorsLedgerId == STATE_IN_RECORD:
        if left.complete or _is_in_topic(record, topic):
            return Diagnosis(record, wrong, state=record, salvaged=record)
        return _found_in(record, wrong, next(_states(store, source, name, cursor), None))
    found = _read_state(record, source)
    if found is None or found.state is None:
        found = next(_states(store, source, name, cursor), None)
    if found is None and _is_own_ledger(store, name, cursor, record.cursorsLedgerId):
        return Diagnosis(record, wrong, salvaged=record)
    return _found_in(record, wrong, found)


def _intact(left: Salvaged[ManagedCursorInfo]) -> ManagedCursorInfo:
    """Return the complete fields of a record.

    The last batch of a truncated record is left out. Indexes that are cut off would count as acknowledged.
    """
    record, message = ManagedCursorInfo(), left.message
    for name in ("cursorsLedgerId", "markDeleteLedgerId", "markDeleteEntryId", "lastActive"):
        if message.HasField(name):
            setattr(record, name, getattr(message, name))
    batches = message.batchedEntryDeletionIndexInfo
    record.batchedEntryDeletionIndexInfo.extend(batches if left.complete else batches[:-1])
    for name in ("individualDeletedMessages", "properties", "cursorProperties"):
        getattr(record, name).extend(item for item in getattr(message, name) if item.IsInitialized())
    return record


def _is_in_topic(record: ManagedCursorInfo, topic: Topic) -> bool:
    """Return True if a truncated record has a position in a ledger of the topic.

    Without its entry, the position is before the first entry of the ledger.
    """
    if not record.HasField("markDeleteLedgerId"):
        return False
    if not record.HasField("markDeleteEntryId"):
        record.markDeleteEntryId = -1
    entries = {ledger.ledger_id: ledger.entries for ledger in topic.ledgers}
    if record.markDeleteLedgerId not in entries:
        return False
    count = entries[record.markDeleteLedgerId]
    return record.markDeleteEntryId >= -1 and (count is None or record.markDeleteEntryId < count)


def _is_own_ledger(store: Store, name: TopicName, cursor: str, ledger_id: int) -> bool:
    """Return True if BookKeeper says that a ledger was created for the state of this cursor."""
    if not has_metadata(store) or not 0 <= ledger_id <= MAX_LEDGER_ID:
        return False
    facts = read_facts(store, [ledger_id])[ledger_id]
    return facts.metadata == "known" and facts.owner_hash == owner_hash("cursor", str(name), cursor)


def _states(store: Store, source: EntrySource | None, name: TopicName, cursor: str) -> Iterator[CursorState]:
    """Yield the states in the cursor's ledgers, by their custom metadata, newest ledger first."""
    if source is None:
        return
    for ledger_id in reversed(
        index_ledgers(store.scan(LEDGERS)).with_owner(owner_hash("cursor", str(name), cursor))
    ):
        found = _read_state(ManagedCursorInfo(cursorsLedgerId=ledger_id), source)
        if found is not None and found.state is not None:
            yield found


def _read_state(record: ManagedCursorInfo, source: EntrySource | None) -> CursorState | None:
    # Live bookies are found by the ledger's metadata, which may be damaged.
    with suppress(NotFoundError, DecodeError):
        return state_of(record, source)
    return None


def _new_record(topic: Topic, found: Diagnosis, target: Target | None) -> tuple[ManagedCursorInfo, Position]:
    """Return the new record and its mark-delete position."""
    if target is None:
        if found.salvaged is not None:
            return found.salvaged, Position(
                found.salvaged.markDeleteLedgerId, found.salvaged.markDeleteEntryId
            )
        if not isinstance(found.state, PositionInfo):
            raise UsageError(f"{found.wrong}, and no entry has its position: add {WHICH}")
        return record_with(found.record, found.state), Position(found.state.ledgerId, found.state.entryId)
    position, new = _position(topic, target), ManagedCursorInfo()
    new.CopyFrom(found.record)
    new.cursorsLedgerId = STATE_IN_RECORD
    new.markDeleteLedgerId, new.markDeleteEntryId = position
    for field in ("individualDeletedMessages", "batchedEntryDeletionIndexInfo"):
        new.ClearField(field)
    if isinstance(found.state, PositionInfo):
        new.ClearField("properties")
        new.properties.extend(found.state.properties)
    return new, position


def _position(topic: Topic, target: Target) -> Position:
    """Convert a target to a mark-delete position. Raises UsageError if it is outside the topic."""
    ledgers = {ledger.ledger_id: ledger for ledger in topic.ledgers}
    if not ledgers:
        raise UsageError(f"{topic.name} has no ledger for a cursor to be in")
    first, last = topic.ledgers[0], topic.ledgers[-1]
    if target == "earliest":
        return Position(first.ledger_id, -1)
    if target == "latest":
        if last.entries is None:
            raise UsageError(
                f"--latest: ledger {last.ledger_id} is open, so its end is only on the bookies: add --entries"
            )
        return Position(last.ledger_id, last.entries - 1)
    assert isinstance(target, Position)
    if target.ledger_id not in ledgers:
        known = f"{first.ledger_id} to {last.ledger_id}"
        raise UsageError(
            f"--position: the topic does not list ledger {target.ledger_id}; its ledgers are {known}"
        )
    entries = ledgers[target.ledger_id].entries
    if entries is not None and target.entry_id >= entries:
        raise UsageError(f"--position: ledger {target.ledger_id} ends with entry {entries - 1}")
    return target


def _consequences(
    topic: Topic, found: Diagnosis, new: ManagedCursorInfo, position: Position, cursor: str, asked: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the effects of a new record, and its losses."""
    acks = acks_of(new)
    left = backlog(topic.ledgers, position, acks)
    more = "" if left.open_ledger is None else " or more"
    at = position.text
    if not asked and new.cursorsLedgerId != STATE_IN_RECORD:
        kept = f"its state is in ledger {new.cursorsLedgerId}, as before; the position in the record is {at}"
        return (kept,), ()
    whence = "" if asked else f", {_whence(found)}"
    said = [f"its new position is {at}{whence}; {left.entries} entries{more} are left after it"]
    if found.rewinds is not None:
        back = backlog(topic.ledgers, found.rewinds, Acks()).entries
        at = found.rewinds.text
        said.append(
            f"without this repair, the broker would go back to {at}, where {back} entries{more} are left"
        )
    if len(new.batchedEntryDeletionIndexInfo):
        count = len(new.batchedEntryDeletionIndexInfo)
        said.append(
            f"{count} partly acknowledged batches will be redelivered completely, because no release reads"
            " them from a record"
        )
    if not asked:
        return tuple(said), ()
    return _compared(topic, found, new, cursor, left.entries, said)


def _whence(found: Diagnosis) -> str:
    """Say where the position of a new record comes from."""
    if found.salvaged is not None:
        count = acks_of(found.salvaged).range_count
        return f"from its damaged record, with {count} acknowledged range{'' if count == 1 else 's'}"
    return f"from entry {found.entry_id} of its ledger {found.ledger_id}"


def _compared(
    topic: Topic, found: Diagnosis, new: ManagedCursorInfo, cursor: str, left: int, said: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare a new record with the known state: which entries it skips, which acknowledgements it loses."""
    before, state = found.mark_delete, found.state
    if before is None or state is None:
        every = backlog(topic.ledgers, Position(-1, -1), Acks()).entries - left
        unknown = f"the {every} entries before it will count as acknowledged, and it is unknown if they were"
        return tuple(said), ((unknown,) if every else ())
    said.append(f"its position was {before.text}")
    return tuple(said), tuple(move_texts(topic.ledgers, topic.name, cursor, state, new))
