"""What managed ledgers and cursors say, for people and scripts: the `meaning` of a decoded document.

Of a message of which only a part could be read (`whole` is false) nothing is said that its missing rest
could change: no count of nothing, no open ledger, no default in the place of a field that is not there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NotRequired, TypedDict
from uuid import UUID

from pulsar_meta.codecs.metadata.acks import Acks, acked_indexes, acks_of, unacked_indexes
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, ledgers_by_id
from pulsar_meta.codecs.protobuf.to_json import readable
from pulsar_meta.codecs.secrets import Numbers, Texts
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.proto.MLDataFormats_pb2 import (
    BatchedEntryDeletionIndexInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    OffloadContext,
    PositionInfo,
)

LedgerInfo = ManagedLedgerInfo.LedgerInfo
SNAPSHOT_ONLY = (
    "the position in this record is only a snapshot: the state is the last entry of the cursor's ledger"
)
IGNORED_BIT_MAPS = "brokers read individualDeletedMessages and ignore individualDeletedMessageRanges"


class OffloadMeaning(TypedDict):
    """Where and how far a ledger was offloaded."""

    complete: bool
    bookkeeper_deleted: bool
    uuid: NotRequired[str]
    driver: NotRequired[str]
    time: NotRequired[str | None]


class SpecialLedger(TypedDict):
    """A ledger with properties, or that was offloaded."""

    ledger_id: int
    properties: NotRequired[Texts]
    offload: NotRequired[OffloadMeaning]


class Ends(TypedDict, total=False):
    """The first and the last ledger, and when ledgers were closed."""

    first_ledger: int
    last_ledger: int
    open_ledger: int | None
    first_closed: str | None
    last_closed: str | None


class Irregularities(TypedDict, total=False):
    """What a reader must know before trusting order and sums."""

    unordered: bool
    duplicate_ledgers: list[int]
    ledgers_without_entries: list[int]


class ManagedLedgerMeaning(Ends, Irregularities):
    """What a topic's record says; `ledgers` are those with properties or an offload."""

    ledger_count: NotRequired[int]
    entries: NotRequired[int]
    size: NotRequired[int]
    terminated_at: NotRequired[str]
    ledgers: NotRequired[list[SpecialLedger]]
    properties: NotRequired[Texts]


class AckedEntries(TypedDict):
    """Entries of a ledger that are acknowledged: runs, both ends included."""

    ledger_id: int
    entries: list[tuple[int, int]]


class AckedAcross(TypedDict):
    """What is acknowledged from behind a position through another one in a later ledger."""

    after: str
    through: str


class PartlyAcked(TypedDict):
    """A batch of which some messages are acknowledged: runs of batch indexes, both ends included."""

    position: str
    acked: list[tuple[int, int]]
    unacked: list[tuple[int, int]]


class AcksMeaning(TypedDict, total=False):
    """What is acknowledged behind the mark-delete position."""

    acked_entries: int
    acked_ranges: int
    acked: list[AckedEntries]
    acked_across_ledgers: list[AckedAcross]
    batches: list[PartlyAcked]
    properties: Numbers


class PositionMeaning(AcksMeaning):
    """What an entry of a cursor's ledger says."""

    mark_delete: NotRequired[str]
    note: NotRequired[str]


class CursorMeaning(PositionMeaning):
    """What a cursor's record says, and whether that is the truth or only a snapshot."""

    state: NotRequired[Literal["record", "cursor-ledger"]]
    cursor_ledger: NotRequired[int]
    snapshot_only: NotRequired[bool]
    last_active: NotRequired[str | None]
    cursor_properties: NotRequired[Texts]


def managed_ledger_meaning(info: ManagedLedgerInfo, *, whole: bool = True) -> ManagedLedgerMeaning:
    """Return the summary of a managed ledger: counts, ends, the open ledger, what is special about which."""
    ledgers = ledgers_by_id(info)
    meaning: ManagedLedgerMeaning = {}
    if ledgers or whole:
        meaning["ledger_count"] = len(ledgers)
        meaning["entries"] = sum(ledger.entries for ledger in ledgers)
        meaning["size"] = sum(ledger.size for ledger in ledgers)
    if info.HasField("terminatedPosition"):
        end = info.terminatedPosition
        meaning["terminated_at"] = f"{end.ledgerId}:{end.entryId}"
    if ledgers:
        meaning |= _ends(ledgers)
        meaning |= _irregularities([ledger.ledgerId for ledger in info.ledgerInfo], ledgers)
        if not whole:
            # What the ledgers that could not be read would change.
            meaning.pop("open_ledger", None)
            meaning.pop("ledgers_without_entries", None)
        special = [_special(ledger) for ledger in ledgers if _is_special(ledger)]
        if special:
            meaning["ledgers"] = special
    if len(info.properties):
        meaning["properties"] = {readable(item.key): readable(item.value) for item in info.properties}
    return meaning


def _ends(ledgers: list[LedgerInfo]) -> Ends:
    closed = [ledger.timestamp for ledger in ledgers if ledger.timestamp > 0]
    ends: Ends = {
        "first_ledger": ledgers[0].ledgerId,
        "last_ledger": ledgers[-1].ledgerId,
        "open_ledger": None if ledgers[-1].HasField("entries") else ledgers[-1].ledgerId,
    }
    if closed:
        ends["first_closed"] = iso_time(min(closed))
        ends["last_closed"] = iso_time(max(closed))
    return ends


