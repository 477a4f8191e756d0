"""`repair count` and `repair termination`: correct the end of a ledger or of a terminated topic.

`count` applies if the topic's list and BookKeeper's metadata disagree. With the bookies' disks, both get
the number of entries and the size that the disks have. Without disks, a count of zero is replaced by the end
in BookKeeper's metadata, because a broker that loads the topic would drop the ledger. For any other mismatch
the right end is unknown, so the ledger becomes OPEN and the next reader recovers it from the bookies. The
last ledger of a list is always opened that way.

`termination` applies to a topic that was terminated before its last entry. It removes the position, so that
the topic accepts messages again, or moves it to the last entry.

Sources: apache/pulsar ManagedLedgerImpl (initialize, asyncTerminate). Tested with 4.0.7, 4.2.4 and
5.0.0-M1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.repair.repair import (
    ANY,
    Repair,
    all_here,
    becoming,
    length_to,
    own_record,
    packed,
    undecided,
)
from pulsar_meta.jobs.rewrite.decision import Decided, keep
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.topics.placement import with_end
from pulsar_meta.jobs.topics.scope import held_partitions
from pulsar_meta.jobs.topics.topic import Ledger, Position, topic_of, with_bookkeeper
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Store, Versioned, current


class End(NamedTuple):
    """The end of a ledger, as its number of entries and of data bytes."""

    entries: int
    length: int


@dataclass(slots=True)
class _Changes:
    """The changes to one topic: new ends in its list, new ledger metadata, and messages about them."""

    ends: dict[int, End] = field(default_factory=dict)
    metadata: list[Decided] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    lost: int = 0
    unknown: list[str] = field(default_factory=list)


def repair_count(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    ledger_ids: Sequence[int] = (),
    readers: Readers = ANY,
) -> Repair:
    """Make a topic's list and BookKeeper's metadata agree, for the given ledgers or for all.

    Raises NotFoundError if there is no such topic or listed ledger, and UsageError for a shadow topic.
    """
    decided, said, losses, ledgers = list[Decided](), list[str](), list[str](), 0
    listed = set[int]()
    for topic in held_partitions(store, name)[0]:
        record = own_record(store, topic)
        found = topic_of(record).ledgers
        listed |= {ledger.ledger_id for ledger in found}
        chosen = [ledger for ledger in found if not ledger_ids or ledger.ledger_id in ledger_ids]
        changes = _Changes()
        for ledger in with_bookkeeper(store, chosen, lambda error: None):
            _look(store, source, ledger, changes, last=ledger.ledger_id == found[-1].ledger_id)
        ledgers += len(chosen)
        decided += [*changes.metadata, _record(record, changes, readers)]
        said += changes.said
        if changes.lost:
            losses.append(f"{changes.lost} entries that {topic} counts are on no disk, and are lost")
    absent = sorted(set(ledger_ids) - listed)
    if absent:
        raise NotFoundError(f"{name} does not list ledger {absent[0]}", source=store.url)
    return Repair(
        "count",
        tuple(decided),
        checked={"ledgers": ledgers},
        not_checked={} if source is not None else {"entries": "no --entries"},
        said=tuple(said),
        losses=tuple(losses),
        confirm=str(name) if losses else None,
    )


def _look(store: Store, source: EntrySource | None, ledger: Ledger, changes: _Changes, *, last: bool) -> None:
    """Decide about one ledger."""
    known = ledger.bookkeeper
    if known is None or (ledger.offload is not None and ledger.offload.is_only_copy):
        return
    listed, closed = ledger.counted, None if known.last_entry is None else known.last_entry + 1
    said = (
        f"the list counts {listed} entries, BookKeeper"
        f" {'has not closed it' if closed is None else f'counts {closed}'}"
    )
    end = _on_disks(source, ledger, max(listed, closed or 0))
    if last:
        if closed is not None and listed and listed != closed:
            _open(store, ledger, changes, said)
        elif closed is not None and end is not None and end.entries < closed:
            changes.lost += closed - end.entries
            _open(store, ledger, changes, f"BookKeeper counts {closed} entries, the disks have {end.entries}")
        return
    sized = end is None or {ledger.size, known.length} == {end.length}
    agreed = listed == closed and (end is None or (end.entries == listed and sized))
    if agreed or (closed is None and listed):
        return
    if end is not None and end.entries:
        _settle(store, ledger, end, changes, said)
    elif closed is None:
        changes.unknown.append(
            f"ledger {ledger.ledger_id} is open in BookKeeper and has no count: add --entries"
        )
    elif not listed and closed:
        changes.ends[ledger.ledger_id] = End(closed, known.length or 0)
        changes.said.append(f"ledger {ledger.ledger_id}: {said}: the list gets the count of BookKeeper")
    elif listed:
        _open(store, ledger, changes, said)


def _on_disks(source: EntrySource | None, ledger: Ledger, claimed: int) -> End | None:
    """Find the end of a ledger on the disks, at most at `claimed`; None if disks are missing."""
    last = None if source is None else source.last_entry(ledger.ledger_id)
    if source is None or last is None or not all_here(source, ledger, max(last + 1, claimed)):
        return None
    entries = min(last + 1, claimed) if claimed else last + 1
    length = length_to(source, ledger.ledger_id, entries - 1)
    return None if length is None else End(entries, length)


def _settle(store: Store, ledger: Ledger, end: End, changes: _Changes, said: str) -> None:
    """Give the list and the metadata the same end."""
    number = ledger.ledger_id
    changes.said.append(f"ledger {number}: {said}; the disks have {end.entries} ({end.length} bytes)")
    changes.lost += max(0, ledger.counted - end.entries)
    if (ledger.counted, ledger.size) != end:
        changes.ends[number] = end
    seen = current(store, ledger_path(number))
    decoded = decode_ledger_metadata(seen.value)
    decoded.metadata.state = LedgerMetadataFormat.CLOSED
    decoded.metadata.lastEntryId, decoded.metadata.length = end.entries - 1, end.length
    changes.metadata.append(becoming(seen, encode_ledger_metadata(decoded)))


def _open(store: Store, ledger: Ledger, changes: _Changes, said: str) -> None:
    """Reopen the ledger, so that the next broker that opens it recovers it."""
    seen = current(store, ledger_path(ledger.ledger_id))
    decoded = decode_ledger_metadata(seen.value)
    decoded.metadata.state, decoded.metadata.length = LedgerMetadataFormat.OPEN, 0
    decoded.metadata.ClearField("lastEntryId")
    changes.said.append(f"ledger {ledger.ledger_id}: {said}: OPEN, so that the broker recovers it on opening")
    changes.metadata.append(becoming(seen, encode_ledger_metadata(decoded)))


def _record(record: Versioned, changes: _Changes, readers: Readers) -> Decided:
    """Decide how the topic's record changes."""
    if changes.unknown:
        return undecided(record, "; ".join(changes.unknown))
    if not changes.ends:
        return record, keep(record, "already")
    info = decode_managed_ledger(record.value)
    for ledger in info.ledgerInfo:
        end = changes.ends.get(ledger.ledgerId)
        if end is not None:
            ledger.entries, ledger.size = end
            ledger.timestamp = ledger.timestamp or record.modified or 0
    return becoming(record, packed(record, info.SerializeToString(), readers))


