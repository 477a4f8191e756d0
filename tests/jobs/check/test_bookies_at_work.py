"""`check` on disks that a bookie still writes to: the newest entries arrive in the journal."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, Severity, finding
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.recheck import LOOKS, Recheck
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import DamageFunction, damaged, healthy_store
from tests.damage.cursor_damage import (
    cursor_ledger_foreign,
    range_inverted,
    too_many_acks,
)
from tests.damage.late_entries import LAST_WORDS, close_last_ledger, hide_journals, write_journals


@pytest.fixture
def folder(capture: Callable[[str], Path], tmp_path: Path) -> Path:
    return shutil.copytree(capture("pulsar-4.2.4-killed"), tmp_path / "killed")


class LiveStore(MemoryStore):
    networked = True


def closed(folder: Path, kind: type[MemoryStore]) -> MemoryStore:
    """Return the store with the topic's last ledger closed at an entry that only the journal has."""
    store = kind()
    store.values = dict(healthy_store(folder).values)
    close_last_ledger(store, folder)
    return store


def check_findings(store: MemoryStore, source: EntrySource, folder: Path) -> tuple[list[Finding], Checkup]:
    run = checkup(store, source, (str(LAST_WORDS),), CheckOptions(), urls=[f"bookie-disk:{folder}"])
    findings = list(run.findings())
    return [finding for finding in findings if finding.ledger_id is not None], run


