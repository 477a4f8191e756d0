"""A check of named topics reads only their records and ledgers, and finds the same as a check of all."""

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
# Only the list of all ledgers shows these.
BY_LIST = {"ledger-not-listed", "compaction-pointer-lost", "bookie-unknown"}


class CountingStore(MemoryStore):
    """A store that counts how often all ledgers are listed."""

    def __init__(self, original: MemoryStore) -> None:
        super().__init__()
        self.values = dict(original.values)
        self.lists = 0

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        self.lists += prefix == LEDGERS
        return super().scan(prefix, after=after)


@pytest.fixture
def store(capture: Capture) -> CountingStore:
    return CountingStore(healthy_store(capture("pulsar-4.2.4")))


@pytest.mark.parametrize("name", [PLAIN, "public/default"])
def test_a_check_of_named_topics_does_not_list_all_ledgers(store: CountingStore, name: str) -> None:
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


def test_the_list_is_read_for_a_topic_without_a_record(store: CountingStore) -> None:
    del store.values[TopicName.parse(PLAIN).path]
    [finding] = check_findings(store, None, PLAIN)
    assert (finding.code, finding.topic, store.lists) == ("topic-record-lost", PLAIN, 1)


@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_check_of_named_topics_misses_only_what_needs_the_list(capture: Capture, damage: str) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    for number in range(2):
        with suppress(NotApplicableError):
            patient = damaged(store, Random(f"{damage} {number}"), [DAMAGE[damage]])
            names = {name for name in patient.touched if "://" in name}
            all_findings = {
                as_expected(finding) for finding in check_findings(patient.store) if finding.topic in names
            }
            some_findings = {
                as_expected(finding)
                for name in names
                for finding in check_findings(patient.store, None, name)
            }
            some_findings = {finding for finding in some_findings if finding.where in names}
            assert some_findings <= all_findings
            assert {finding.code for finding in all_findings - some_findings} <= BY_LIST


def test_the_first_finding_does_not_wait_for_the_list(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    del store.values[ledger_path(25)]
    findings = checkup(store, None, (), CheckOptions(min_age=0)).findings()
    first = next(finding for finding in findings if finding.ledger_id == 25)
    assert store.lists == 0
    both = [first, *findings]
    assert store.lists == 1
    monkeypatch.setattr(checkup_module, "EARLY", 0)
    late = check_findings(store)
    assert sorted(map(str, both)) == sorted(str(finding) for finding in late if finding in both)
    assert len({finding.place for finding in late}) == len(late)
