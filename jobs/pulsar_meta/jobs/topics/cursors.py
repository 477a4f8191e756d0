"""The cursors of a topic: their records, their true state, and what a broker makes of them when it loads the
topic.

While a cursor is in use its broker writes the state into the cursor's ledger, whose last entry counts. The
record in
the store is written when the cursor is closed, and is older until then.

Source: apache/pulsar MLDataFormats.proto, ManagedCursorImpl (recover, recoverFromLedger,
persistPositionToLedger,
getRollbackPosition, recoveredCursor, isBkErrorNotRecoverable).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, decoding
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.metadata.acks import Acks, acks_of
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    decode_cursor,
    decode_position_info,
    open_envelope,
)
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource, RawEntry, entry_of, read_each
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Position, Properties, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import Store, Versioned


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a cursor's record says. `state_ledger` holds the true state, None where the record itself does.

    Sizes are in bytes, `last_active` in milliseconds; `codec` is that of the envelope, None without one.
    """

    topic: str | None
    name: str | None
    path: str
    state_ledger: int | None
    mark_delete_ledger: int | None
    mark_delete_entry: int | None
    acknowledged_ranges: int
    properties: Properties
    last_active: int
    codec: str | None
    stored_size: int
    raw_size: int
    version: int


@dataclass(frozen=True, slots=True)
class CursorState:
    """The state of a cursor, and where it was found.

    `state` is None where it lies in `ledger_id` and no source has an entry of that; `record` is then what
    is known, which is as old as the ledger. `fault` is why a newer entry than `entry_id` does not count: that
    entry is what a broker reads.
    """

    record: ManagedCursorInfo
    state: ManagedCursorInfo | PositionInfo | None
    ledger_id: int | None = None
    entry_id: int | None = None
    fault: PulsarMetaError | None = None

    @property
    def mark_delete(self) -> Position:
        """The last position that is acknowledged with all before it, as far as it is known."""
        if isinstance(self.state, PositionInfo):
            return Position(self.state.ledgerId, self.state.entryId)
        return Position(self.record.markDeleteLedgerId, self.record.markDeleteEntryId)


def cursor_of(record: Versioned) -> Cursor:
    """Return what a cursor's record says; DecodeError where it is broken."""
    with decoding(record.path):
        info = decode_cursor(record.value)
        envelope = open_envelope(record.value)
    place = managed_place(record.path, record.value)
    in_record = info.cursorsLedgerId == STATE_IN_RECORD
    return Cursor(
        topic=str(place[0]) if place else None,
        name=place[1] if place else None,
        path=record.path,
        state_ledger=None if in_record else info.cursorsLedgerId,
        mark_delete_ledger=info.markDeleteLedgerId if info.HasField("markDeleteLedgerId") else None,
        mark_delete_entry=info.markDeleteEntryId if info.HasField("markDeleteEntryId") else None,
        acknowledged_ranges=acks_of(info).range_count,
        properties=tuple((item.name, item.value) for item in info.cursorProperties),
        last_active=info.lastActive,
        codec=None if envelope is None else envelope.codec,
        stored_size=len(record.value),
        raw_size=len(record.value) if envelope is None else envelope.raw_size,
        version=record.version,
    )


def cursor_state(store: Store, source: EntrySource | None, topic: TopicName, cursor: str) -> CursorState:
    """Return the true state of a cursor: that in its ledger, where it has one that `source` holds.

    NotFoundError where the topic has no such cursor, DecodeError where its record is broken,
    UnreachableError from store or source. Without a source only the record is read.
    """
    return state_of(read_cursor(store, topic, cursor), source)


def read_cursor(store: Store, topic: TopicName, cursor: str) -> ManagedCursorInfo:
    """Return a cursor's record; NotFoundError for no such cursor, DecodeError, UnreachableError."""
    path = topic.cursor_path(cursor)
    try:
        return decode_cursor(store.read(path).value)
    except NotFoundError as error:
        raise NotFoundError(f"no cursor {cursor!r}", source=str(topic)) from error
    except DecodeError as error:
        raise error.within(path) from error


def state_of(record: ManagedCursorInfo, source: EntrySource | None) -> CursorState:
    """Return the true state of the cursor that has this record; UnreachableError from the source."""
    if record.cursorsLedgerId == STATE_IN_RECORD:
        return CursorState(record, record)
    ledger_id = record.cursorsLedgerId
    if source is None:
        return CursorState(record, None, ledger_id)
    return _last_state(record, source, ledger_id)


def states_of(source: EntrySource, ledger_id: int) -> Iterator[tuple[int, PositionInfo | DecodeError]]:
    """Yield what each entry of a cursor's ledger says, the oldest first, or why it says nothing."""
    for entry_id, outcome in read_each(source, ledger_id):
        try:
            yield entry_id, _position_info(entry_of(outcome))
        except DecodeError as error:
            yield entry_id, error
        except NotFoundError as error:
            yield entry_id, DecodeError(error.message, source=error.source)


def _last_state(record: ManagedCursorInfo, source: EntrySource, ledger_id: int) -> CursorState:
    """Return the newest entry of a cursor's ledger that can be read, and why none newer can."""
    last = source.last_entry(ledger_id)
    fault: PulsarMetaError | None = None
    for entry_id in range(-1 if last is None else last, -1, -1):
        try:
            state = _read_state(source, ledger_id, entry_id)
        except (DecodeError, NotFoundError) as error:
            fault = fault or error.within(what=f"entry {ledger_id}:{entry_id} of its ledger")
        else:
            return CursorState(record, state, ledger_id, entry_id, fault)
    return CursorState(record, None, ledger_id, fault=fault)