def test_entries_written_after_the_opening_are_not_missing(folder: Path) -> None:
    store = closed(folder, LiveStore)
    hide_journals(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        findings, _ = check_findings(store, source, folder)
        # Nothing has been written yet, so the entries are lost.
        assert {finding.severity for finding in findings} >= {Severity.ERROR}
        assert not source.is_stale
        write_journals(folder)
        assert source.is_stale
        assert check_findings(store, source, folder)[0] == []


def test_lost_entries_are_reported_although_the_bookie_writes(folder: Path) -> None:
    store = closed(folder, LiveStore)
    hide_journals(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        before, _ = check_findings(store, source, folder)
        [mark] = folder.rglob("lastMark")
        mark.write_bytes(mark.read_bytes())
        assert source.is_stale
        assert check_findings(store, source, folder)[0] == before


def test_the_findings_are_undecided_if_the_store_is_a_copy(folder: Path) -> None:
    store = closed(folder, MemoryStore)
    hide_journals(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        assert Severity.ERROR in {finding.severity for finding in check_findings(store, source, folder)[0]}
        [mark] = folder.rglob("lastMark")
        mark.write_bytes(mark.read_bytes())
        findings, _ = check_findings(store, source, folder)
    assert {finding.severity for finding in findings} == {Severity.WARNING}
    assert any("undecided" in finding.message for finding in findings)


def test_disks_that_are_gone_at_the_second_look_are_not_checked(folder: Path) -> None:
    store = closed(folder, LiveStore)
    hide_journals(folder)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for current in folder.rglob("current"):
            if current.parent.name.startswith("bookie"):
                current.rename(current.with_name("elsewhere"))
        findings, run = check_findings(store, source, folder)
    assert findings == []
    assert "a second time" in run.not_checked["entries of 1 topics"]


def test_only_findings_that_two_looks_share_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two findings alternate, and a third one is there at each look."""
    name, looks = LAST_WORDS, 0

    def look(self: Recheck, names: object) -> dict[tuple[object, ...], Finding]:
        nonlocal looks
        looks += 1
        findings = [
            finding("ledger-end-differs", "", topic=str(LAST_WORDS), ledger_id=ledger_id)
            for ledger_id in (looks % 2, 9)
        ]
        return {finding.place: finding for finding in findings}

    monkeypatch.setattr(Recheck, "_look", look)
    later = Recheck(MemoryStore(), None, (), lambda store, source: pytest.fail("not asked"))
    assert [finding.ledger_id for finding in later.findings([name])] == [9]
    assert (looks, later.undecided) == (LOOKS, 1)


def test_a_rocksdb_snapshot_is_stale_after_a_broker_writes(folder: Path) -> None:
    with open_store(f"rocksdb:{folder}/rocksdb") as store:
        assert not store.is_stale
        with open_store(f"rocksdb:{folder}/rocksdb", read_only=False) as broker:
            record = broker.read(LAST_WORDS.path)
            broker.put(record.path, record.value, record.version)
            assert not broker.is_stale
        assert store.is_stale


class GrowingStore(LiveStore):
    """A store in which a broker adds ledgers to a topic after its record was scanned, for later reads."""

    def __init__(self, values: dict[str, Versioned], name: TopicName, scanned: bytes) -> None:
        super().__init__()
        self.values, self._name, self._scanned = values, name, scanned

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        return (self._then(record) for record in super().scan(prefix, after=after))

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        return [record and self._then(record) for record in super().read_many(paths)]

    def _then(self, record: Versioned) -> Versioned:
        return record._replace(value=self._scanned) if record.path == self._name.path else record


@pytest.mark.parametrize("grows", [False, True])
def test_a_position_in_a_ledger_that_was_listed_later_is_not_beyond_the_end(
    folder: Path, grows: bool
) -> None:
    values, name = dict(healthy_store(folder).values), TopicName.parse("marks")
    info = decode_managed_ledger(values[name.path].value)
    for ledger in info.ledgerInfo[2:]:
        del values[ledger_path(ledger.ledgerId)]
    del info.ledgerInfo[2:]
    scanned = info.SerializeToString()
    if not grows:
        values[name.path] = values[name.path]._replace(value=scanned)
    run = checkup(GrowingStore(values, name, scanned), None, (str(name),), CheckOptions())
    codes = [finding.code for finding in run.findings()]
    assert ("cursor-beyond-end" in codes) is not grows


def relist(store: Store, name: TopicName, *ledger_ids: int) -> None:
    """Write a topic's list with these of its ledgers, and with new ones for ids that it did not have."""
    record = store.read(name.path)
    info = decode_managed_ledger(record.value)
    ledgers = {ledger.ledgerId: ledger for ledger in info.ledgerInfo}
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(ledgers.get(each) or info.LedgerInfo(ledgerId=each) for each in ledger_ids)
    store.put(name.path, info.SerializeToString(), record.version)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_ledger_that_was_trimmed_after_the_opening_is_not_lost(folder: Path, trimmed: bool) -> None:
    url, disks, name = f"rocksdb:{folder}/rocksdb", f"bookie-disk:{folder}", TopicName.parse("marks")
    with open_store(url, read_only=False) as broker:
        first, second, lost, *_ = (ledger.ledger_id for ledger in read_topic(broker, name).ledgers)
        relist(broker, name, first, second)
        broker.delete(ledger_path(lost), broker.read(ledger_path(lost)).version)
    with open_store(url) as store, open_entries([disks]) as source:
        if trimmed:
            with open_store(url, read_only=False) as broker:
                relist(broker, name, lost + 1000)
        run = checkup(store, source, (), CheckOptions(), urls=[disks])
        findings = [finding.ledger_id for finding in run.findings() if finding.code == "ledger-lost"]
    assert findings == ([] if trimmed else [lost])


@pytest.mark.parametrize("damage", [range_inverted, cursor_ledger_foreign, too_many_acks])
def test_a_fault_of_one_record_is_an_error_in_a_copy_too(
    capture: Callable[[str], Path], damage: DamageFunction
) -> None:
    folder = capture("pulsar-4.2.4")
    copy = damaged(healthy_store(folder), Random(1), [damage])
    expected = {(each.code, each.severity) for each in copy.expected if each.severity is Severity.ERROR}
    with open_entries([f"bookie-disk:{folder}"]) as source:
        # The URL is that of running bookies, which may be ahead of a copy of the store.
        findings = list(checkup(copy.store, source, (), CheckOptions(), urls=["bookie:"]).findings())
    assert expected
    assert expected <= {(each.code, each.severity) for each in findings}
    assert not any("undecided" in each.message for each in findings if each.code in dict(expected))
