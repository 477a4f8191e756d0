"""Read a subscription's acknowledgments in transactions that have not ended.

They are in the log of a separate managed ledger, which is replayed like in a broker that loads the
subscription. If a record acknowledges positions that are already acknowledged, the broker had refused it.

Source: apache/pulsar MLPendingAckStore.java, MLPendingAckReplyCallBack.java, PendingAckHandleImpl.java
(handleIndividualAckRecover, handleCumulativeAckRecover, handleCommit, handleAbort), SystemTopicNames.java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, Literal, NamedTuple, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.codecs.metadata.acks import acks_of, set_runs
from pulsar_meta.codecs.names import PENDING_ACK_SUFFIX, TopicName, encode_name
from pulsar_meta.codecs.transactions.log_entries import TxnId, decode_log_entry, txn_of
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.cursors import CursorState, cursor_state
from pulsar_meta.jobs.topics.topic import Ledger, Position, read_topic, with_bookkeeper
from pulsar_meta.jobs.transactions.buffers import SegmentRecords, position_in
from pulsar_meta.jobs.transactions.outcomes import SEGMENT
from pulsar_meta.jobs.transactions.topic_entries import Gap, read_data
from pulsar_meta.proto.TransactionLogs_pb2 import (
    ABORT,
    ACK,
    Cumulative,
    PendingAckMetadata,
    PendingAckMetadataEntry,
)
from pulsar_meta.stores.base import Store

LOG_CURSOR: Final = "__pending_ack_state"
_WORD: Final = 2**64 - 1

Runs = tuple[tuple[int, int], ...]
Kind = Literal["individual", "cumulative"]


class PendingAckDocument(TypedDict):
    """An acknowledgment of an open transaction. `acked` lists runs [first, last] of batch indexes."""

    txn: str
    type: Kind
    position: str
    batch_size: NotRequired[int | None]
    acked: NotRequired[list[list[int]]]


class PendingAck(NamedTuple):
    """An acknowledgment of one entry by an open transaction; a cumulative one includes all entries before it.

    `acked` are runs (first, last) of batch indexes; None stands for the complete entry.
    """

    txn: TxnId
    kind: Kind
    ledger_id: int
    entry_id: int
    batch_size: int | None = None
    acked: Runs | None = None

    def document(self) -> PendingAckDocument:
        """Convert it to JSON."""
        document: PendingAckDocument = {
            "txn": str(self.txn),
            "type": self.kind,
            "position": f"{self.ledger_id}:{self.entry_id}",
        }
        if self.acked is not None:
            document |= {"batch_size": self.batch_size, "acked": [list(run) for run in self.acked]}
        return document


@dataclass(frozen=True, slots=True)
class PendingAcks:
    """The pending acknowledgments of a subscription, ordered by position.

    `log` is the topic of their log; None if the subscription has no log. Then nothing is pending, except for
    a segment (Pulsar 5), whose acknowledgments are records in the store. `unknown` is the reason why the list
    may be wrong: a missing part of the log or of the cursor.
    """

    log: str | None = None
    acks: tuple[PendingAck, ...] = ()
    unknown: str | None = None


def pending_logs(topic: TopicName, cursor: str) -> list[TopicName]:
    """The possible names of a subscription's log, the name used by newer releases first.

    Newer releases (4.2.4) encode the subscription's name in it. Older ones (4.0.7) don't, so a subscription
    with a slash makes a V1 name of four parts.
    """
    names = dict.fromkeys((encode_name(cursor), cursor))
    return [TopicName.parse(f"{topic}-{name}{PENDING_ACK_SUFFIX}") for name in names]


def pending_acks(store: Store, source: EntrySource | None, topic: TopicName, cursor: str) -> PendingAcks:
    """Read a subscription's acknowledgments in transactions that neither committed nor aborted.

    Without a source, they are `unknown` if there is a log. Raises NotFoundError if there is no such cursor,
    DecodeError if a record in the store is corrupt, and UnreachableError.
    """
    state = cursor_state(store, source, topic, cursor)
    if topic.domain == SEGMENT:
        return _of_segment(store, topic, cursor, _Acked.of(state))
    for log in pending_logs(topic, cursor):
        try:
            ledgers = read_topic(store, log).ledgers
        except NotFoundError:
            continue
        if source is None:
            return PendingAcks(str(log), unknown="no source of entries was given")
        replay = _replayed(store, source, log, ledgers, state)
        return PendingAcks(str(log), tuple(sorted(replay.left(), key=_place)), replay.unknown)
    return PendingAcks()


def _of_segment(store: Store, topic: TopicName, cursor: str, acked: _Acked) -> PendingAcks:
    """Read the acknowledgments of a segment of Pulsar 5: records in the store, without batch indexes."""
    faults: list[PulsarMetaError] = []
    records = SegmentRecords(store, topic, faults.append)
    operations = [item for item in records.operations("ACK") if item[1].get("subscription") == cursor]
    states = dict(records.states({txn for txn, _ in operations}))
    pending: dict[PendingAck, None] = {}
    for txn, operation in operations:
        kind: Kind = "cumulative" if operation.get("cumulative") else "individual"
        place = position_in(operation)
        if place is None or states[txn] is None:
            faults.append(DecodeError(f"a record of the transaction {txn} is incomplete"))
        elif states[txn] == "OPEN" and not acked.has_entry(place):
            pending[PendingAck(txn, kind, *place)] = None
    unknown = next(iter(map(str, faults)), None)
    return PendingAcks(acks=tuple(sorted(pending, key=_place)), unknown=unknown)


def _replayed(
    store: Store, source: EntrySource, log: TopicName, ledgers: Iterable[Ledger], state: CursorState
) -> _Replay:
    faults: list[PulsarMetaError] = []
    replay, begun = _Replay(_Acked.of(state)), _log_position(store, source, log)
    if state.state is None:
        replay.unknown = f"the state of the cursor is in ledger {state.ledger_id}, which was not given"
    for item in read_data(source, with_bookkeeper(store, ledgers, faults.append), begun):
        if isinstance(item, Gap):
            replay.unknown = item.why
        else:
            replay.add(*item)
    for fault in faults:
        replay.unknown = str(fault)
    return replay


def _log_position(store: Store, source: EntrySource, log: TopicName) -> Position:
    """The position up to which a broker no longer needs the log; before its beginning if unknown."""
    try:
        return cursor_state(store, source, log, LOG_CURSOR).mark_delete
    except NotFoundError:
        return Position(-1, -1)


def _place(ack: PendingAck) -> tuple[int, int, TxnId]:
    return ack.ledger_id, ack.entry_id, ack.txn


@dataclass(frozen=True, slots=True)
class _Acked:
    """The subscription's own acknowledgments."""

    mark_delete: Position
    entries: dict[int, list[tuple[int, int]]]
    batches: dict[Position, int]

    @classmethod
    def of(cls, cursor: CursorState) -> _Acked:
        state = cursor.record if cursor.state is None else cursor.state
        batches = {
            Position(batch.position.ledgerId, batch.position.entryId): _bits(batch.deleteSet)
            for batch in state.batchedEntryDeletionIndexInfo
        }
        entries = {ledger: sorted(runs) for ledger, runs in acks_of(state).entries.items()}
        return cls(cursor.mark_delete, entries, batches)

    def has_entry(self, place: Position) -> bool:
        """True if the complete entry is acknowledged."""
        runs = self.entries.get(place.ledger_id, [])
        at = bisect_right(runs, (place.entry_id, 2**63)) - 1
        return place <= self.mark_delete or (at >= 0 and place.entry_id <= runs[at][1])