def _read_state(source: EntrySource, ledger_id: int, entry_id: int) -> PositionInfo:
    """Return what an entry says by any of its copies; why the first one does not where none does."""
    try:
        return _position_info(source.read(ledger_id, entry_id))
    except DecodeError:
        for copy in source.copies(ledger_id, entry_id):
            with suppress(DecodeError):
                return _position_info(copy)
        raise


def _position_info(raw: RawEntry) -> PositionInfo:
    if not raw.bookie:
        return decode_position_info(raw.data)
    entry = decode_bookie_entry(raw.data)
    if entry.digest == "bad":
        raise DecodeError("its digest is wrong")
    return decode_position_info(entry.data)


# The record, the last entry of the cursor's ledger, back to where that ledger was made, not at all.
Believed = Literal["record", "ledger", "rewind", "fails", "unknown"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """From where a broker takes a cursor's state, and why; `mark_delete` is where it then stands.

    `mark_delete` and `acks` are None where the state cannot be seen from here, or cannot be read at all.
    `batches` counts the partly acknowledged batches that the broker keeps.
    """

    believed: Believed
    why: str
    mark_delete: Position | None = None
    acks: Acks | None = None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Recovered:
    """A cursor as it was found: its state, its ledger as BookKeeper knows it, what a broker makes of both.

    `ledger` is None where the state is in the record.
    """

    state: CursorState
    ledger: Ledger | None
    recovery: Recovery


def recovered(
    record: ManagedCursorInfo,
    store: Store | None,
    source: EntrySource | None,
    ledgers: Sequence[Ledger] = (),
) -> Recovered:
    """Return what becomes of a cursor with this record.

    `ledgers` are its topic's in reading order. `store` is None where it has no metadata of BookKeeper,
    `source` where no entries were given. UnreachableError from either.
    """
    if record.cursorsLedgerId == STATE_IN_RECORD:
        found = CursorState(record, record)
        why = "the record names no ledger: its own state counts"
        return Recovered(found, None, _going_on(ledgers, record, "record", why))
    # Broken metadata of a cursor's ledger is reported by what a broker makes of it.
    (ledger,) = with_bookkeeper(store, [Ledger(record.cursorsLedgerId)], lambda error: None)
    if ledger.metadata in ("absent", "broken"):
        source = None
    if source is not None:
        ledger = with_end(ledger, source)
    found = state_of(record, source)
    return Recovered(found, ledger, _recovery(ledgers, found, ledger))


def _recovery(ledgers: Sequence[Ledger], found: CursorState, cursor_ledger: Ledger) -> Recovery:
    """Return what becomes of a cursor that has a ledger of its own."""
    number, entries = cursor_ledger.ledger_id, cursor_ledger.entries
    named = f"the record names ledger {number}"
    if cursor_ledger.metadata == "absent":
        return _rewound(ledgers, found.record, f"{named}, which BookKeeper does not know")
    if cursor_ledger.metadata == "broken":
        return Recovery("fails", f"{named}, of which BookKeeper's metadata cannot be decoded")
    if entries == 0:
        return _rewound(ledgers, found.record, f"{named}, which has no entry")
    if found.fault is not None:
        broken = isinstance(found.fault, DecodeError)
        return Recovery("fails" if broken else "unknown", str(found.fault))
    if not isinstance(found.state, PositionInfo) or found.entry_id is None:
        return Recovery("unknown", f"ledger {number} not given")
    if entries is None or found.entry_id < entries - 1:
        last = "the last entry" if entries is None else f"the last entry, {entries - 1},"
        later = f"entries after {found.entry_id} may be on bookies whose disks were not given"
        return Recovery("unknown", f"of ledger {number} {last} counts, and {later}")
    why = f"{named}: the last entry of that counts, and the record beside it is as old as that ledger"
    return _going_on(ledgers, found.state, "ledger", why)


def _going_on(
    ledgers: Sequence[Ledger], state: ManagedCursorInfo | PositionInfo, believed: Believed, why: str
) -> Recovery:
    if isinstance(state, PositionInfo):
        position = Position(state.ledgerId, state.entryId)
        batches = len(state.batchedEntryDeletionIndexInfo)
    else:
        # Batches are written into records, and read from none.
        position, batches = Position(state.markDeleteLedgerId, state.markDeleteEntryId), 0
    return Recovery(believed, why, _existing(ledgers, position), acks_of(state), batches)


def _rewound(ledgers: Sequence[Ledger], record: ManagedCursorInfo, why: str) -> Recovery:
    snapshot = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
    first = Position(ledgers[0].ledger_id, -1) if ledgers else snapshot
    back = "back to the record's position" if snapshot >= first else "back to the first entry that is left"
    position = rewound_to(ledgers, record)
    return Recovery("rewind", f"{why}: {back}, single acknowledgements are lost", position, Acks())


def rewound_to(ledgers: Sequence[Ledger], record: ManagedCursorInfo) -> Position:
    """Return where a cursor stands after its ledger is lost: at its record's position, or at the start."""
    snapshot = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
    first = Position(ledgers[0].ledger_id, -1) if ledgers else snapshot
    return _existing(ledgers, max(snapshot, first))


def _existing(ledgers: Sequence[Ledger], position: Position) -> Position:
    """Return where a position is moved to that lies before an entry of no ledger, or beyond the end."""
    if position.entry_id == -1 and all(ledger.ledger_id != position.ledger_id for ledger in ledgers):
        later = (ledger.ledger_id for ledger in ledgers if ledger.ledger_id > position.ledger_id)
        position = Position(next(later, position.ledger_id), -1)
    end = _end(ledgers)
    return position if end is None else min(position, end)


def _end(ledgers: Sequence[Ledger]) -> Position | None:
    """Return the last position of a topic, None where its last ledger's end is not known."""
    if not ledgers or ledgers[-1].entries is None:
        return None
    return Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
