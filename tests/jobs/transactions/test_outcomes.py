"""Outcomes of transactions if entries are missing, and what snapshots still show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.topic import Position, read_topic, with_bookkeeper
from pulsar_meta.jobs.transactions.buffers import read_buffer_snapshot
from pulsar_meta.jobs.transactions.outcomes import Transactions, read_transactions, topic_transactions
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.topic_builder import MemoryEntries

Capture = Callable[[str], Path]
CAPTURES = ("transactions-4.2.4", "transactions-4.0.7")
MONEY = TopicName.parse("money")
ABORTED = frozenset(TxnId(0, number) for number in (1, 3, 6, 9, 12, 15, 17))


@pytest.fixture(params=CAPTURES)
def folder(request: pytest.FixtureRequest, capture: Capture) -> Path:
    return capture(request.param)


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as opened:
        yield opened


@pytest.fixture
def source(folder: Path) -> MemoryEntries:
    """All entries of the capture, from which tests remove some."""
    entries = MemoryEntries()
    with open_entries([f"bookie-disk:{folder}"]) as disks:
        for ledger in disks.ledgers():
            entries.held[ledger] = {raw.entry_id: bytes(raw.data) for raw in disks.read_many(ledger)}
    return entries


def truth_of(folder: Path) -> dict[str, Any]:
    return dict(orjson.loads((folder / "truth.json").read_bytes())[str(MONEY)])


def transactions_of(store: Store, source: MemoryEntries) -> Transactions:
    return topic_transactions(store, source, str(MONEY), read_topic(store, MONEY).ledgers, fail)


def fail(error: Exception) -> None:
    raise error


def test_outcomes_equal_those_of_client_and_broker(folder: Path, store: Store, source: MemoryEntries) -> None:
    transactions, truth = transactions_of(store, source), truth_of(folder)
    assert transactions.aborted == ABORTED
    assert list(transactions.open) == [TxnId(0, 19)]
    first = transactions.first_open
    assert first is not None
    # The broker reports the last entry before the first open one.
    assert f"{first.ledger_id}:{first.entry_id - 1}" == truth["transactionBuffer"]["max_read_position"]
    published = {TxnId(*map(int, txn.split(":"))): state for txn, state in truth["transactions"].items()}
    for txn in (*ABORTED, TxnId(0, 0), TxnId(0, 2), TxnId(0, 19), TxnId(0, 25)):
        assert transactions.outcome(txn) == published[txn]


def test_the_newest_snapshot_equals_the_brokers(folder: Path, store: Store, source: MemoryEntries) -> None:
    snapshot = read_buffer_snapshot(store, source, MONEY)
    assert snapshot is not None
    assert (snapshot.aborted, snapshot.incomplete) == (ABORTED, None)
    place = f"{snapshot.max_read.ledger_id}:{snapshot.max_read.entry_id}"
    assert place == truth_of(folder)["transactionBuffer"]["max_read_position"]


def test_the_snapshot_decides_if_markers_are_missing(store: Store, source: MemoryEntries) -> None:
    # Only the last three ledgers keep more than their first two entries.
    for ledger in read_topic(store, MONEY).ledgers[:-3]:
        entries = source.held[ledger.ledger_id]
        for entry_id in list(entries)[2:]:
            del entries[entry_id]
    transactions = transactions_of(store, source)
    assert transactions.gaps is not None
    assert transactions.snapshot is not None
    for txn in transactions.open:
        expected = "open" if txn == TxnId(0, 19) else "aborted" if txn in ABORTED else "committed"
        assert transactions.outcome(txn) == expected
    last = transactions.snapshot.max_read
    assert transactions.readable(last) is True
    assert transactions.readable(Position(last.ledger_id, last.entry_id + 1)) is False


def test_outcomes_without_snapshot_and_markers_are_unknown(store: Store, source: MemoryEntries) -> None:
    ledgers = list(with_bookkeeper(store, read_topic(store, MONEY).ledgers, fail))
    del source.held[ledgers[-3].ledger_id]
    transactions = read_transactions(source, ledgers)
    assert {transactions.outcome(txn) for txn in transactions.open} == {"unknown"}
    first = min(transactions.open.values())
    assert transactions.readable(Position(ledgers[0].ledger_id, 0)) is True
    assert transactions.readable(first) is None
    assert transactions.readable(first, TxnId(0, 1)) is None
    assert transactions.readable(first, marker=True) is False


def test_a_missing_ledger_may_hide_an_open_transaction(store: Store, source: MemoryEntries) -> None:
    ledgers = list(with_bookkeeper(store, read_topic(store, MONEY).ledgers, fail))
    del source.held[ledgers[0].ledger_id]
    transactions = read_transactions(source, ledgers)
    assert transactions.readable(Position(ledgers[1].ledger_id, 0)) is None


def test_a_missing_segment_leaves_its_transactions_unknown(capture: Capture) -> None:
    folder, entries = capture("transactions-4.2.4"), MemoryEntries()
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder}"]) as disks,
    ):
        for ledger in disks.ledgers():
            entries.held[ledger] = {raw.entry_id: bytes(raw.data) for raw in disks.read_many(ledger)}
        # The ledger with the first segment.
        del entries.held[7]
        snapshot = read_buffer_snapshot(store, entries, MONEY)
    assert snapshot is not None
    assert snapshot.incomplete == "segment 0 of the snapshot: there is no entry at 7:0"
    assert snapshot.aborted == ABORTED - {TxnId(0, 3), TxnId(0, 6)}


def test_a_topic_without_snapshots_has_none(capture: Capture) -> None:
    folder = capture("transactions-4.0.7")
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder}"]) as disks,
    ):
        assert read_buffer_snapshot(store, disks, TopicName.parse("plain")) is None
        assert read_buffer_snapshot(store, disks, TopicName.parse("my/other/topic")) is None


def test_a_damaged_snapshot_is_not_used(capture: Capture) -> None:
    folder, entries = capture("transactions-4.0.7"), MemoryEntries()
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder}"]) as disks,
    ):
        for ledger in disks.ledgers():
            entries.held[ledger] = {raw.entry_id: bytes(raw.data) for raw in disks.read_many(ledger)}
        topic = read_topic(store, TopicName.parse("__transaction_buffer_snapshot"))
        last = max(ledger.ledger_id for ledger in topic.ledgers if entries.held.get(ledger.ledger_id))
        entry = max(entries.held[last])
        entries.held[last][entry] = entries.held[last][entry][:-1] + b"?"
        snapshot = read_buffer_snapshot(store, entries, MONEY)
    assert snapshot is not None
    assert snapshot.incomplete == f"{last}:{entry}: its digest does not fit"
