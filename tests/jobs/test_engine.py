"""The engine is chosen by the entries that exist, not by those that a record claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs import engine
from pulsar_meta.jobs.engine import choose_engine_to_read, choose_engine_to_seek
from pulsar_meta.jobs.topics.topic import Ledger

MANY = engine.WORTH_SPARK_ENTRIES


class LastEntriesSource(EntrySource):
    """A source that knows only the last entries of ledgers. A ledger without one is damaged."""

    url = "memory:"

    def __init__(self, last: dict[int, int | None]) -> None:
        self.last = last
        self.requests = 0

    def ledgers(self) -> list[int]:
        raise NotImplementedError

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        raise NotImplementedError

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        raise NotImplementedError

    def last_entry(self, ledger_id: int) -> int | None:
        self.requests += 1
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
    ("claimed", "existing", "chosen"),
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
def test_existing_entries_choose_the_engine(
    claimed: dict[int, int | None], existing: dict[int, int | None], chosen: str
) -> None:
    ledgers = [Ledger(ledger_id, entries) for ledger_id, entries in claimed.items()]
    assert choose_engine_to_read("auto", ledgers, LastEntriesSource(existing))[0] == chosen
    counted = sum(ledger.entries or 0 for ledger in ledgers)
    assert (
        choose_engine_to_read("auto", iter(ledgers), LastEntriesSource(existing), entries=counted)[0]
        == chosen
    )


def test_the_source_is_asked_only_if_many_entries_are_claimed() -> None:
    source = LastEntriesSource({1: 5})
    choose_engine_to_read("auto", [Ledger(1, 6)], source)
    assert choose_engine_to_read("auto", [Ledger(1, MANY)], source, "local[2]")[0] == "spark"
    assert choose_engine_to_read("local", [Ledger(1, MANY)], source)[0] == "local"
    assert source.requests == 0


def test_seek_uses_spark_only_for_many_questions_about_many_ledgers() -> None:
    few, many = engine.WORTH_SPARK - 1, engine.WORTH_SPARK
    some = [Ledger(number, 1) for number in range(engine.WORTH_SPARK_LEDGERS)]
    assert choose_engine_to_seek("auto", many, some) == ("spark", None)
    assert choose_engine_to_seek("auto", many, some[1:]) == ("local", None)
    # Topics are not even read for few questions, or if the engine is given.
    unread = (ledger for ledger in some)
    assert choose_engine_to_seek("auto", few, unread) == ("local", None)
    assert choose_engine_to_seek("spark", few, unread) == ("spark", None)
    assert choose_engine_to_seek("auto", few, unread, "local[2]") == ("spark", None)
    assert next(unread) is some[0]
