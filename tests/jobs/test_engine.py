"""Spark is chosen for what is there to be read, not for what a record claims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import BaseSource
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs import engine
from pulsar_meta.jobs.engine import choose_engine_to_read
from pulsar_meta.jobs.topics.topic import Ledger

MANY = engine.WORTH_SPARK_ENTRIES


class Holding(BaseSource):
    """Ledgers of which only the last entries are known; the one without is damaged."""

    url = "held"

    def __init__(self, last: dict[int, int | None]) -> None:
        self.last = last
        self.asked = 0

    def last_entry(self, ledger_id: int) -> int | None:
        self.asked += 1
        if ledger_id not in self.last:
            raise DecodeError("damaged")
        return self.last[ledger_id]


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "why_no_spark", lambda: None)


def test_a_claim_of_many_entries_does_not_start_spark(capture: Callable[[str], Path]) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.2.4') / 'bookie0'}"]) as source:
        assert choose_engine_to_read("auto", [Ledger(18, MANY), Ledger(99999, 2**62)], source) == (
            "local",
            None,
        )


@pytest.mark.parametrize(
    ("claimed", "held", "chosen"),
    [
        ({1: MANY - 1}, {1: MANY * 2}, "local"),
        ({1: MANY}, {1: MANY - 1}, "spark"),
        ({1: MANY}, {1: MANY - 2}, "local"),
        ({1: MANY, 2: MANY}, {1: None, 2: 5}, "local"),
        ({1: MANY, 2: MANY}, {1: MANY - 6, 2: 5}, "spark"),
        ({1: MANY, 2: MANY}, {}, "local"),
        ({1: None}, {1: MANY}, "local"),
    ],
)
def test_what_is_held_counts(
    claimed: dict[int, int | None], held: dict[int, int | None], chosen: str
) -> None:
    ledgers = [Ledger(ledger_id, entries) for ledger_id, entries in claimed.items()]
    assert choose_engine_to_read("auto", ledgers, Holding(held))[0] == chosen
    counted = sum(ledger.entries or 0 for ledger in ledgers)
    assert choose_engine_to_read("auto", iter(ledgers), Holding(held), entries=counted)[0] == chosen


def test_the_source_is_asked_only_where_much_is_claimed() -> None:
    source = Holding({1: 5})
    choose_engine_to_read("auto", [Ledger(1, 6)], source)
    assert choose_engine_to_read("auto", [Ledger(1, MANY)], source, "local[2]")[0] == "spark"
    assert choose_engine_to_read("local", [Ledger(1, MANY)], source)[0] == "local"
    assert source.asked == 0
