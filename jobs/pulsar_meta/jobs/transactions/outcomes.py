"""Find out how the transactions of a topic ended, and which messages readers receive.

The headers of a topic's entries are read in order, and transactions are followed like in a broker that loads
the topic: a message opens its transaction, a marker ends it, and aborted ones are remembered. A transaction
that is neither open nor aborted was committed, so memory grows with aborted and open transactions only.

Sources: apache/pulsar TopicTransactionBuffer.java (handleTxnEntry, handleTransactionMessage,
removeTxnAndUpdateMaxReadPosition), AbstractBaseDispatcher.java (filterEntriesForConsumer), PIP-31.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypedDict

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.topic import MAX_ID, Ledger, Position, Report, with_bookkeeper
from pulsar_meta.jobs.transactions.buffers import (
    BufferSnapshot,
    SegmentRecords,
    read_buffer_snapshot,
)
from pulsar_meta.jobs.transactions.topic_entries import BEGINNING, scan_transactions
from pulsar_meta.stores.base import Store

Outcome = Literal["committed", "aborted", "open", "unknown"]

TXN_ABORT: Final = 22
SEGMENT: Final = "segment"
END: Final = Position(MAX_ID, MAX_ID)


@dataclass
class Transactions:
    """The transactions of a topic, after all its entries were added. All attributes can be pickled.

    `open` has the position of the first message of each transaction without a marker. `gaps` are the
    positions of the first and last missing entry; a marker may be between them, unless `snapshot` shows how a
    transaction ended. `whole` is False if the topic has other entries elsewhere. `recorded` is True if
    records in the store, instead of markers, show how transactions ended; the records of `undecided`
    transactions are corrupt.
    """

    aborted: set[TxnId] = field(default_factory=set)
    open: dict[TxnId, Position] = field(default_factory=dict)
    gaps: tuple[Position, Position] | None = None
    snapshot: BufferSnapshot | None = None
    whole: bool = True
    recorded: bool = False
    undecided: set[TxnId] = field(default_factory=set)

    def outcome(self, txn: TxnId) -> Outcome:
        """The outcome of a transaction that published to the topic."""
        if txn in self.aborted:
            return "aborted"
        first = self.open.get(txn)
        if first is None:
            return "committed"
        if self.recorded:
            return "unknown" if txn in self.undecided else "open"
        if self.whole and (self.gaps is None or self.gaps[1] < first):
            return "open"
        if self.snapshot is not None and txn in self.snapshot.aborted:
            return "aborted"
        return "committed" if self._ended_before_snapshot(first) else "unknown"

    def readable(self, place: Position, txn: TxnId | None = None, *, marker: bool = False) -> bool | None:
        """Whether readers receive the entry at `place`; None if unknown.

        They don't receive markers, messages of aborted transactions, and any entries from the first message
        of the first open transaction on.
        """
        outcome = None if txn is None else self.outcome(txn)
        if marker or outcome == "aborted" or place >= self._first_open:
            return False
        if outcome == "unknown" or place >= self._first_unknown:
            return None
        hidden = self.gaps is not None and place > self.gaps[0]
        return None if (hidden or not self.whole) and not self._ended_before_snapshot(place) else True

    @property
    def first_open(self) -> Position | None:
        """The first message of the first open transaction, where readers stop."""
        return None if self._first_open == END else self._first_open

    @cached_property
    def _first_open(self) -> Position:
        return self._first("open")

    @cached_property
    def _first_unknown(self) -> Position:
        return self._first("unknown")

    def _first(self, outcome: Outcome) -> Position:
        # Only few transactions are open at a time.
        return min((place for txn, place in self.open.items() if self.outcome(txn) == outcome), default=END)

    def _ended_before_snapshot(self, place: Position) -> bool:
        snapshot = self.snapshot
        return snapshot is not None and snapshot.incomplete is None and place <= snapshot.max_read

    def add(self, place: Position, txn: TxnId, marker: int | None) -> None:
        """Add a message or marker of a transaction. Call it in the order of the topic."""
        if marker == TXN_ABORT:
            self.aborted.add(txn)
        if marker is not None:
            self.open.pop(txn, None)
        elif txn not in self.aborted:
            self.open.setdefault(txn, place)

    def settle(self, states: Iterable[tuple[TxnId, str | None]]) -> None:
        """Add the outcomes of open transactions from their records."""
        for txn, state in states:
            if state is None:
                self.undecided.add(txn)
            elif state != "OPEN":
                del self.open[txn]
            if state == "ABORTED":
                self.aborted.add(txn)

    def add_gap(self, ledger_id: int, gap: tuple[int, int]) -> None:
        """Add the (first, last) missing entry of a ledger."""
        first = Position(ledger_id, gap[0]) if self.gaps is None else self.gaps[0]
        self.gaps = first, Position(ledger_id, gap[1])


def read_transactions(
    source: EntrySource,
    ledgers: Iterable[Ledger],
    *,
    snapshot: BufferSnapshot | None = None,
    whole: bool = True,
    records: SegmentRecords | None = None,
) -> Transactions:
    """Follow the transactions in a topic's entries; with `snapshot`, only in the entries after it.

    `ledgers` are in reading order, with BookKeeper's metadata. `records` are those of a segment, whose
    ledgers have no markers. Needs NumPy. Raises UnreachableError.
    """
    aborted = set(snapshot.aborted if snapshot else ())
    transactions = Transactions(aborted, snapshot=snapshot, whole=whole, recorded=records is not None)
    after = snapshot.max_read if snapshot else BEGINNING
    for ledger in ledgers:
        if ledger.ledger_id >= after.ledger_id:
            first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
            gap = scan_transactions(source, ledger, first, transactions.add)
            if gap is not None:
                transactions.add_gap(ledger.ledger_id, gap)
            if records is not None:
                transactions.settle(records.states(list(transactions.open)))
    return transactions


def topic_transactions(
    store: Store, source: EntrySource, name: str, ledgers: Iterable[Ledger], report: Report
) -> Transactions:
    """Follow the transactions in all entries of a topic.

    If entries are missing, the newest snapshot is read, too. Corrupt metadata of a ledger goes to `report`.
    Raises UnreachableError.
    """
    topic = TopicName.parse(name)
    if topic.domain == SEGMENT:
        return readers_transactions(store, source, name, ledgers, report)
    transactions = read_transactions(source, with_bookkeeper(store, ledgers, report))
    if transactions.gaps is not None:
        transactions.snapshot = read_buffer_snapshot(store, source, topic)
    return transactions


def readers_transactions(
    store: Store, source: EntrySource, name: str, ledgers: Iterable[Ledger], report: Report
) -> Transactions:
    """Follow the transactions after the newest snapshot, as a broker that loads the topic does.

    Without a complete snapshot, all entries are read. For a segment, records in the store replace the
    snapshot.
    """
    topic = TopicName.parse(name)
    if topic.domain == SEGMENT:
        records, known = SegmentRecords(store, topic, report), with_bookkeeper(store, ledgers, report)
        return read_transactions(source, known, snapshot=records.snapshot(), records=records)
    snapshot = read_buffer_snapshot(store, source, topic)
    if snapshot is None or snapshot.incomplete is not None:
        return topic_transactions(store, source, name, ledgers, report)
    return read_transactions(source, with_bookkeeper(store, ledgers, report), snapshot=snapshot)


def forgotten(
    store: Store,
    source: EntrySource,
    name: str,
    ledgers: Sequence[Ledger],
    known: Transactions,
    report: Report,
) -> frozenset[TxnId]:
    """The aborted transactions among the `known` ones that a broker which loads the topic does not know.

    The broker starts from the newest snapshot, which should contain them, but 4.2.4 with segmented snapshots
    lost some in a restart. Segments have none, because the store has records of them.
    """
    if not known.aborted or known.recorded:
        return frozenset()
    return frozenset(known.aborted - readers_transactions(store, source, name, ledgers, report).aborted)


class Forgotten(TypedDict, total=False):
    """`forgotten` is True if the transaction was aborted, but brokers would deliver its messages."""

    forgotten: bool


class OutcomeFacts(Forgotten, total=False):
    """The outcome of the transaction of an entry. `readable` is null if it is unknown."""

    transaction: str
    transaction_state: Outcome
    readable: bool | None


def outcome_of(document: Mapping[str, Any], transactions: Transactions) -> OutcomeFacts:
    """The outcome of the transaction of an entry, from its document; empty for entries without a frame."""
    facts, metadata = OutcomeFacts(), document["metadata"]
    if not metadata:
        return facts
    place, txn = Position(document["ledger_id"], document["entry_id"]), None
    if "txnid_most_bits" in metadata and "txnid_least_bits" in metadata:
        txn = TxnId(int(metadata["txnid_most_bits"]), int(metadata["txnid_least_bits"]))
        facts = {"transaction": str(txn), "transaction_state": transactions.outcome(txn)}
    facts["readable"] = transactions.readable(place, txn, marker="marker_type" in metadata)
    return facts


class Outcomes:
    """Adds the outcomes of transactions to entries, for a topic or for single ledgers.

    `unknown` counts entries for which it is unknown whether readers receive them. `forgotten` are aborted
    transactions whose messages a broker that loads the topic would deliver.
    """

    def __init__(self, store: Store | None, source: EntrySource, report: Report) -> None:
        """Prepare to read from `source`. Corrupt metadata of ledgers goes to `report`."""
        self._store, self._source, self._report = store, source, report
        self._last: tuple[str, Transactions] = ("", Transactions())
        self._unknown_to_brokers: frozenset[TxnId] = frozenset()
        self.unknown = 0
        self.forgotten: set[tuple[str, TxnId]] = set()

    def add(self, documents: Iterable[Document], topics: Iterable[Sequence[Ledger]]) -> Iterator[Document]:
        """Yield the documents of entries with their outcomes. `topics` are all ledgers of each topic.

        Ledgers that were given by id are separate from each other.
        """
        by_id = {ledger.ledger_id: (ledger, ledgers) for ledgers in topics for ledger in ledgers}
        for document in documents:
            added = {**document, **outcome_of(document, self._transactions(*by_id[document["ledger_id"]]))}
            self.unknown += added.get("readable", True) is None
            yield {**added, **self._if_forgotten(added)}

    def _if_forgotten(self, document: Document) -> Forgotten:
        """`{"forgotten"}` for a message that brokers would deliver, although it was aborted."""
        if "transaction" not in document or "marker_type" in document["metadata"]:
            return {}
        txn = TxnId(*map(int, document["transaction"].split(":")))
        if txn not in self._unknown_to_brokers:
            return {}
        self.forgotten.add((self._last[0], txn))
        return {"forgotten": True}

    def _transactions(self, ledger: Ledger, ledgers: Sequence[Ledger]) -> Transactions:
        """Read the transactions of a ledger's topic, once for neighbouring ledgers of a topic."""
        name = str(ledger.ledger_id) if ledger.topic is None else ledger.topic
        if self._last[0] != name:
            self._last = name, self._read(ledger, ledgers)
            self._unknown_to_brokers = self._forgotten(ledger, ledgers)
        return self._last[1]

    def _forgotten(self, ledger: Ledger, ledgers: Sequence[Ledger]) -> frozenset[TxnId]:
        if ledger.topic is None or self._store is None:
            return frozenset()
        return forgotten(self._store, self._source, ledger.topic, ledgers, self._last[1], self._report)

    def _read(self, ledger: Ledger, ledgers: Sequence[Ledger]) -> Transactions:
        if ledger.topic is not None and self._store is not None:
            return topic_transactions(self._store, self._source, ledger.topic, ledgers, self._report)
        known = with_bookkeeper(self._store, [ledger], self._report)
        return read_transactions(self._source, known, whole=False)
