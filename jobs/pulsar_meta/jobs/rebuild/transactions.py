"""What brokers need to continue transactions: coordinators' logs and logs of pending acknowledgments.

A coordinator continues after the property `max_local_txn_id` of its log. If an id were used twice, the new
transaction could be taken for an old one that was aborted. So the counter must exceed the highest id in any
log, message or acknowledgment on the disks. A coordinator's log also names the topics and subscriptions of
each transaction, and a ledger with messages of a transaction belongs to one of these topics.

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
from pulsar_meta.codecs.names import LogKind, TopicName
from pulsar_meta.codecs.transactions.log_entries import LogRecord, TxnId, decode_log_entry, txn_of
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.proto.TransactionLogs_pb2 import PendingAckMetadataEntry, TransactionMetadataEntry

COORDINATORS: Final = TopicName("pulsar", "system", "transaction_coordinator_assign")
MAX_LOCAL_TXN_ID: Final = "max_local_txn_id"
LOG_CURSOR: Final = "transaction.subscription"

Subscriber = tuple[str, str]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class LogClues:
    """The clues in a transaction log ledger.

    `highest` is the highest id per coordinator, and `txns` are all transactions in it. `topics` and
    `subscribers` (topic, subscription) are those of each transaction whose first record is in this ledger.
    `named` are the data ledgers that pending acknowledgments refer to.
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
        """The coordinator that wrote the log; None if its records come from several."""
        return next(iter(self.highest)) if len(self.highest) == 1 else None


def log_clues(source: EntrySource, ledger_id: int, kind: LogKind, digest: DigestType | None) -> LogClues:
    """Collect the clues in a ledger of a transaction log. Unreadable entries are skipped."""
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
            named |= {item.ledgerId for item in record.pending_ack_metadata}
        elif record.metadata_op == TransactionMetadataEntry.NEW:
            topics[txn], subscribers[txn] = set(), set()
        elif txn in topics:
            topics[txn] |= set(record.partitions)
            subscribers[txn] |= {(item.topic, item.subscription) for item in record.subscriptions}
    return LogClues(
        ledger_id,
        kind,
        highest,
        frozenset(txns),
        tuple((txn, tuple(sorted(names))) for txn, names in topics.items()),
        tuple((txn, tuple(sorted(names))) for txn, names in subscribers.items()),
        frozenset(named),
    )


def log_topic(coordinator: int) -> TopicName:
    """Name the topic of a coordinator's log."""
    return TopicName("pulsar", "system", f"__transaction_log_{coordinator}")


def highest_ids(mappings: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Merge the highest transaction ids per coordinator."""
    highest: dict[int, int] = {}
    for mapping in mappings:
        for coordinator, least in mapping.items():
            highest[coordinator] = max(least, highest.get(coordinator, -1))
    return highest


def topics_by_transactions(logs: Iterable[LogClues], txns: Mapping[int, Set[TxnId]]) -> dict[int, TopicName]:
    """Find the topic of each ledger: the only one in all transactions of the ledger's messages.

    `txns` has the transactions of each ledger's messages. Ledgers for which several topics remain are
    omitted.
    """
    known = _joined(logs, lambda log: log.topics)
    return {
        ledger_id: name
        for ledger_id, ledger_txns in txns.items()
        if (topic := _only(known, ledger_txns)) is not None and (name := _name(topic)) is not None
    }


def subscribers_by_transactions(
    logs: Iterable[LogClues], txns: Mapping[int, Set[TxnId]]
) -> dict[int, tuple[TopicName, str]]:
    """Find (topic, subscription) of each log of pending acknowledgments, like `topics_by_transactions`."""
    known = _joined(logs, lambda log: log.subscribers)
    return {
        ledger_id: (name, subscriber[1])
        for ledger_id, ledger_txns in txns.items()
        if (subscriber := _only(known, ledger_txns)) is not None
        and (name := _name(subscriber[0])) is not None
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
    logs: Iterable[LogClues], of: Callable[[LogClues], Iterable[tuple[TxnId, tuple[Item, ...]]]]
) -> dict[TxnId, set[Item]]:
    items_by_txn: dict[TxnId, set[Item]] = defaultdict(set)
    for log in logs:
        for txn, items in of(log):
            items_by_txn[txn] |= set(items)
    return items_by_txn


def _only(known: Mapping[TxnId, Set[Item]], txns: Set[TxnId]) -> Item | None:
    """The only item that all known transactions share; None if there is no such item or more than one."""
    sets = [set(known[txn]) for txn in txns if txn in known]
    common = set.intersection(*sets) if sets else set()
    return common.pop() if len(common) == 1 else None


def _name(text: str) -> TopicName | None:
    try:
        return TopicName.parse(text)
    except UsageError:
        return None
