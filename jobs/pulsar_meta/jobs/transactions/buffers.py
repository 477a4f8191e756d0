"""Transaction buffers of topics: the newest snapshot, read as a broker does that loads a topic, and records.

For segments, Pulsar 5 has records in the store instead of markers and snapshots (PIP-473):

    /txn/id/MOST_LEAST          {"state": "OPEN|COMMITTED|ABORTED", …}; removed some time after the end
    /txn/op/MOST_LEAST-NUMBER   {"kind": "WRITE|ACK", "segment", "subscription"?, …}, until the end
    /txn/segment-state/aborted/SEGMENT:MOST_LEAST  while the segment has messages of the transaction
    /txn/segment-state/watermark/SEGMENT  {"ledgerId", "entryId"}: all transactions up to there have ended

Sources: apache/pulsar SingleSnapshotAbortedTxnProcessorImpl.java,
SnapshotSegmentAbortedTxnProcessorImpl.java, TableView.java (the last value of a key counts),
SystemTopicTxnBufferSnapshotService.java;
MetadataTransactionBuffer.java, TxnPaths.java, TxnIds.java (branch-5.0-M1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.frame import decode_frame, decode_raw_message
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import INDEXES, SEGMENTS, SNAPSHOTS, SnapshotKind, TopicName, encode_name
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.codecs.transactions.snapshots import decode_snapshot
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.owners import COMPACTION, named_by
from pulsar_meta.jobs.topics.scope import named_topics
from pulsar_meta.jobs.topics.topic import Ledger, Position, Report, read_topic, with_bookkeeper
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
    record = store.find(topic.cursor_path(COMPACTION))
    named = () if record is None else named_by(record, source, lambda path, why: None)
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


HEADERS: Final = "/txn/id"
OPS: Final = "/txn/op"
ABORTED: Final = "/txn/segment-state/aborted"
WATERMARKS: Final = "/txn/segment-state/watermark"
_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class SegmentRecords:
    """The records of the transactions of one segment. Corrupt records go to `report`."""

    store: Store
    segment: TopicName
    report: Report

    def snapshot(self) -> BufferSnapshot | None:
        """The aborted transactions, and the position up to which all have ended; None without a watermark."""
        watermark = self._object(f"{WATERMARKS}/{encode_name(str(self.segment))}")
        place = None if watermark is None else position_in(watermark)
        return None if place is None else BufferSnapshot(place, frozenset(self.aborted()))

    def aborted(self) -> Iterator[TxnId]:
        """Yield the aborted transactions of which the segment may still have messages."""
        prefix = f"{encode_name(str(self.segment))}:"
        for name in self.store.children(ABORTED):
            txn = _txn_of_key(name.removeprefix(prefix)) if name.startswith(prefix) else None
            if txn is not None:
                yield txn

    def states(self, txns: Iterable[TxnId]) -> Iterator[tuple[TxnId, str | None]]:
        """Yield the state of each transaction from its record; None if the record is corrupt.

        A transaction without a record has ended. If its operations remain, it was aborted, as brokers treat
        it. Otherwise it was committed, because aborted transactions have separate records.
        """
        wanted = list(txns)
        records = self.store.read_many([f"{HEADERS}/{_key(txn)}" for txn in wanted])
        remaining: set[TxnId] | None = None
        for txn, record in zip(wanted, records, strict=True):
            if record is not None:
                yield txn, self._state(record.value, record.path)
                continue
            if remaining is None:
                remaining = {other for other, _ in self.operations()}
            yield txn, "ABORTED" if txn in remaining else "COMMITTED"

    def operations(self, kind: str = "WRITE") -> Iterator[tuple[TxnId, dict[str, Any]]]:
        """Yield the remaining operations of a kind on the segment, with their transactions."""
        for record in self.store.scan(OPS):
            txn = _txn_of_key(record.path.rpartition("/")[2].rpartition("-")[0])
            operation = None if txn is None else self._parsed(record.value, record.path)
            if txn is None or operation is None:
                continue
            if (operation.get("kind"), operation.get("segment")) == (kind, str(self.segment)):
                yield txn, operation

    def _state(self, value: bytes, path: str) -> str | None:
        header = self._parsed(value, path)
        state = None if header is None else header.get("state")
        return state if state in ("OPEN", "COMMITTED", "ABORTED") else None

    def _object(self, path: str) -> dict[str, Any] | None:
        record = self.store.find(path)
        return None if record is None else self._parsed(record.value, path)

    def _parsed(self, value: bytes, path: str) -> dict[str, Any] | None:
        try:
            return read_json_object(value, source=path)
        except DecodeError as error:
            self.report(error)
            return None


def position_in(record: dict[str, Any]) -> Position | None:
    """The position in the members `ledgerId` and `entryId` of a record; None if there is none."""
    ledger_id, entry_id = record.get("ledgerId"), record.get("entryId")
    if not isinstance(ledger_id, int) or not isinstance(entry_id, int):
        return None
    return Position(ledger_id, entry_id)


def _key(txn: TxnId) -> str:
    """Encode a transaction as in paths: two signed numbers."""
    most, least = (number - 2 * _SIGN if number >= _SIGN else number for number in txn)
    return f"{most}_{least}"


def _txn_of_key(key: str) -> TxnId | None:
    """Parse the transaction in a key; None for other names, such as counters."""
    most, _, least = key.partition("_")
    numbers = [part for part in (most, least) if part.removeprefix("-").isdecimal() and part.isascii()]
    return TxnId(*(int(part) % (2 * _SIGN) for part in numbers)) if len(numbers) == 2 else None
