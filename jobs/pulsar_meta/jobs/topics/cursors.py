"""Read the cursors of a topic: their records, their current state, and how a broker recovers them.

While a cursor is in use, its broker appends the state to the cursor's ledger, so the last entry counts. The
record in the store is only written when the cursor is closed, and is outdated until then.

Source: apache/pulsar MLDataFormats.proto, ManagedCursorImpl (recover, recoverFromLedger,
persistPositionToLedger, getRollbackPosition, recoveredCursor, isBkErrorNotRecoverable).
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
    managed_place,
    open_envelope,
)
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource, RawEntry, entry_of, read_each
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Position, Properties, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import Store, Versioned


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor's record. `state_ledger` contains the current state; None if the record itself contains it.

    Sizes are in bytes, `last_active` is in milliseconds. `codec` is that of the envelope, None without one.
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
    """The state of a cursor, and its location.

    `state` is None if it is in `ledger_id` and no source has an entry of that ledger. Then only `record` is
    known, which is as old as the ledger. `fault` is the reason why an entry newer than `entry_id`, which a
    broker would read, is not used.
    """

    record: ManagedCursorInfo
    state: ManagedCursorInfo | PositionInfo | None
    ledger_id: int | None = None
    entry_id: int | None = None
    fault: PulsarMetaError | None = None

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position, as far as it is known."""
        if isinstance(self.state, PositionInfo):
            return Position(self.state.ledgerId, self.state.entryId)
        return Position(self.record.markDeleteLedgerId, self.record.markDeleteEntryId)


def cursor_of(record: Versioned) -> Cursor:
    """Decode a cursor's record. Raises DecodeError."""
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
    """Read the current state of a cursor, from its ledger if it has one that `source` contains.

    Without a source, only the record is read. Raises NotFoundError if there is no such cursor, DecodeError if
    its record is corrupt, and UnreachableError.
    """
    return state_of(read_cursor(store, topic, cursor), source)


def read_cursor(store: Store, topic: TopicName, cursor: str) -> ManagedCursorInfo:
    """Read a cursor's record. Raises NotFoundError, DecodeError, UnreachableError."""
    path = topic.cursor_path(cursor)
    try:
        return decode_cursor(store.read(path).value)
    except NotFoundError as error:
        raise NotFoundError(f"no cursor {cursor!r}", source=str(topic)) from error
    except DecodeError as error:
        raise error.within(path) from error


def state_of(record: ManagedCursorInfo, source: EntrySource | None) -> CursorState:
    """Read the current state of the cursor with this record. Raises UnreachableError."""
    if record.cursorsLedgerId == STATE_IN_RECORD:
        return CursorState(record, record)
    ledger_id = record.cursorsLedgerId
    if source is None:
        return CursorState(record, None, ledger_id)
    return _last_state(record, source, ledger_id)


def states_of(source: EntrySource, ledger_id: int) -> Iterator[tuple[int, PositionInfo | DecodeError]]:
    """Yield the states in a cursor's ledger, oldest first, or the error for each unreadable entry."""
    for entry_id, outcome in read_each(source, ledger_id):
        try:
            yield entry_id, _position_info(entry_of(outcome))
        except DecodeError as error:
            yield entry_id, error
        except NotFoundError as error:
            yield entry_id, DecodeError(error.message, source=error.source)


def _last_state(record: ManagedCursorInfo, source: EntrySource, ledger_id: int) -> CursorState:
    """Find the newest readable entry of a cursor's ledger, and the error of the newest entry, if any."""
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
    """Decode an entry from any of its copies. Raises the error of the first copy if none can be decoded."""
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


# From the record; from the last entry of the cursor's ledger; back to the record's position; not at all.
Believed = Literal["record", "ledger", "rewind", "fails", "unknown"]


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a broker recovers a cursor's state, and why. `mark_delete` is its position afterwards.

    `mark_delete` and `acks` are None if the state is not available or can't be read. `batches` counts the
    partly acknowledged batches that the broker keeps.
    """

    believed: Believed
    why: str
    mark_delete: Position | None = None
    acks: Acks | None = None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Recovered:
    """The state of a cursor, BookKeeper's metadata of its ledger, and how a broker recovers it.

    `ledger` is None if the state is in the record.
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
    """Find out how a broker recovers the cursor with this record.

    `ledgers` are its topic's, in reading order. `store` is None if it has no BookKeeper metadata, `source` if
    no entries were given. Raises UnreachableError.
    """
    if record.cursorsLedgerId == STATE_IN_RECORD:
        why = "the record contains the state, because it refers to no ledger"
        return Recovered(CursorState(record, record), None, _resumed(ledgers, record, "record", why))
    # Corrupt metadata of the cursor's ledger is reported as part of the recovery.
    (ledger,) = with_bookkeeper(store, [Ledger(record.cursorsLedgerId)], lambda error: None)
    if ledger.metadata in ("absent", "broken"):
        source = None
    if source is not None:
        ledger = with_end(ledger, source)
    state = state_of(record, source)
    return Recovered(state, ledger, _recovery(ledgers, state, ledger))