def repair_termination(
    store: Store,
    source: EntrySource | None,
    name: TopicName,
    *,
    at_end: bool = False,
    readers: Readers = ANY,
) -> Repair:
    """Make a topic, or each of its partitions, readable to its end.

    Raises NotFoundError, DecodeError if the record is damaged, and UsageError for a shadow topic.
    """
    topics = held_partitions(store, name)[0]
    decided, said = list[Decided](), list[str]()
    for topic in topics:
        decision, text = _decided(store, source, topic, readers, at_end=at_end)
        decided.append(decision)
        said.append(f"{topic}: {text}")
    return Repair(
        "termination",
        tuple(decided),
        checked={"topics": len(topics)},
        not_checked={} if source is not None else {"entries": "no --entries"},
        said=tuple(said),
    )


def _decided(
    store: Store, source: EntrySource | None, name: TopicName, readers: Readers, *, at_end: bool
) -> tuple[Decided, str]:
    """Decide about one topic; also return a message."""
    seen = own_record(store, name)
    topic = topic_of(seen)
    if topic.terminated is None:
        return (seen, keep(seen, "already")), "it is not terminated"
    ledgers = with_bookkeeper(store, topic.ledgers, lambda error: None)
    counts = {ledger.ledger_id: _entries(ledger, source) for ledger in ledgers}
    last = max((Position(one, count - 1) for one, count in counts.items() if count), default=None)
    at = topic.terminated.text
    if last is not None and last < topic.terminated and at_end and None not in counts.values():
        return _moved(seen, last, readers), f"terminated at {at}, but its last entry is {last[0]}:{last[1]}"
    if last is None or last <= topic.terminated:
        return (seen, keep(seen, "already")), f"terminated at {at}, its last entry"
    if not at_end:
        return _moved(seen, None, readers), (
            f"terminated at {at}, but it has later entries: it will accept messages again"
        )
    if None in counts.values():
        why = "the end of its open ledger is unknown: add --entries"
        return undecided(seen, f"{name}: {why}"), why
    return _moved(seen, last, readers), f"terminated at {at}, but it has entries up to {last[0]}:{last[1]}"


def _entries(ledger: Ledger, source: EntrySource | None) -> int | None:
    """Count the entries of a ledger regardless of the termination; None if it is open."""
    known = ledger.bookkeeper
    if known is not None and known.last_entry is not None:
        return known.last_entry + 1
    if ledger.counted or ledger.metadata == "absent":
        return ledger.counted
    return None if source is None else with_end(replace(ledger, entries=None), source).entries


def _moved(seen: Versioned, to: Position | None, readers: Readers) -> Decided:
    """Return that a topic is terminated elsewhere, or not any more."""
    info = decode_managed_ledger(seen.value)
    if to is None:
        info.ClearField("terminatedPosition")
    else:
        info.terminatedPosition.ledgerId, info.terminatedPosition.entryId = to
    return becoming(seen, packed(seen, info.SerializeToString(), readers))
