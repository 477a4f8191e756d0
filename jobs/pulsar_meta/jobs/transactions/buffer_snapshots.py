"""Read the newest snapshot of a topic's transaction buffer, as a broker that loads the topic does.

Source: apache/pulsar SingleSnapshotAbortedTxnProcessorImpl.java, SnapshotSegmentAbortedTxnProcessorImpl.java,
TableView.java (the last value of a key counts), SystemTopicTxnBufferSnapshotService.java.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.frame import decode_frame, decode_raw_message
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.codecs.transactions.snapshots import (
    INDEXES,
    SEGMENTS,
    SNAPSHOTS,
    SnapshotKind,
    decode_snapshot,
)
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.owners import COMPACTION, named_by
from pulsar_meta.jobs.topics.scope import named_topics
from pulsar_meta.jobs.topics.topic import Ledger, Position, read_topic, with_bookkeeper
from pulsar_meta.jobs.transactions.topic_entries import Gap, read_data
from pulsar_meta.stores.base import Store

_WORD: Final = 2**64


@dataclass(frozen=True, slots=True)
class BufferSnapshot:
    """The aborted transactions among all that had ended up to the position `max_read`.

    `incomplete` is the reason why there may be a newer snapshot, or more aborted transactions.
    """

    max_read: Position
    aborted: frozenset[TxnId]
    incomplete: str | None = None


def read_buffer_snapshot(store: Store, source: EntrySource, topic: TopicName) -> BufferSnapshot | None:
    """Read the newest snapshot of a topic's transaction buffer; None if there is none.

    If a namespace has snapshots of both forms, the aborted transactions of both are combined. Corrupt data
    makes a snapshot `incomplete`. Raises UnreachableError.
    """
    system = replace(topic, domain="persistent")
    single = _newest(store, source, replace(system, local=SNAPSHOTS), "snapshot", str(topic))
    indexes = _newest(store, source, replace(system, local=INDEXES), "indexes", str(topic))
    snapshots = []
    if single.value is not None:
        aborted = frozenset(map(_txn, single.value["aborts"] or ()))
        snapshots.append(BufferSnapshot(_max_read(single.value), aborted, single.incomplete))
    if indexes.value is not None and indexes.value["snapshot"] is not None:
        snapshots.append(_of_indexes(store, source, replace(system, local=SEGMENTS), indexes))
    if not snapshots:
        return None
    newest = max(snapshots, key=lambda snapshot: snapshot.max_read)
    return replace(newest, aborted=frozenset(txn for snapshot in snapshots for txn in snapshot.aborted))


@dataclass(frozen=True, slots=True)
class _Newest:
    """The last value of a key, and the reason why there may be a later one."""

    value: dict[str, Any] | None = None
    incomplete: str | None = None


def _newest(store: Store, source: EntrySource, topic: TopicName, kind: SnapshotKind, key: str) -> _Newest:
    newest = _Newest()
    try:
        for missing, data in _values(store, source, topic, key):
            if missing is not None:
                newest = replace(newest, incomplete=missing)
            else:
                newest = replace(newest, value=decode_snapshot(kind, data) if data else None)
    except DecodeError as error:
        newest = replace(newest, incomplete=str(error))
    return newest


def _values(
    store: Store, source: EntrySource, topic: TopicName, key: str
) -> Iterator[tuple[str | None, memoryview]]:
    """Yield the payloads of a key in order, or the reason why some may be missing.

    An empty one removes the key.
    """
    nothing = memoryview(b"")
    for part in named_topics(store, topic):
        try:
            ledgers = read_topic(store, part).ledgers
        except NotFoundError:
            continue
        faults: list[PulsarMetaError] = []
        compacted = compacted_ledgers(store, source, part)
        for item in read_data(source, with_bookkeeper(store, [*compacted, *ledgers], faults.append)):
            if isinstance(item, Gap):
                yield item.why, nothing
            elif (payload := _payload(item[1], key)) is not None:
                yield None, payload
        yield from ((str(fault), nothing) for fault in faults)


def compacted_ledgers(store: Store, source: EntrySource, topic: TopicName) -> list[Ledger]:
    """The compacted ledger of a topic, which may contain messages that the topic no longer has."""
    try:
        record = store.read(topic.cursor_path(COMPACTION))
    except NotFoundError:
        return []
    named = named_by(record, source, lambda path, why: None)
    return [Ledger(owner.ledger_id) for owner in named if owner.role == "compacted"]


def _payload(data: memoryview, key: str) -> memoryview | None:
    """The payload of the last message with this key in an entry; None if there is none."""
    try:
        frame = decode_frame(data, verify=False)
    except DecodeError:
        frame = decode_frame(decode_raw_message(data).frame, verify=False)
    messages = [message for message in open_entry(frame).messages if message.metadata.partition_key == key]
    return messages[-1].payload if messages else None


def _of_indexes(store: Store, source: EntrySource, segments: TopicName, indexes: _Newest) -> BufferSnapshot:
    """Combine a snapshot with the segments that contain its older aborted transactions."""
    assert indexes.value is not None
    newest, incomplete = indexes.value["snapshot"], indexes.incomplete
    aborted = set(map(_txn, newest["aborts"] or ()))
    for index in indexes.value["indexList"] or ():
        try:
            aborted |= set(map(_txn, _segment(store, source, segments, index, indexes.value["topicName"])))
        except (NotFoundError, DecodeError) as error:
            incomplete = f"segment {index['sequenceID']} of the snapshot: {error.message}"
    return BufferSnapshot(_max_read(newest), frozenset(aborted), incomplete)


def _segment(
    store: Store, source: EntrySource, topic: TopicName, index: dict[str, int], name: str
) -> Iterable[dict[str, int]]:
    """Read the aborted transactions of a segment at the position in its index, or from compacted data."""
    place = Position(index["segmentLedgerID"], index["segmentEntryID"])
    key = f"multiple-{index['sequenceID']}-{name}"
    ledger = Ledger(place.ledger_id, entries=place.entry_id + 1)
    item = next(read_data(source, [ledger], place._replace(entry_id=place.entry_id - 1)))
    payload = None if isinstance(item, Gap) else _payload(item[1], key)
    if payload:
        return decode_snapshot("segment", payload)["aborts"] or ()
    kept = _newest(store, source, topic, "segment", key).value
    if kept is None:
        raise NotFoundError(f"there is no entry at {place.ledger_id}:{place.entry_id}")
    return kept["aborts"] or ()


def _txn(aborted: dict[str, int]) -> TxnId:
    """Convert an aborted transaction of a single snapshot or of a segment. Java's numbers are signed."""
    most = aborted.get("txnIdMostBits", aborted.get("mostSigBits", 0))
    least = aborted.get("txnIdLeastBits", aborted.get("leastSigBits", 0))
    return TxnId(most % _WORD, least % _WORD)


def _max_read(snapshot: dict[str, int]) -> Position:
    return Position(snapshot["maxReadPositionLedgerId"], snapshot["maxReadPositionEntryId"])
