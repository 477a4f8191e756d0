"""`repair missing-ledger`: remove a ledger whose entries are lost from its list, or skip single entries.

After a removal, subscriptions in the ledger continue with the next one, as they do when a broker trims.
States in cursor ledgers are not changed, because a broker continues from an unlisted position at the next
entry.

Single entries are acknowledged in each subscription that has not reached them, so that only they are lost.
Readers without a subscription still stop there.

Sources: apache/pulsar ManagedLedgerImpl (advanceCursorsIfNecessary, getNextValidPosition), ManagedCursorImpl
(recoverIndividualDeletedMessages).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.metadata.envelope import (
    STATE_IN_RECORD,
    decode_cursor,
    decode_managed_ledger,
    ledgers_by_id,
)
from pulsar_meta.codecs.names import TopicName, decode_name, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.conversion import record_with
from pulsar_meta.jobs.repair.repair import ANY, Repair, all_here, becoming, own_record, packed, undecided
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.cursors import state_of
from pulsar_meta.jobs.topics.topic import Ledger, Position, topic_of, with_bookkeeper
from pulsar_meta.proto.MLDataFormats_pb2 import (
    ManagedCursorInfo,
    ManagedLedgerInfo,
    MessageRange,
    PositionInfo,
)
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current

# First and last entry, both included.
Run = tuple[int, int]
STILL_THERE: Final = (
    "its metadata in /ledgers and its entries on bookies stay; check reports it until they are removed"
)


def drop_ledger(store: Store, name: TopicName, ledger_id: int, readers: Readers = ANY) -> Repair:
    """Remove a ledger from a topic's list.

    Raises NotFoundError if it is not listed, and UsageError for a shadow topic.
    """
    record = own_record(store, name)
    ledger = _ledger_in(store, record, name, ledger_id)
    info = decode_managed_ledger(record.value)
    place = _Place.of(info, ledger_id)
    kept = [one for one in info.ledgerInfo if one.ledgerId != ledger_id]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    if info.HasField("terminatedPosition") and info.terminatedPosition.ledgerId == ledger_id:
        # The topic is now terminated at its new end.
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = place.before
    moved, said = list[Decided](), list[str]()
    for cursor, seen in _cursors(store, name):
        decision, text = _moved(seen, place, readers)
        moved.append(decision)
        said += [f"subscription {cursor}: {text}"] if text else []
    if current(store, ledger_path(ledger_id)).version != ABSENT:
        said.append(f"ledger {ledger_id}: {STILL_THERE}")
    count = "an unknown number of" if ledger.entries is None else str(ledger.entries)
    losses = [
        f"{count} entries of ledger {ledger_id} become unreachable: no client can read them"
        f" through {name} any more"
    ]
    if not kept:
        losses.append(f"it is the only ledger of {name}: subscriptions will continue at the end of the topic")
    topic = becoming(record, packed(record, info.SerializeToString(), readers))
    return Repair(
        "missing-ledger",
        (topic, *moved),
        checked={"cursors": len(moved)},
        said=tuple(said),
        losses=tuple(losses),
        confirm=str(name),
    )


def skip_entries(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    ledger_id: int,
    runs: Sequence[Run] | None,
    readers: Readers = ANY,
) -> Repair:
    """Acknowledge single entries in each subscription: `runs`, or the entries that no disk has.

    Raises NotFoundError if the topic doesn't list the ledger, and UsageError if disks are missing.
    """
    record = own_record(store, name)
    ledger = _ledger_in(store, record, name, ledger_id)
    chosen = _checked(runs, ledger) if runs is not None else _absent(source, ledger)
    count = sum(last - first + 1 for first, last in chosen)
    changed, said = list[Decided](), list[str]()
    for cursor, seen in _cursors(store, name) if chosen else ():
        decision, text = _acknowledged(seen, source, ledger_id, chosen, readers)
        changed.append(decision)
        said += [f"subscription {cursor}: {text}"] if text else []
    shown = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in chosen)
    losses = [
        f"{count} entries of ledger {ledger_id} are skipped ({shown}): no subscription will receive them;"
        " readers without a subscription still stop there"
    ]
    return Repair(
        "missing-ledger",
        tuple(changed),
        checked={"cursors": len(changed), "entries": count},
        said=tuple(said) if chosen else (f"every entry of ledger {ledger_id} is on the disks",),
        losses=tuple(losses if chosen else ()),
        confirm=str(name),
    )


def _ledger_in(store: Store, record: Versioned, name: TopicName, ledger_id: int) -> Ledger:
    """Return a listed ledger with its BookKeeper metadata."""
    listed = {ledger.ledger_id: ledger for ledger in topic_of(record).ledgers}
    if ledger_id not in listed:
        raise NotFoundError(f"{name} does not list ledger {ledger_id}", source=store.url)
    # Damaged or missing metadata is expected here.
    (ledger,) = with_bookkeeper(store, [listed[ledger_id]], lambda error: None)
    return ledger


def _cursors(store: Store, name: TopicName) -> Iterator[tuple[str, Versioned]]:
    for child in store.children(name.path):
        seen = current(store, f"{name.path}/{child}")
        if seen.version != ABSENT:
            yield decode_name(child), seen


@dataclass(frozen=True, slots=True)
class _Place:
    """A ledger's place in the list: the last position before it, and the position before the next ledger."""

    ledger_id: int
    before: Position
    after: Position

    @classmethod
    def of(cls, info: ManagedLedgerInfo, ledger_id: int) -> _Place:
        ledgers = ledgers_by_id(info)
        earlier = [one for one in ledgers if one.ledgerId < ledger_id]
        later = [one for one in ledgers if one.ledgerId > ledger_id]
        last = Position(earlier[-1].ledgerId, earlier[-1].entries - 1) if earlier else Position(ledger_id, -1)
        return cls(ledger_id, last, Position(later[0].ledgerId, -1) if later else last)


