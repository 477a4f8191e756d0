"""What a broker makes of a cursor when it loads the topic: whence it takes the state, where it goes on.

Source: apache/pulsar ManagedCursorImpl (recover, recoverFromLedger, getRollbackPosition, recoveredCursor,
isBkErrorNotRecoverable).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import Acks, acks_of
from pulsar_meta.codecs.metadata.cursor import STATE_IN_RECORD
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.topic import Ledger, Position, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo
from pulsar_meta.stores.base import Store

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
