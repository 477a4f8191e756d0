"""The `meaning` of managed ledgers and cursors: a summary of their records for people and scripts.

If only a part of a message could be read (`whole` is False), the meaning leaves out everything that the
missing part could change, such as counts of zero and the open ledger.
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
    """The offload of a ledger: its driver, its objects' UUID, and whether it is complete."""

    complete: bool
    bookkeeper_deleted: bool
    uuid: NotRequired[str]
    driver: NotRequired[str]
    time: NotRequired[str | None]


class SpecialLedger(TypedDict):
    """A ledger that has properties or was offloaded."""

    ledger_id: int
    properties: NotRequired[Texts]
    offload: NotRequired[OffloadMeaning]


class Ends(TypedDict, total=False):
    """The first and the last ledger, and the first and the last time at which a ledger was closed."""

    first_ledger: int
    last_ledger: int
    open_ledger: int | None
    first_closed: str | None
    last_closed: str | None


class Irregularities(TypedDict, total=False):
    """Irregularities that make the order of ledgers and the sums unreliable."""

    unordered: bool
    duplicate_ledgers: list[int]
    ledgers_without_entries: list[int]


class ManagedLedgerMeaning(Ends, Irregularities):
    """Summary of a topic's record; `ledgers` lists only ledgers with properties or an offload."""

    ledger_count: NotRequired[int]
    entries: NotRequired[int]
    size: NotRequired[int]
    terminated_at: NotRequired[str]
    ledgers: NotRequired[list[SpecialLedger]]
    properties: NotRequired[Texts]


class AckedEntries(TypedDict):
    """Acknowledged entries of a ledger as runs (first, last), both inclusive."""

    ledger_id: int
    entries: list[tuple[int, int]]


class AckedAcross(TypedDict):
    """A range that is acknowledged after one position through another one in a later ledger."""

    after: str
    through: str


class PartlyAcked(TypedDict):
    """A partly acknowledged batch: runs of batch indexes (first, last), both inclusive."""

    position: str
    acked: list[tuple[int, int]]
    unacked: list[tuple[int, int]]


class AcksMeaning(TypedDict, total=False):
    """Acknowledgements after the mark-delete position."""

    acked_entries: int
    acked_ranges: int
    acked: list[AckedEntries]
    acked_across_ledgers: list[AckedAcross]
    batches: list[PartlyAcked]
    properties: Numbers


class PositionMeaning(AcksMeaning):
    """Summary of an entry in a cursor's ledger."""

    mark_delete: NotRequired[str]
    note: NotRequired[str]


class CursorMeaning(PositionMeaning):
    """Summary of a cursor's record; `snapshot_only` if the cursor's ledger has its current state."""

    state: NotRequired[Literal["record", "cursor-ledger"]]
    cursor_ledger: NotRequired[int]
    snapshot_only: NotRequired[bool]
    last_active: NotRequired[str | None]
    cursor_properties: NotRequired[Texts]


def managed_ledger_meaning(info: ManagedLedgerInfo, *, whole: bool = True) -> ManagedLedgerMeaning:
    """Summarize a managed ledger: counts, ends, the open ledger, irregularities and special ledgers."""
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
            # These could change with the missing ledgers.
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
    irregularities: Irregularities = {}
    ordered = sorted(stored)
    if stored != ordered:
        irregularities["unordered"] = True
    if len(set(stored)) < len(stored):
        irregularities["duplicate_ledgers"] = sorted({a for a, b in pairwise(ordered) if a == b})
    uncounted = [
        ledger.ledgerId for ledger in ledgers[:-1] if not ledger.entries and not ledger.HasField("entries")
    ]
    if uncounted:
        irregularities["ledgers_without_entries"] = uncounted
    return irregularities


def _is_special(ledger: LedgerInfo) -> bool:
    return ledger.HasField("offloadContext") or len(ledger.properties) > 0


def _special(ledger: LedgerInfo) -> SpecialLedger:
    special: SpecialLedger = {"ledger_id": ledger.ledgerId}
    if len(ledger.properties):
        special["properties"] = {readable(item.key): readable(item.value) for item in ledger.properties}
    if ledger.HasField("offloadContext"):
        special["offload"] = offload_meaning(ledger.offloadContext)
    return special


def offload_meaning(context: OffloadContext) -> OffloadMeaning:
    """Summarize the offload of a ledger. The UUID is part of the names of its objects."""
    meaning: OffloadMeaning = {
        "complete": context.complete,
        "bookkeeper_deleted": context.bookkeeperDeleted,
    }
    if context.HasField("uidMsb") and context.HasField("uidLsb"):
        meaning["uuid"] = str(UUID(int=(context.uidMsb % 2**64) << 64 | context.uidLsb % 2**64))
    if context.HasField("driverMetadata"):
        meaning["driver"] = readable(context.driverMetadata.name)
    if context.timestamp > 0:
        meaning["time"] = iso_time(context.timestamp)
    return meaning


def cursor_meaning(
    record: ManagedCursorInfo, *, whole: bool = True, acks: Acks | None = None
) -> CursorMeaning:
    """Summarize a cursor's record; `acks` are its acknowledgements, if the caller has decoded them.

    If the cursor's ledger has the state, a record without acknowledgements does not mean that there are none.
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
    """Summarize an entry of a cursor ledger. The last entry of the ledger is the cursor's state."""
    meaning: PositionMeaning = {}
    if position.HasField("ledgerId") and position.HasField("entryId"):
        meaning["mark_delete"] = f"{position.ledgerId}:{position.entryId}"
    meaning |= _acks(position, acks_of(position), certain=whole)
    if len(position.individualDeletedMessages) and len(position.individualDeletedMessageRanges):
        meaning["note"] = IGNORED_BIT_MAPS
    return meaning


def _acks(state: ManagedCursorInfo | PositionInfo, acks: Acks, *, certain: bool) -> AcksMeaning:
    """Summarize acknowledgements. Without any, report zero only if that is `certain`."""
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
