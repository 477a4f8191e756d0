"""Transactions in segments of Pulsar 5, where records in the store take the place of markers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import TopicName, encode_name
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.jobs.topics.topic import Position, read_topic
from pulsar_meta.jobs.transactions.outcomes import Transactions, topic_transactions
from pulsar_meta.jobs.transactions.pending_acks import PendingAck, pending_acks
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from tests.topic_builder import MemoryEntries, TopicBuilder

SEGMENT = "segment://my/ns/orders/0000-ffff-0"
# The transaction of the builder's messages.
TXN = TxnId(1, 2)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("memory:")


@pytest.fixture
def source(store: MemoryStore) -> MemoryEntries:
    entries = MemoryEntries()
    topic = TopicBuilder(SEGMENT, store, entries)
    topic.ledger(7)
    topic.publish(1000)
    topic.publish(1001, txn=True)
    topic.publish(1002)
    topic.save()
    return entries


def put(store: MemoryStore, path: str, value: Any) -> None:
    store.put(path, value if isinstance(value, bytes) else json.dumps(value).encode(), ABSENT)


def transactions_of(
    store: MemoryStore, source: MemoryEntries, faults: list[Exception] | None = None
) -> Transactions:
    ledgers = read_topic(store, TopicName.parse(SEGMENT)).ledgers
    return topic_transactions(store, source, SEGMENT, ledgers, ([] if faults is None else faults).append)


@pytest.mark.parametrize(
    ("state", "outcome", "readable"),
    [
        ("OPEN", "open", [True, False, False]),
        ("COMMITTED", "committed", [True, True, True]),
        ("ABORTED", "aborted", [True, False, True]),
    ],
)
def test_the_record_of_a_transaction_decides_its_outcome(
    store: MemoryStore, source: MemoryEntries, state: str, outcome: str, readable: list[bool]
) -> None:
    put(store, "/txn/id/1_2", {"state": state})
    transactions = transactions_of(store, source)
    assert transactions.outcome(TXN) == outcome
    given = [transactions.readable(Position(7, entry), TXN if entry == 1 else None) for entry in range(3)]
    assert given == readable


def test_a_transaction_without_a_record_committed_unless_operations_are_left(
    store: MemoryStore, source: MemoryEntries
) -> None:
    assert transactions_of(store, source).outcome(TXN) == "committed"
    put(store, "/txn/op/1_2__seq_counter__", bytes(8))
    put(store, "/txn/op/1_2-00000000000000000001", {"kind": "WRITE", "segment": SEGMENT})
    assert transactions_of(store, source).outcome(TXN) == "aborted"


def test_only_aborted_transactions_have_records_below_the_watermark(
    store: MemoryStore, source: MemoryEntries
) -> None:
    key = encode_name(SEGMENT)
    put(store, f"/txn/segment-state/watermark/{key}", {"ledgerId": 7, "entryId": 2})
    assert transactions_of(store, source).outcome(TXN) == "committed"
    put(store, f"/txn/segment-state/aborted/{encode_name('segment://my/ns/other/0-f-0')}:1_2", {})
    assert transactions_of(store, source).outcome(TXN) == "committed"
    put(store, f"/txn/segment-state/aborted/{key}:1_2", {"maxLedgerId": 7, "maxEntryId": 1})
    assert transactions_of(store, source).outcome(TXN) == "aborted"


@pytest.mark.parametrize("value", [b"{", b"[]", {"state": "SLEEPING"}, {}])
def test_a_corrupt_record_leaves_the_outcome_unknown(
    store: MemoryStore, source: MemoryEntries, value: Any
) -> None:
    put(store, "/txn/id/1_2", value)
    faults: list[Exception] = []
    transactions = transactions_of(store, source, faults)
    assert transactions.outcome(TXN) == "unknown"
    assert transactions.readable(Position(7, 2)) is None
    assert transactions.readable(Position(7, 0)) is True
    assert all(isinstance(fault, DecodeError) for fault in faults)
    assert len(faults) == isinstance(value, bytes)


def test_pending_acks_come_from_operations(store: MemoryStore, source: MemoryEntries) -> None:
    topic = TopicName.parse(SEGMENT)
    cursor = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=7, markDeleteEntryId=0)
    store.put(topic.cursor_path("audit"), cursor.SerializeToString(), ABSENT)
    put(store, "/txn/id/3_1", {"state": "OPEN"})
    put(store, "/txn/id/3_2", {"state": "ABORTED"})
    ack = {"kind": "ACK", "segment": SEGMENT, "subscription": "audit", "ledgerId": 7}
    put(store, "/txn/op/3_1-00000000000000000001", ack | {"entryId": 1})
    put(store, "/txn/op/3_1-00000000000000000002", ack | {"entryId": 1})
    put(store, "/txn/op/3_1-00000000000000000003", ack | {"entryId": 0})
    put(store, "/txn/op/3_1-00000000000000000004", ack | {"entryId": 2, "subscription": "other"})
    put(store, "/txn/op/3_2-00000000000000000001", ack | {"entryId": 2})
    pending = pending_acks(store, source, topic, "audit")
    assert pending.acks == (PendingAck(TxnId(3, 1), "individual", 7, 1),)
    assert (pending.log, pending.unknown) == (None, None)
    put(store, "/txn/op/3_1-00000000000000000005", ack | {"entryId": "x"})
    assert pending_acks(store, source, topic, "audit").unknown is not None
