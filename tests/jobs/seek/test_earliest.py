"""Of the answers of a scalable topic's segments, the earliest entry counts if it is known."""

from __future__ import annotations

from typing import Any

from pulsar_meta.jobs.seek.seek import earliest


def answer(status: str, time: int | None = None, segment: int = 0) -> Any:
    return {
        "status": status, "clock": "publish", "publish_time": time, "ledger_id": segment, "entries_read": 2,
    }  # fmt: skip


def test_the_earliest_entry_is_chosen_and_all_reads_are_counted() -> None:
    chosen = earliest([answer("found", 30, 1), answer("found", 10, 2), answer("after-last", segment=3)])
    assert (chosen["status"], chosen["ledger_id"], chosen["entries_read"]) == ("found", 2, 6)


def test_a_segment_without_a_certain_answer_is_chosen() -> None:
    for status in ("missing-ledger", "unreadable", "unknown", "no-topic"):
        assert earliest([answer("found", 10, 1), answer(status, segment=2)])["ledger_id"] == 2


def test_without_an_entry_an_open_transaction_is_preferred() -> None:
    waiting = [answer("after-last", segment=1), answer("open", segment=2), answer("after-last", segment=3)]
    assert earliest(waiting)["ledger_id"] == 2
    assert earliest([answer("no-index", segment=1), answer("after-last", segment=2)])["ledger_id"] == 2
