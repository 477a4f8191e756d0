"""Read a ledger's first and last entries from disks, and find out how two ledgers follow each other.

At most six entries of a ledger are read. Their indexes, producers and times indicate the topic they belong
to.

Sources: apache/pulsar PIP-70 (indexes continue from ledger to ledger), SchemaStorageFormat.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.frame import Frame, decode_frame
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.protobuf.to_json import has_unknown_fields
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaEntry

# The number of entries to read at each end of a ledger. More than one, because markers have no index.
READ_AT_END: Final = 3

Order = Literal["follows", "gap", "overlaps", "unknown"]
Content = Literal["messages", "schema", "other"]


@dataclass(frozen=True, slots=True)
class DiskLedger:
    """One ledger on disks: its ends, and the contents of the entries there.

    Times are in milliseconds. `first_sequences` has each producer's first sequence id, and `next_sequences`
    the ids that can follow its last one. `digest_type` is the one whose checksum matches. `length` is the
    number of bytes that the last entry has in its header.
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
    length: int | None = None

    @property
    def entries(self) -> int:
        """The number of entries from the first to the last one."""
        return self.last_entry - self.first_entry + 1


def read_disk_ledger(source: EntrySource, ledger_id: int) -> DiskLedger | None:
    """Read the ends of a ledger on disks; None if there is no entry. Reads at most six entries.

    Raises UnreachableError.
    """
    last = source.last_entry(ledger_id)
    if last is None:
        return None
    first_ids = list(islice(source.entry_ids(ledger_id), READ_AT_END))
    last_ids = list(source.entry_ids(ledger_id, max(0, last - READ_AT_END + 1), last))
    first = first_ids[0] if first_ids else last
    read = {entry_id: _read(source, ledger_id, entry_id) for entry_id in {*first_ids, *last_ids}}
    at_begin = [entry for entry_id in first_ids if (entry := read[entry_id]) is not None]
    at_end = [entry for entry_id in last_ids if (entry := read[entry_id]) is not None]
    known = [*at_begin, *at_end]
    return DiskLedger(
        ledger_id,
        first,
        last,
        tuple(sorted(_holders(source, ledger_id))),
        _content(known),
        next((entry.digest_type for entry in known), None),
        next((entry.first for entry in at_begin if entry.first is not None), None),
        next((entry.last for entry in reversed(at_end) if entry.last is not None), None),
        next((entry.time for entry in at_begin if entry.time is not None), None),
        next((entry.time for entry in reversed(at_end) if entry.time is not None), None),
        _first_sequences(at_begin),
        _next_sequences(at_end),
        None if (end := read.get(last)) is None else end.length,
    )


def order_of(before: DiskLedger, after: DiskLedger) -> Order:
    """Find out how the messages of two ledgers would follow each other in one topic.

    "follows": the second ledger continues the first one by index or, without indexes, by a producer's
    sequence id. "gap": by index, messages are missing between them. "overlaps": by index, they can't belong
    to one topic in this order.
    """
    if before.last_index is not None and after.first_index is not None:
        step = after.first_index - before.last_index
        return "follows" if step == 1 else "gap" if step > 1 else "overlaps"
    # A lower sequence id proves nothing, because a restarted producer may begin with 0 again.
    follows = any(
        after.first_sequences[name] in ids
        for name, ids in before.next_sequences.items()
        if after.first_sequences.get(name)
    )
    return "follows" if follows else "unknown"


def fits_between(
    ledger: DiskLedger, before: DiskLedger | None, after: DiskLedger | None
) -> Iterator[tuple[bool, str]]:
    """Yield (True if it is support, explanation) for a ledger's place between two ledgers of a topic.

    `before` and `after` are the topic's ledgers on both sides, None if there is none or it is unknown.
    """
    if before is not None and after is not None and order_of(before, after) == "follows":
        pair = f"ledgers {before.ledger_id} and {after.ledger_id}"
        yield False, f"nothing is missing between {pair}: {_ends(before, after)}"
        return
    for earlier, later in ((before, ledger), (ledger, after)):
        if earlier is None or later is None:
            continue
        order, ends = order_of(earlier, later), _ends(earlier, later)
        if order == "follows":
            yield True, f"ledger {later.ledger_id} continues ledger {earlier.ledger_id}: {ends}"
        elif order == "overlaps":
            yield False, f"ledger {later.ledger_id} does not come after {earlier.ledger_id}: {ends}"


def overlaps(ledgers: Iterable[DiskLedger | None]) -> Iterator[str]:
    """Explain each ledger whose messages can't come after those of the one before it, in order of ids.

    Such ledgers belong to different topics.
    """
    for before, after in pairwise(ledger for ledger in ledgers if ledger is not None):
        if order_of(before, after) == "overlaps":
            yield f"ledger {after.ledger_id} does not come after {before.ledger_id}: {_ends(before, after)}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """The contents of one entry at the end of a ledger."""

    digest_type: DigestType
    content: Content = "other"
    first: int | None = None
    last: int | None = None
    time: int | None = None
    producer: str = ""
    sequence: int = -1
    messages: int = 0
    length: int | None = None


def _read(source: EntrySource, ledger_id: int, entry_id: int) -> _Entry | None:
    """Read an entry; None if it can't be read or its digest is wrong."""
    try:
        raw = source.read(ledger_id, entry_id)
        entry = decode_bookie_entry(raw.data)
    except (NotFoundError, DecodeError):
        return None
    if entry.digest == "bad":
        return None
    length = entry.length if raw.bookie else None
    try:
        message = _message(entry.digest_type, decode_frame(entry.data, verify=False))
    except DecodeError:
        message = _Entry(entry.digest_type, "schema" if _is_schema(entry.data) else "other")
    return replace(message, length=length)


def _message(digest_type: DigestType, frame: Frame) -> _Entry:
    first, last = frame.index_range or (None, None)
    metadata = frame.metadata
    # Markers have no sequence id.
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
    contents = {entry.content for entry in entries}
    return contents.pop() if len(contents) == 1 else "other"


def _first_sequences(entries: Iterable[_Entry]) -> dict[str, int]:
    first: dict[str, int] = {}
    for entry in entries:
        if entry.sequence >= 0:
            first.setdefault(entry.producer, entry.sequence)
    return first


def _next_sequences(entries: Iterable[_Entry]) -> dict[str, frozenset[int]]:
    """The sequence ids that can come next, per producer.

    Some clients count a batch as one, others by its messages.
    """
    return {
        entry.producer: frozenset({entry.sequence + 1, entry.sequence + max(1, entry.messages)})
        for entry in entries
        if entry.sequence >= 0
    }


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
