"""Topics that are named: only what their records name is read, and that says the same as the whole list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_path
from pulsar_meta.jobs.check import checkup as checkup_module
from pulsar_meta.jobs.check.checkup import UNLISTED, checkup
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import DAMAGE, NotApplicableError, as_expected, check_findings, damaged, healthy_store

Capture = Callable[[str], Path]
PLAIN = "persistent://public/default/plain"
# What only the list of all ledgers can show.
BY_LIST = {"ledger-not-listed", "compaction-pointer-lost", "bookie-unknown"}


class CountingStore(MemoryStore):
    """A store that counts how often all ledgers are listed."""

    def __init__(self, held: MemoryStore) -> None:
        super().__init__()
        self.values = dict(held.values)
        self.lists = 0

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        self.lists += prefix == LEDGERS
        return super().scan(prefix, after=after)


@pytest.fixture
def store(capture: Capture) -> CountingStore:
    return CountingStore(healthy_store(capture("pulsar-4.2.4")))


@pytest.mark.parametrize("name", [PLAIN, "public/default"])
def test_the_ledgers_are_not_listed(store: CountingStore, name: str) -> None:
    del store.values[ledger_path(25)]
    looked = checkup(store, None, (name,), CheckOptions())
    assert [(finding.code, finding.ledger_id) for finding in looked.findings() if finding.topic == PLAIN] == [
        ("ledger-without-metadata", 25)
    ]
    assert (store.lists, looked.not_checked[UNLISTED]) == (0, "no --all")
    full = checkup(store, None, (name,), CheckOptions(every_ledger=True))
    assert "ledger-without-metadata" in {finding.code for finding in full.findings()}
    assert (store.lists, UNLISTED in full.not_checked) == (1, False)
    assert full.counts["ledgers"] == 199 > looked.counts["ledgers"] > 0


def test_only_the_list_says_what_a_topic_without_a_record_had(store: CountingStore) -> None:
    del store.values[TopicName.parse(PLAIN).path]
    [found] = check_findings(store, None, PLAIN)
    assert (found.code, found.topic, store.lists) == ("topic-record-lost", PLAIN, 1)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_nothing_is_made_up_and_only_what_needs_the_list_is_missed(capture: Capture, damage: str) -> None:
    held = healthy_store(capture("pulsar-4.2.4"))
    for number in range(2):
        with suppress(NotApplicableError):
            patient = damaged(held, Random(f"{damage} {number}"), [DAMAGE[damage]])
            names = {name for name in patient.touched if "://" in name}
            whole = {
                as_expected(finding) for finding in check_findings(patient.store) if finding.topic in names
            }
            some = {
                as_expected(finding)
                for name in names
                for finding in check_findings(patient.store, None, name)
            }
            some = {one for one in some if one.where in names}
            assert some <= whole
            assert {one.code for one in whole - some} <= BY_LIST


def test_the_first_answer_does_not_wait_for_the_list(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store.values[ledger_path(25)]
    findings = checkup(store, None, (), CheckOptions(min_age=0)).findings()
    first = next(found for found in findings if found.ledger_id == 25)
    assert store.lists == 0
    both = [first, *findings]
    assert store.lists == 1
    monkeypatch.setattr(checkup_module, "EARLY", 0)
    late = check_findings(store)
    assert sorted(map(str, both)) == sorted(str(one) for one in late if one in both)
    assert len({one.place for one in late}) == len(late)