def _irregularities(stored: list[int], ledgers: list[LedgerInfo]) -> Irregularities:
    """Return what a reader must know before trusting order and sums."""
    found: Irregularities = {}
    ordered = sorted(stored)
    if stored != ordered:
        found["unordered"] = True
    if len(set(stored)) < len(stored):
        found["duplicate_ledgers"] = sorted({one for one, other in pairwise(ordered) if one == other})
    uncounted = [
        ledger.ledgerId for ledger in ledgers[:-1] if not ledger.entries and not ledger.HasField("entries")
    ]
    if uncounted:
        found["ledgers_without_entries"] = uncounted
    return found


def _is_special(ledger: LedgerInfo) -> bool:
    return ledger.HasField("offloadContext") or len(ledger.properties) > 0


def _special(ledger: LedgerInfo) -> SpecialLedger:
    shown: SpecialLedger = {"ledger_id": ledger.ledgerId}
    if len(ledger.properties):
        shown["properties"] = {readable(item.key): readable(item.value) for item in ledger.properties}
    if ledger.HasField("offloadContext"):
        shown["offload"] = offload_meaning(ledger.offloadContext)
    return shown


def offload_meaning(context: OffloadContext) -> OffloadMeaning:
    """Return where and how far a ledger was offloaded; the UUID is part of the objects' names."""
    shown: OffloadMeaning = {
        "complete": context.complete,
        "bookkeeper_deleted": context.bookkeeperDeleted,
    }
    if context.HasField("uidMsb") and context.HasField("uidLsb"):
        shown["uuid"] = str(UUID(int=(context.uidMsb % 2**64) << 64 | context.uidLsb % 2**64))
    if context.HasField("driverMetadata"):
        shown["driver"] = readable(context.driverMetadata.name)
    if context.timestamp > 0:
        shown["time"] = iso_time(context.timestamp)
    return shown


def cursor_meaning(
    record: ManagedCursorInfo, *, whole: bool = True, acks: Acks | None = None
) -> CursorMeaning:
    """Return what a cursor's record says, and whether that is the truth or only a snapshot.

    Where the state lies in the cursor's ledger, a record without acknowledgements says nothing of them.
    `acks`: what is acknowledged, where that was read already.
    """
    meaning: CursorMeaning = {}
    in_record = record.cursorsLedgerId == STATE_IN_RECORD
    if record.HasField("cursorsLedgerId"):
        meaning["state"] = "record" if in_record else "cursor-ledger"
        if not in_record:
            meaning |= {"cursor_ledger": record.cursorsLedgerId, "snapshot_only": True, "note": SNAPSHOT_ONLY}
    if record.HasField("markDeleteLedgerId") and record.HasField("markDeleteEntryId"):
        meaning["mark_delete"] = f"{record.markDeleteLedgerId}:{record.markDeleteEntryId}"
    meaning |= _acks(record, acks_of(record) if acks is None else acks, certain=whole and in_record)
    if record.HasField("lastActive"):
        meaning["last_active"] = iso_time(record.lastActive)
    if len(record.cursorProperties):
        meaning["cursor_properties"] = {
            readable(item.name): readable(item.value) for item in record.cursorProperties
        }
    return meaning


def position_meaning(position: PositionInfo, *, whole: bool = True) -> PositionMeaning:
    """Return what an entry of a cursor ledger says; the last entry of the ledger is the cursor's state."""
    meaning: PositionMeaning = {}
    if position.HasField("ledgerId") and position.HasField("entryId"):
        meaning["mark_delete"] = f"{position.ledgerId}:{position.entryId}"
    meaning |= _acks(position, acks_of(position), certain=whole)
    if len(position.individualDeletedMessages) and len(position.individualDeletedMessageRanges):
        meaning["note"] = IGNORED_BIT_MAPS
    return meaning


def _acks(state: ManagedCursorInfo | PositionInfo, acks: Acks, *, certain: bool) -> AcksMeaning:
    """Return what is acknowledged; that nothing is, only where that is `certain`."""
    meaning: AcksMeaning = {}
    if acks.range_count or certain:
        meaning |= {"acked_entries": acks.entry_count, "acked_ranges": acks.range_count}
    if acks.entries:
        meaning["acked"] = [
            {"ledger_id": ledger, "entries": ranges} for ledger, ranges in acks.entries.items()
        ]
    if acks.spanning:
        meaning["acked_across_ledgers"] = [
            {"after": _position(after), "through": _position(through)} for after, through in acks.spanning
        ]
    if len(state.batchedEntryDeletionIndexInfo):
        meaning["batches"] = [_batch(batch) for batch in state.batchedEntryDeletionIndexInfo]
    if len(state.properties):
        meaning["properties"] = {readable(item.name): item.value for item in state.properties}
    return meaning


def _position(position: tuple[int, int]) -> str:
    return f"{position[0]}:{position[1]}"


def _batch(batch: BatchedEntryDeletionIndexInfo) -> PartlyAcked:
    unacked = unacked_indexes(batch)
    return {
        "position": f"{batch.position.ledgerId}:{batch.position.entryId}",
        "acked": acked_indexes(unacked),
        "unacked": unacked,
    }
