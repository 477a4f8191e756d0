"""Acknowledgements in open transactions, compared with the broker's memory after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.acks import set_runs
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.transactions.pending_acks import PendingAcks, pending_acks
from pulsar_meta.stores.registry import open_store
from tests.topic_builder import MemoryEntries

Capture = Callable[[str], Path]
CAPTURES = ("transactions-4.2.4", "transactions-4.0.7")
TOPIC = TopicName.parse("acked")


def pending_acks_of(folder: Path, cursor: str, topic: TopicName = TOPIC) -> PendingAcks:
    with (
        open_store(f"snapshot:{folder / 'metadata.ndjson'}") as store,
        open_entries([f"bookie-disk:{folder}"]) as source,
    ):
        return pending_acks(store, source, topic, cursor)


def truth_of(folder: Path) -> dict[str, Any]:
    truth: dict[str, Any] = orjson.loads((folder / "truth.json").read_bytes())
    return dict(truth[str(TOPIC)]["pendingAcks"])


@pytest.mark.parametrize("name", CAPTURES)
def test_pending_acks_equal_the_brokers(capture: Capture, name: str) -> None:
    folder = capture(name)
    for cursor, expected in truth_of(folder).items():
        pending = pending_acks_of(folder, cursor)
        assert pending.unknown is None
        individual: dict[str, list[list[Any]]] = {}
        for ack in pending.acks:
            if ack.kind == "individual":
                place = [ack.ledger_id, ack.entry_id, ack.acked]
                individual.setdefault(str(ack.txn), []).append(place)
        for places in expected["individual"].values():
            for place in places:
                # The broker reports the words of a bit set of the unacknowledged messages, here of batches of
                # four.
                place[2] = tuple(set_runs([~place[2][0] & 0xF])) if place[2] else None
        assert individual == expected["individual"]
        cumulative = {
            str(ack.txn): [ack.ledger_id, ack.entry_id, []]
            for ack in pending.acks
            if ack.kind == "cumulative"
        }
        assert cumulative == (expected["cumulative"] or {})


def test_pending_acks_have_a_json_form(capture: Capture) -> None:
    pending = pending_acks_of(capture("transactions-4.2.4"), "work")
    assert pending.log == "persistent://public/default/acked-work__transaction_pending_ack"
    assert [ack.document() for ack in pending.acks][1:] == [
        {"txn": "0:22", "type": "individual", "position": "31:4"},
        {"txn": "0:22", "type": "individual", "position": "31:8", "batch_size": 4, "acked": [[2, 3]]},
    ]


def test_a_subscription_without_a_log_has_none(capture: Capture) -> None:
    assert pending_acks_of(capture("transactions-4.2.4"), "keep", TopicName.parse("money")) == PendingAcks()


def test_pending_acks_are_unknown_without_the_entries_of_the_log(capture: Capture) -> None:
    with open_store(f"snapshot:{capture('transactions-4.2.4') / 'metadata.ndjson'}") as store:
        assert pending_acks(store, None, TOPIC, "work").unknown == "no source of entries was given"
        missing = pending_acks(store, MemoryEntries(), TOPIC, "work")
    assert (missing.acks, missing.unknown) == ((), "ledger 32: entries up to 1 are missing")


def test_a_missing_cursor_is_not_found(capture: Capture) -> None:
    with pytest.raises(NotFoundError, match="no cursor 'nobody'"):
        pending_acks_of(capture("transactions-4.2.4"), "nobody")
