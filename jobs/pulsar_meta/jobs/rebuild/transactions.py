"""What a broker needs so that transactions go on: coordinators' logs, and logs of pending acknowledgments.

A coordinator counts on from the property `max_local_txn_id` of its log; an id that comes again would be taken
for a transaction that may have been aborted. So the highest id counts that a log, a message or an
acknowledgment on the disks has. Records of a coordinator's log name the topics and subscriptions of each
transaction: a ledger with messages of a transaction is one of these topics.

Sources: apache/pulsar MLTransactionLogImpl.java, MLTransactionSequenceIdGenerator.java,
MLPendingAckStore.java, SystemTopicNames.java, TransactionMetadataStoreService.java.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Final, TypeVar

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.log_entries import (
    LogKind,
    LogRecord,
    TxnId,
    decode_log_entry,
    txn_of,
)
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.proto.TransactionLogs_pb2 import PendingAckMetadataEntry, TransactionMetadataEntry

COORDINATORS: Final = TopicName("pulsar", "system", "transaction_coordinator_assign")
MAX_LOCAL_TXN_ID: Final = "max_local_txn_id"
LOG_CURSOR: Final = "transaction.subscription"

Subscriber = tuple[str, str]
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class LogClues:
    """What a log of transactions says.

    `highest` is the highest id by coordinator; `topics` and `subscribers` (topic, subscription) are those of
    each transaction whose beginning is here; `txns` are all that it has, `named` the data ledgers that
    pending acknowledgments name.
    """

    ledger_id: int
    kind: LogKind
    highest: Mapping[int, int]
    txns: frozenset[TxnId] = frozenset()
    topics: tuple[tuple[TxnId, tuple[str, ...]], ...] = ()
    subscribers: tuple[tuple[TxnId, tuple[Subscriber, ...]], ...] = ()
    named: frozenset[int] = frozenset()

    @property
    def coordinator(self) -> int | None:
        """Whose log it is; None where it has records of several."""
        return next(iter(self.highest)) if len(self.highest) == 1 else None


def log_clues(source: EntrySource, ledger_id: int, kind: LogKind, digest: DigestType | None) -> LogClues:
    """Return what a ledger of a log says; entries that cannot be read are passed over."""
    highest: dict[int, int] = {}
    named: set[int] = set()
    txns: set[TxnId] = set()
    topics: dict[TxnId, set[str]] = {}
    subscribers: dict[TxnId, set[Subscriber]] = {}
    for record in _records(source, ledger_id, kind, digest):
        txn = txn_of(record)
        txns.add(txn)
        most = max(txn.least, record.max_local_txn_id if isinstance(record, TransactionMetadataEntry) else 0)
        highest[txn.most] = max(most, highest.get(txn.most, -1))
        if isinstance(record, PendingAckMetadataEntry):
            named |= {one.ledgerId for one in record.pending_ack_metadata}
        elif record.metadata_op == TransactionMetadataEntry.NEW:
            topics[txn], subscribers[txn] = set(), set()
        elif txn in topics:
            topics[txn] |= set(record.partitions)
            subscribers[txn] |= {(one.topic, one.subscription) for one in record.subscriptions}
    return LogClues(
        ledger_id,
        kind,
        highest,
        frozenset(txns),
        tuple((txn, tuple(sorted(found))) for txn, found in topics.items()),
        tuple((txn, tuple(sorted(found))) for txn, found in subscribers.items()),
        frozenset(named),
    )


def log_topic(coordinator: int) -> TopicName:
    """Return the name of a coordinator's log."""
    return TopicName("pulsar", "system", f"__transaction_log_{coordinator}")


def highest_ids(found: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the highest id of a transaction by coordinator."""
    highest: dict[int, int] = {}
    for one in found:
        for coordinator, least in one.items():
            highest[coordinator] = max(least, highest.get(coordinator, -1))
    return highest


def topics_by_transactions(logs: Iterable[LogClues], txns: Mapping[int, Set[TxnId]]) -> dict[int, TopicName]:
    """Return the topic of each ledger that alone was in all the transactions of its messages.

    `txns` has the transactions of messages by ledger.
    """
    known = _joined(logs, lambda log: log.topics)
    return {
        ledger_id: name
        for ledger_id, mine in txns.items()
        if (one := _only(known, mine)) is not None and (name := _name(one)) is not None
    }


def subscribers_by_transactions(
    logs: Iterable[LogClues], txns: Mapping[int, Set[TxnId]]
) -> dict[int, tuple[TopicName, str]]:
    """Return (topic, subscription) of each log of pending acknowledgments, as `topics_by_transactions`."""
    known = _joined(logs, lambda log: log.subscribers)
    return {
        ledger_id: (name, one[1])
        for ledger_id, mine in txns.items()
        if (one := _only(known, mine)) is not None and (name := _name(one[0])) is not None
    }


def _records(
    source: EntrySource, ledger_id: int, kind: LogKind, digest: DigestType | None
) -> Iterator[LogRecord]:
    for _, outcome in read_each(source, ledger_id):
        if isinstance(outcome, RawEntry):
            try:
                yield from decode_log_entry(kind, decode_bookie_entry(outcome.data, digest).data).records
            except DecodeError:
                continue


def _joined(
    logs: Iterable[LogClues], of: Callable[[LogClues], Iterable[tuple[TxnId, tuple[One, ...]]]]
) -> dict[TxnId, set[One]]:
    known: dict[TxnId, set[One]] = defaultdict(set)
    for log in logs:
        for txn, found in of(log):
            known[txn] |= set(found)
    return known


def _only(known: Mapping[TxnId, Set[One]], txns: Set[TxnId]) -> One | None:
    """Return what all the known ones of some transactions have in common; None where it is not one."""
    sets = [set(known[txn]) for txn in txns if txn in known]
    common = set.intersection(*sets) if sets else set()
    return common.pop() if len(common) == 1 else None


def _name(text: str) -> TopicName | None:
    try:
        return TopicName.parse(text)
    except UsageError:
        return None