def _moved(seen: Versioned, place: _Place, readers: Readers) -> tuple[Decided, str]:
    """Move a cursor out of a removed ledger; also return a sentence about it, "" if it does not move."""
    try:
        info = decode_cursor(seen.value)
    except DecodeError as error:
        return undecided(seen, f"it can't be read ({error.message}): run repair cursor first"), ""
    if info.cursorsLedgerId != STATE_IN_RECORD:
        return (seen, keep(seen, "in-ledger")), ""
    before = info.SerializeToString()
    text = ""
    if info.markDeleteLedgerId == place.ledger_id:
        old = f"{info.markDeleteLedgerId}:{info.markDeleteEntryId}"
        info.markDeleteLedgerId, info.markDeleteEntryId = place.after
        text = f"from {old} to {place.after.text}"
    kept = [one for one in info.individualDeletedMessages if not _touches(one, place.ledger_id)]
    del info.individualDeletedMessages[:]
    info.individualDeletedMessages.extend(kept)
    batches = [one for one in info.batchedEntryDeletionIndexInfo if one.position.ledgerId != place.ledger_id]
    del info.batchedEntryDeletionIndexInfo[:]
    info.batchedEntryDeletionIndexInfo.extend(batches)
    after = info.SerializeToString()
    return (
        becoming(seen, packed(seen, after, readers)) if after != before else (seen, keep(seen, "already"))
    ), text


def _touches(item: MessageRange, ledger_id: int) -> bool:
    return ledger_id in (item.upperEndpoint.ledgerId, item.lowerEndpoint.ledgerId)


def _checked(runs: Sequence[Run], ledger: Ledger) -> list[Run]:
    for first, last in runs:
        if first > last or (ledger.entries is not None and last >= ledger.entries):
            raise UsageError(f"{first}-{last}: ledger {ledger.ledger_id} has {ledger.entries} entries")
    return _joined(runs)


def _absent(source: EntrySource | None, ledger: Ledger) -> list[Run]:
    """Find the entries of a ledger that no disk has."""
    number = ledger.ledger_id
    if source is None:
        raise UsageError(
            "name the entries, such as --only 3-5, or give the disks of all bookies with"
            " --entries bookie-disk:…"
        )
    if ledger.entries is None:
        raise UsageError(f"ledger {number} is not closed, so its number of entries is unknown")
    if not all_here(source, ledger, ledger.entries):
        raise UsageError(f"entries of ledger {number} are on bookies whose disks were not given")
    here = set(source.entry_ids(number))
    return _joined((one, one) for one in range(ledger.entries) if one not in here)


def _joined(runs: Iterable[Run]) -> list[Run]:
    """Sort runs and join neighbouring ones."""
    joined: list[Run] = []
    for first, last in sorted(runs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def _acknowledged(
    seen: Versioned, source: EntrySource | None, ledger_id: int, runs: Sequence[Run], readers: Readers
) -> tuple[Decided, str]:
    """Acknowledge entries in a cursor; also return a sentence about it."""
    try:
        record = decode_cursor(seen.value)
    except DecodeError as error:
        return undecided(seen, f"it can't be read ({error.message}): run repair cursor first"), ""
    found = state_of(record, source)
    if found.state is None:
        why = f"its state is in ledger {found.ledger_id}, which no source has: add --entries"
        return undecided(seen, why), ""
    info = record_with(record, found.state) if isinstance(found.state, PositionInfo) else record
    position = Position(info.markDeleteLedgerId, info.markDeleteEntryId)
    runs = [(first, last) for first, last in runs if Position(ledger_id, last) > position]
    ranges = [item for item in info.individualDeletedMessages if not _is_in(item, ledger_id)]
    mine = [item for item in info.individualDeletedMessages if _is_in(item, ledger_id)]
    held = _joined((item.lowerEndpoint.entryId + 1, item.upperEndpoint.entryId) for item in mine)
    wanted = _joined([*held, *runs])
    if wanted == held:
        return (seen, keep(seen, "already")), ""
    _set_acks(info, ranges, ledger_id, wanted)
    text = f"acknowledged after {position.text}"
    if isinstance(found.state, PositionInfo):
        text += f"; its state moves from ledger {found.ledger_id} into its record"
    return becoming(seen, packed(seen, info.SerializeToString(), readers)), text


def _is_in(item: MessageRange, ledger_id: int) -> bool:
    return item.lowerEndpoint.ledgerId == item.upperEndpoint.ledgerId == ledger_id


def _set_acks(
    info: ManagedCursorInfo, others: Sequence[MessageRange], ledger_id: int, wanted: Sequence[Run]
) -> None:
    """Set the acknowledged entries of a ledger. A run that follows the mark-delete position moves it."""
    if info.markDeleteLedgerId == ledger_id:
        end, wanted = info.markDeleteEntryId, list(wanted)
        while wanted and wanted[0][0] <= end + 1:
            end = max(end, wanted.pop(0)[1])
        info.markDeleteEntryId = end
    own = [_range(ledger_id, first, last) for first, last in wanted]
    ranges = sorted([*others, *own], key=lambda one: (one.upperEndpoint.ledgerId, one.upperEndpoint.entryId))
    del info.individualDeletedMessages[:]
    info.individualDeletedMessages.extend(ranges)


def _range(ledger_id: int, first: int, last: int) -> MessageRange:
    item = MessageRange()
    item.lowerEndpoint.ledgerId, item.lowerEndpoint.entryId = ledger_id, first - 1
    item.upperEndpoint.ledgerId, item.upperEndpoint.entryId = ledger_id, last
    return item
