"""Entries of transaction logs that brokers wrote, single and batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import LogKind, log_kind
from pulsar_meta.codecs.transactions.log_entries import (
    LOG_KINDS,
    decode_log_entry,
    log_entry_to_json,
    possible_readings,
)
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.jobs.transactions.topic_entries import Gap, read_data
from pulsar_meta.proto.TransactionLogs_pb2 import PendingAckMetadataEntry

Capture = Callable[[str], Path]
# The ledgers of a coordinator's log and of a subscription's pending acknowledgments.
LEDGERS: dict[str, dict[LogKind, int]] = {
    "transactions-4.2.4": {"transaction-log": 27, "pending-acks": 32},
    "transactions-4.0.7": {"transaction-log": 24, "pending-acks": 32},
}


def entries_of(folder: Path, ledger_id: int) -> Iterator[memoryview]:
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for item in read_data(source, [Ledger(ledger_id)]):
            assert not isinstance(item, Gap)
            yield item[1]


@pytest.mark.parametrize("name", LEDGERS)
@pytest.mark.parametrize("kind", LOG_KINDS)
def test_real_entries_have_only_one_possible_reading(capture: Capture, name: str, kind: LogKind) -> None:
    seen = 0
    for data in entries_of(capture(name), LEDGERS[name][kind]):
        entry = decode_log_entry(kind, data)
        assert entry.batched == (name == "transactions-4.2.4")
        assert entry.records
        assert [reading.kind for reading in possible_readings(data)] == [kind]
        seen += 1
    assert seen


def test_a_batch_keeps_the_order_of_its_records(capture: Capture) -> None:
    ledger = LEDGERS["transactions-4.2.4"]["pending-acks"]
    _, last = entries_of(capture("transactions-4.2.4"), ledger)
    shown = log_entry_to_json(decode_log_entry("pending-acks", last))
    assert [(record["txn"], record["pending_ack_op"]) for record in shown["records"]] == [
        ("0:20", "COMMIT"),
        ("0:21", "ABORT"),
    ]


def test_a_batch_of_a_later_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="version 2: expected 1"):
        decode_log_entry("transaction-log", bytes.fromhex("0e010002"))


def test_a_fault_in_a_batch_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="broken protobuf"):
        decode_log_entry("pending-acks", bytes.fromhex("0e010001ff"))


def test_an_entry_without_a_transaction_has_no_possible_reading() -> None:
    data = PendingAckMetadataEntry(txnid_most_bits=0, txnid_least_bits=1).SerializeToString()
    assert decode_log_entry("pending-acks", data).records
    assert list(possible_readings(data)) == []


@given(st.binary(max_size=64), st.sampled_from(LOG_KINDS), st.booleans())
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes, kind: LogKind, batched: bool) -> None:
    entry = b"\x0e\x01\x00\x01" * batched + data
    list(possible_readings(entry))
    with suppress(DecodeError):
        log_entry_to_json(decode_log_entry(kind, entry))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("persistent://pulsar/system/__transaction_log_12", "transaction-log"),
        ("pulsar/system/persistent/__transaction_log_0", "transaction-log"),
        ("persistent://public/default/__transaction_log_0", None),
        ("persistent://public/default/orders-audit__transaction_pending_ack", "pending-acks"),
        ("public/default/persistent/orders-a%2Fb__transaction_pending_ack", "pending-acks"),
        ("persistent://public/default/orders", None),
    ],
)
def test_the_topic_name_determines_the_kind(name: str, kind: LogKind | None) -> None:
    assert log_kind(name) == kind