def _recovery(ledgers: Sequence[Ledger], cursor: CursorState, cursor_ledger: Ledger) -> Recovery:
    """Find out how a broker recovers a cursor that has a ledger."""
    number, entries = cursor_ledger.ledger_id, cursor_ledger.entries
    refers = f"the record refers to ledger {number}"
    if cursor_ledger.metadata == "absent":
        return _rewound(ledgers, cursor.record, f"{refers}, for which BookKeeper has no metadata")
    if cursor_ledger.metadata == "broken":
        return Recovery("fails", f"{refers}, whose BookKeeper metadata can't be decoded")
    if entries == 0:
        return _rewound(ledgers, cursor.record, f"{refers}, which has no entry")
    if cursor.fault is not None:
        broken = isinstance(cursor.fault, DecodeError)
        return Recovery("fails" if broken else "unknown", str(cursor.fault))
    if not isinstance(cursor.state, PositionInfo) or cursor.entry_id is None:
        return Recovery("unknown", f"ledger {number} not given")
    if entries is None or cursor.entry_id < entries - 1:
        last = "the last entry" if entries is None else f"the last entry, {entries - 1},"
        later = f"entries after {cursor.entry_id} may be on bookies whose disks were not given"
        return Recovery("unknown", f"{last} of ledger {number} counts, but {later}")
    why = f"{refers}, whose last entry counts; the state in the record is as old as that ledger"
    return _resumed(ledgers, cursor.state, "ledger", why)


def _resumed(
    ledgers: Sequence[Ledger], state: ManagedCursorInfo | PositionInfo, believed: Believed, why: str
) -> Recovery:
    if isinstance(state, PositionInfo):
        position = Position(state.ledgerId, state.entryId)
        batches = len(state.batchedEntryDeletionIndexInfo)
    else:
        # Brokers write partly acknowledged batches to records, but don't read them from there.
        position, batches = Position(state.markDeleteLedgerId, state.markDeleteEntryId), 0
    return Recovery(believed, why, _existing(ledgers, position), acks_of(state), batches)


def _rewound(ledgers: Sequence[Ledger], record: ManagedCursorInfo, why: str) -> Recovery:
    snapshot = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
    first = Position(ledgers[0].ledger_id, -1) if ledgers else snapshot
    to = "the record's position" if snapshot >= first else "the first remaining entry"
    lost = f"so the cursor goes back to {to} and individual acknowledgments are lost"
    return Recovery("rewind", f"{why}, {lost}", rewound_to(ledgers, record), Acks())


def rewound_to(ledgers: Sequence[Ledger], record: ManagedCursorInfo) -> Position:
    """The position of a cursor whose ledger is lost: its record's position, or the start of the topic."""
    snapshot = Position(record.markDeleteLedgerId, record.markDeleteEntryId)
    first = Position(ledgers[0].ledger_id, -1) if ledgers else snapshot
    return _existing(ledgers, max(snapshot, first))


def _existing(ledgers: Sequence[Ledger], position: Position) -> Position:
    """Move a position that is at the start of a missing ledger, or beyond the end, as brokers do."""
    if position.entry_id == -1 and all(ledger.ledger_id != position.ledger_id for ledger in ledgers):
        later = (ledger.ledger_id for ledger in ledgers if ledger.ledger_id > position.ledger_id)
        position = Position(next(later, position.ledger_id), -1)
    end = _end(ledgers)
    return position if end is None else min(position, end)


def _end(ledgers: Sequence[Ledger]) -> Position | None:
    """The last position of a topic; None if the end of its last ledger is unknown."""
    if not ledgers or ledgers[-1].entries is None:
        return None
    return Position(ledgers[-1].ledger_id, ledgers[-1].entries - 1)
