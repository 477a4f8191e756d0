"""What disks have of a ledger, read from its first and last entries, and how two ledgers follow each other.

Six entries of a ledger are read at most. Their indexes, producers and times tell whose messages they are.

Sources: apache/pulsar PIP-70 (indexes continue from ledger to ledger), SchemaStorageFormat.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaEntry

# Entries that are read from each end of a ledger; a marker or a damaged entry has no index.
READ_AT_END: Final = 3

Order = Literal["follows", "gap", "overlaps", "unknown"]
Content = Literal["messages", "schema", "other"]


@dataclass(frozen=True, slots=True)
class DiskLedger:
    """What disks have of one ledger: its ends, and what the entries there say.

    Times are milliseconds. `first_sequences` and `next_sequences` are by producer: its first sequence id, and
    the ids that can come after its last one. `digest_type` is the one whose checksum fits. `schemas` counts
    entries that are schemas.
    """

    ledger_id: int
    first_entry: int
    last_entry: int
    bookies: tuple[str, ...] = ()
    content: Content = "other"
    digest_type: DigestType | None = None
    first_index: int | None = None
    last_index: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    first_sequences: Mapping[str, int] = field(default_factory=dict)
    next_sequences: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of entries from the first to the last one."""
        return self.last_entry - self.first_entry + 1


def read_disk_ledger(source: EntrySource, ledger_id: int) -> DiskLedger | None:
    """Return what disks have of a ledger, None if they have no entry. Reads at most six entries.

    UnreachableError from the source.
    """
    last = source.last_entry(ledger_id)
    if last is None:
        return None
    first_ids = list(islice(source.entry_ids(ledger_id), READ_AT_END))
    last_ids = list(source.entry_ids(ledger_id, max(0, last - READ_AT_END + 1), last))
    first = first_ids[0] if first_ids else last
    read = {entry_id: _read(source, ledger_id, entry_id) for entry_id in {*first_ids, *last_ids}}
    at_begin = [read[entry_id] for entry_id in first_ids]
    at_end = [read[entry_id] for entry_id in last_ids]
    known = [entry for entry in (*at_begin, *at_end) if entry is not None]
    return DiskLedger(
        ledger_id,
        first,
        last,
        tuple(sorted(_holders(source, ledger_id))),
        _content(known),
        next((entry.digest_type for entry in known), None),
        next((one.first for one in at_begin if one is not None and one.first is not None), None),
        next((one.last for one in reversed(at_end) if one is not None and one.last is not None), None),
        next((one.time for one in at_begin if one is not None and one.time is not None), None),
        next((one.time for one in reversed(at_end) if one is not None and one.time is not None), None),
        _first_sequences(at_begin),
        _next_sequences(at_end),
    )


def order_of(before: DiskLedger, after: DiskLedger) -> Order:
    """Return how the messages of two ledgers would follow each other if both were one topic's.

    "follows": the second one continues where the first one ends, by index or, without indexes, by a
    producer's sequence id. "gap": by index, messages are missing between them. "overlaps": by index, they are
    not one topic's in this order.
    """
    if before.last_index is not None and after.first_index is not None:
        step = after.first_index - before.last_index
        return "follows" if step == 1 else "gap" if step > 1 else "overlaps"
    # A lower sequence id proves nothing: a producer that restarts may begin again from 0.
    follows = any(
        after.first_sequences[name] in ids
        for name, ids in before.next_sequences.items()
        if after.first_sequences.get(name)
    )
    return "follows" if follows else "unknown"


