"""What became of the transactions that published to a topic, and what of it readers are given.

A first pass over the headers of a topic's entries follows transactions as a broker that loads the topic
does: a message opens its transaction, a marker ends it, aborted ones are kept. What is neither open nor
aborted was committed, so that what is kept grows with the aborted and the open ones only.

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
from pulsar_meta.jobs.transactions.buffer_snapshots import BufferSnapshot, read_buffer_snapshot
from pulsar_meta.jobs.transactions.segment_records import SegmentRecords
from pulsar_meta.jobs.transactions.topic_entries import BEGINNING
from pulsar_meta.stores.base import Store

Outcome = Literal["committed", "aborted", "open", "unknown"]

TXN_ABORT: Final = 22
SEGMENT: Final = "segment"
END: Final = Position(MAX_ID, MAX_ID)


@dataclass
class Transactions:
    """What is known of the transactions of a topic, once all is taken in. All values are plain.

    `aborted` ones, and the `open` ones with the position of their first message: no marker was found. What
    could not be read lies between the positions `gaps` (its first and last entry): a marker may be there,
    unless `snapshot` says how a transaction ended. `whole` is false where the topic goes on elsewhere.
    `recorded`: it is no marker but a record of the store that says how a transaction ended; of those in
    `undecided` it is broken.
    """

    aborted: set[TxnId] = field(default_factory=set)
    open: dict[TxnId, Position] = field(default_factory=dict)
    gaps: tuple[Position, Position] | None = None
    snapshot: BufferSnapshot | None = None
    whole: bool = True
    recorded: bool = False
    undecided: set[TxnId] = field(default_factory=set)

    def outcome(self, txn: TxnId) -> Outcome:
        """Return what became of a transaction that published to the topic."""
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
        """Return whether readers are given the entry at `place`; None where that cannot be known.

        They are not given markers, messages of aborted transactions, and nothing from the first message of
        the first open transaction on.
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
        """The first message of the first open transaction: readers stop before it."""
        return None if self._first_open == END else self._first_open

    @cached_property
    def _first_open(self) -> Position:
        return self._first("open")

    @cached_property
    def _first_unknown(self) -> Position:
        return self._first("unknown")

    def _first(self, outcome: Outcome) -> Position:
        # Few are open at a time; the aborted ones are not among them.
        return min((place for txn, place in self.open.items() if self.outcome(txn) == outcome), default=END)

    def _ended_before_snapshot(self, place: Position) -> bool:
        held = self.snapshot
        return held is not None and held.incomplete is None and place <= held.max_read

    def take(self, place: Position, txn: TxnId, marker: int | None) -> None:
        """Take in the message, or the marker, of a transaction; in the order of the topic."""
        if marker == TXN_ABORT:
            self.aborted.add(txn)
        if marker is not None:
            self.open.pop(txn, None)
        elif txn not in self.aborted:
            self.open.setdefault(txn, place)

    def settle(self, states: Iterable[tuple[TxnId, str | None]]) -> None:
        """Take in how transactions ended that are open so far, by their records."""
        for txn, state in states:
            if state is None:
                self.undecided.add(txn)
            elif state != "OPEN":
                del self.open[txn]
            if state == "ABORTED":
                self.aborted.add(txn)

    def miss(self, ledger_id: int, gap: tuple[int, int]) -> None:
        """Note that entries of a ledger could not be read, the first and last of them being `gap`."""
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
    """Return what the entries of a topic say of its transactions; with `snapshot` those after it.

    `ledgers` in reading order, with what BookKeeper says of them; `records` of a segment, whose ledgers have
    no markers. Needs NumPy. UnreachableError.
    """
    from pulsar_meta.jobs.transactions.header_scan import scan_ledger

    aborted = set(snapshot.aborted if snapshot else ())
    found = Transactions(aborted, snapshot=snapshot, whole=whole, recorded=records is not None)
    after = snapshot.max_read if snapshot else BEGINNING
    for ledger in ledgers:
        if ledger.ledger_id >= after.ledger_id:
            first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
            gap = scan_ledger(source, ledger, first, found.take)
            if gap is not None:
                found.miss(ledger.ledger_id, gap)
            if records is not None:
                found.settle(records.states(list(found.open)))
    return found