@dataclass(slots=True)
class _Replay:
    """The log so far. Bits of a batch are the unacknowledged messages; None stands for the complete entry."""

    acked: _Acked
    by_txn: dict[TxnId, dict[Position, tuple[int | None, int]]] = field(default_factory=dict)
    taken: dict[Position, int | None] = field(default_factory=dict)
    cumulative: PendingAck | None = None
    unknown: str | None = None

    def add(self, place: Position, data: memoryview) -> None:
        """Add an entry of the log."""
        try:
            records = decode_log_entry("pending-acks", data).records
        except DecodeError as error:
            self.unknown = f"{place.ledger_id}:{place.entry_id}: {error}"
            return
        for record in records:
            assert isinstance(record, PendingAckMetadataEntry)
            self._record(record)

    def left(self) -> Iterator[PendingAck]:
        """Yield the acknowledgments without a commit or abort."""
        for txn, places in self.by_txn.items():
            for place, (bits, size) in places.items():
                if bits is None:
                    yield PendingAck(txn, "individual", *place)
                else:
                    yield PendingAck(txn, "individual", *place, size, _cleared(bits, size))
        if self.cumulative is not None:
            yield self.cumulative

    def _record(self, record: PendingAckMetadataEntry) -> None:
        txn = txn_of(record)
        if record.pending_ack_op == ACK and record.ack_type == Cumulative:
            self._acknowledge_up_to(txn, record.pending_ack_metadata)
        elif record.pending_ack_op == ACK:
            self._acknowledge(txn, record.pending_ack_metadata)
        elif record.ack_type == Cumulative:
            self.cumulative = None
        else:
            self._end(txn, aborted=record.pending_ack_op == ABORT)

    def _acknowledge_up_to(self, txn: TxnId, given: Sequence[PendingAckMetadata]) -> None:
        place, before = Position(given[0].ledgerId, given[0].entryId), self.cumulative
        # The batch index is ignored, as in a broker's replay.
        if place > self.acked.mark_delete and (
            before is None or (before.txn == txn and place > (before.ledger_id, before.entry_id))
        ):
            self.cumulative = PendingAck(txn, "cumulative", *place)

    def _acknowledge(self, txn: TxnId, given: Sequence[PendingAckMetadata]) -> None:
        wanted = [(Position(ack.ledgerId, ack.entryId), ack) for ack in given]
        if any(self._refused(place, ack) for place, ack in wanted):
            return
        own = self.by_txn.setdefault(txn, {})
        for place, ack in wanted:
            bits = _bits(ack.ack_set) if ack.ack_set else None
            before = own.get(place, (None, 0))[0]
            own[place] = (bits if bits is None or before is None else before & bits, ack.batch_size)
            others = self.taken.get(place)
            self.taken[place] = bits if bits is None or others is None else others & bits

    def _refused(self, place: Position, ack: PendingAckMetadata) -> bool:
        if self.acked.has_entry(place):
            return True
        if not ack.ack_set:
            return place in self.taken
        cleared = ~_bits(ack.ack_set) & ((1 << ack.batch_size) - 1)
        for bits in (self.acked.batches.get(place), self.taken.get(place, ~0)):
            if bits is None and place in self.taken:
                return True
            if bits is not None and cleared & ~bits:
                return True
        return False

    def _end(self, txn: TxnId, *, aborted: bool) -> None:
        for place, (bits, size) in self.by_txn.pop(txn, {}).items():
            if bits is None or not aborted:
                # Committed acknowledgments are in the cursor, which was read before.
                self.taken.pop(place, None)
                continue
            whole = (1 << size) - 1
            left = (self.taken.get(place) or 0) | (~bits & whole)
            self.taken[place] = left
            if left & whole == whole:
                del self.taken[place]


def _bits(words: Iterable[int]) -> int:
    """Convert the words of a java.util.BitSet to one number."""
    return reduce(lambda number, word: number | (word[1] & _WORD) << 64 * word[0], enumerate(words), 0)


def _cleared(bits: int, size: int) -> Runs:
    """The runs of batch indexes whose bits are not set."""
    acked = ~bits & ((1 << size) - 1)
    return tuple(set_runs([acked >> 64 * at & _WORD for at in range(size // 64 + 1)]))