def fits_between(
    ledger: DiskLedger, before: DiskLedger | None, after: DiskLedger | None
) -> Iterator[tuple[bool, str]]:
    """Yield (whether it supports, what the disks say) about a ledger's place between two ledgers of a topic.

    `before` and `after` are the topic's ledgers on both sides, None if there is none or it is not known.
    """
    if before is not None and after is not None and order_of(before, after) == "follows":
        yield (
            False,
            f"nothing is missing between ledgers {before.ledger_id} and {after.ledger_id}: "
            + _ends(before, after),
        )
        return
    for one, other in ((before, ledger), (ledger, after)):
        if one is None or other is None:
            continue
        order = order_of(one, other)
        if order == "follows":
            yield True, f"ledger {other.ledger_id} continues ledger {one.ledger_id}: {_ends(one, other)}"
        elif order == "overlaps":
            yield False, f"ledger {other.ledger_id} does not come after {one.ledger_id}: {_ends(one, other)}"


def has_schema(source: EntrySource, ledger_id: int, entry_id: int) -> bool:
    """Return whether a source has an entry that can be read and is a schema. UnreachableError."""
    try:
        raw = source.read(ledger_id, entry_id)
        data = decode_bookie_entry(raw.data).data if raw.bookie else raw.data
    except (NotFoundError, DecodeError):
        return False
    return _is_schema(data)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one entry at the end of a ledger says."""

    digest_type: DigestType
    content: Content = "other"
    first: int | None = None
    last: int | None = None
    time: int | None = None
    producer: str = ""
    sequence: int = -1
    messages: int = 0


def _read(source: EntrySource, ledger_id: int, entry_id: int) -> _Entry | None:
    """Return what an entry says, None if it cannot be read or its digest is wrong."""
    try:
        raw = source.read(ledger_id, entry_id)
        entry = decode_bookie_entry(raw.data)
    except (NotFoundError, DecodeError):
        return None
    if entry.digest == "bad":
        return None
    try:
        return _message(entry.digest_type, decode_frame(entry.data, verify=False))
    except DecodeError:
        return _Entry(entry.digest_type, "schema" if _is_schema(entry.data) else "other")


def _message(digest_type: DigestType, frame: Frame) -> _Entry:
    first, last = frame.index_range or (None, None)
    metadata = frame.metadata
    # A marker has no sequence of its producer.
    marker = metadata.HasField("marker_type")
    time = metadata.publish_time if frame.broker_timestamp is None else frame.broker_timestamp
    sequence = -1 if marker else metadata.sequence_id
    return _Entry(
        digest_type, "messages", first, last, time, metadata.producer_name, sequence, frame.message_count
    )


def _is_schema(data: bytes | memoryview) -> bool:
    with suppress(DecodeError):
        entry = parse_message(SchemaEntry, data)
        return bool(entry.schema_data) and not has_unknown_fields(entry)
    return False


def _content(entries: Iterable[_Entry]) -> Content:
    found = {entry.content for entry in entries}
    return found.pop() if len(found) == 1 else "other"


def _first_sequences(entries: Iterable[_Entry | None]) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in entries:
        if entry is not None and entry.sequence >= 0:
            found.setdefault(entry.producer, entry.sequence)
    return found


def _next_sequences(entries: Iterable[_Entry | None]) -> dict[str, frozenset[int]]:
    """Return by producer the sequence ids that can come next.

    Clients count a batch as one or as many as it has messages.
    """
    found: dict[str, frozenset[int]] = {}
    for entry in entries:
        if entry is not None and entry.sequence >= 0:
            following = {entry.sequence + 1, entry.sequence + max(1, entry.messages)}
            found[entry.producer] = frozenset(following)
    return found


def _holders(source: EntrySource, ledger_id: int) -> set[str]:
    return {
        bookie
        for part in source.parts
        if part.bookies is not None and part.last_entry(ledger_id) is not None
        for bookie in part.bookies
    }


def _ends(before: DiskLedger, after: DiskLedger) -> str:
    if before.last_index is not None and after.first_index is not None:
        return f"index {before.last_index}, then {after.first_index}"
    shared: Sequence[str] = [name for name in before.next_sequences if name in after.first_sequences]
    if not shared:
        return "no index, no common producer"
    return f"sequence ids of the producer {shared[0]}"