def topic_transactions(
    store: Store, source: EntrySource, name: str, ledgers: Iterable[Ledger], report: Report
) -> Transactions:
    """Return what became of the transactions of a topic, by all its entries.

    Its newest snapshot is read where entries are missing. Broken metadata of a ledger is reported.
    UnreachableError from store or source.
    """
    topic = TopicName.parse(name)
    if topic.domain == SEGMENT:
        return readers_transactions(store, source, name, ledgers, report)
    found = read_transactions(source, with_bookkeeper(store, ledgers, report))
    if found.gaps is not None:
        found.snapshot = read_buffer_snapshot(store, source, topic)
    return found


def readers_transactions(
    store: Store, source: EntrySource, name: str, ledgers: Iterable[Ledger], report: Report
) -> Transactions:
    """Return the same from the newest snapshot on, as a broker that loads the topic does; no more is read.

    Without a snapshot, and where something of it is missing, all entries are read. Of a segment the store
    has records in its place.
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
    """Return the aborted ones among the `known` transactions that a broker which loads the topic knows not.

    It begins with the newest snapshot, which should have them: 4.2.4 with segmented snapshots was seen to
    lose some at a restart. Of a segment there are none: the store has records of it.
    """
    if not known.aborted or known.recorded:
        return frozenset()
    return frozenset(known.aborted - readers_transactions(store, source, name, ledgers, report).aborted)


class Forgotten(TypedDict, total=False):
    """`forgotten`: its transaction was aborted, and brokers would give it to readers all the same."""

    forgotten: bool


class OutcomeFacts(Forgotten, total=False):
    """What became of the transaction of an entry; `readable` is null where it cannot be known."""

    transaction: str
    transaction_state: Outcome
    readable: bool | None


def outcome_of(document: Mapping[str, Any], transactions: Transactions) -> OutcomeFacts:
    """Return what became of the transaction of an entry, by its document; nothing of one without a frame."""
    found, metadata = OutcomeFacts(), document["metadata"]
    if not metadata:
        return found
    place, txn = Position(document["ledger_id"], document["entry_id"]), None
    if "txnid_most_bits" in metadata and "txnid_least_bits" in metadata:
        txn = TxnId(int(metadata["txnid_most_bits"]), int(metadata["txnid_least_bits"]))
        found = {"transaction": str(txn), "transaction_state": transactions.outcome(txn)}
    found["readable"] = transactions.readable(place, txn, marker="marker_type" in metadata)
    return found


class Outcomes:
    """Adds to entries what became of their transactions: of a topic's, or of those in a ledger alone.

    `unknown` counts the entries of which it cannot be known whether readers are given them. `forgotten` are
    aborted transactions with messages among them that a broker which loads their topic would give readers.
    """

    def __init__(self, store: Store | None, source: EntrySource, report: Report) -> None:
        """`report` takes what is wrong with the metadata of ledgers."""
        self._store, self._source, self._report = store, source, report
        self._last: tuple[str, Transactions] = ("", Transactions())
        self._not_known_to_brokers: frozenset[TxnId] = frozenset()
        self.unknown = 0
        self.forgotten: set[tuple[str, TxnId]] = set()

    def add(self, documents: Iterable[Document], topics: Iterable[Sequence[Ledger]]) -> Iterator[Document]:
        """Yield the documents of entries with their outcomes; `topics` are all ledgers of each topic.

        Of ledgers that were named by their numbers each stands for itself.
        """
        by_id = {ledger.ledger_id: (ledger, ledgers) for ledgers in topics for ledger in ledgers}
        for document in documents:
            added = {**document, **outcome_of(document, self._transactions(*by_id[document["ledger_id"]]))}
            self.unknown += added.get("readable", True) is None
            yield {**added, **self._if_forgotten(added)}

    def _if_forgotten(self, document: Document) -> Forgotten:
        """Return `{"forgotten"}` for a message that brokers would give readers, though it was aborted."""
        if "transaction" not in document or "marker_type" in document["metadata"]:
            return {}
        txn = TxnId(*map(int, document["transaction"].split(":")))
        if txn not in self._not_known_to_brokers:
            return {}
        self.forgotten.add((self._last[0], txn))
        return {"forgotten": True}

    def _transactions(self, ledger: Ledger, ledgers: Sequence[Ledger]) -> Transactions:
        """Return what is needed for a ledger; for neighbouring ones of a topic it is read once."""
        name = str(ledger.ledger_id) if ledger.topic is None else ledger.topic
        if self._last[0] != name:
            self._last = name, self._read(ledger, ledgers)
            self._not_known_to_brokers = self._forgotten(ledger, ledgers)
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
