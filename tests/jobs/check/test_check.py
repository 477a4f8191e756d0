"""Checks that need more than a damaged store: entries, live bookies, id generators, stores that change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.sources import JoinedEntries, open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.ledger_index import index_ledgers
from pulsar_meta.jobs.check.topic_view import has_entry
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import as_expected, check_findings, healthy_store
from tests.damage.damaged_disks import TIERED, EntryDamage

Capture = Callable[[str], Path]
PLAIN = "persistent://public/default/plain"


def new_findings(findings: list[Finding], before: list[Finding]) -> list[Finding]:
    known = set(map(as_expected, before))
    return [finding for finding in findings if as_expected(finding) not in known]


class ChangingStore(MemoryStore):
    """A store that changes between the first look at a topic and the second."""

    networked = True

    def __init__(self, original: MemoryStore, happens: Callable[[MemoryStore], None]) -> None:
        super().__init__()
        self.values = dict(original.values)
        self._happens: Callable[[MemoryStore], None] | None = happens

    def children(self, path: str) -> list[str]:
        if self._happens is not None and path.startswith(MANAGED_LEDGERS):
            self._happens(self)
            self._happens = None
        return super().children(path)


def test_damage_that_is_gone_at_the_second_look_is_not_reported(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    path = ledger_path(25)
    kept = store.values.pop(path)

    def comes_back(changing: MemoryStore) -> None:
        changing.values[path] = kept

    assert [
        finding.ledger_id for finding in check_findings(store) if finding.code == "ledger-without-metadata"
    ] == [25]
    live = check_findings(ChangingStore(store, comes_back))
    assert "ledger-without-metadata" not in {finding.code for finding in live}


def test_ledgers_trimmed_during_a_run_are_not_reported(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    before = store.values.pop(ledger_path(24))
    trimmed = store.values[topic.path]

    def trims(changing: MemoryStore) -> None:
        # The broker writes the record first, and the list of ledgers was read between the two writes.
        changing.values[topic.path] = trimmed._replace(value=_without_first(trimmed.value))

    findings = check_findings(ChangingStore(store, trims))
    assert before is not None
    assert "ledger-without-metadata" not in {finding.code for finding in findings}


class DeletingStore(MemoryStore):
    """A store that deletes a topic's ledgers as soon as they have been read one by one."""

    networked = True

    def __init__(self, original: MemoryStore, ledgers: Collection[str]) -> None:
        super().__init__()
        self.values = dict(original.values)
        self._ledgers = ledgers

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        records = list(super().read_many(paths))
        for path in {*paths} & {*self._ledgers}:
            self.values.pop(path, None)
        return records


def test_a_topic_deleted_during_a_run_is_not_lost(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    record = store.values.pop(topic.path)
    ids = [ledger.ledgerId for ledger in decode_managed_ledger(record.value).ledgerInfo]
    assert "topic-record-lost" in {finding.code for finding in check_findings(store)}
    deleted = check_findings(DeletingStore(store, [*map(ledger_path, ids)]))
    assert "topic-record-lost" not in {finding.code for finding in deleted}
    kept = check_findings(DeletingStore(store, []))
    assert "topic-record-lost" in {finding.code for finding in kept}


def _without_first(value: bytes) -> bytes:
    info = decode_managed_ledger(value)
    del info.ledgerInfo[0]
    return info.SerializeToString()


def test_missing_entries_are_found_only_if_all_disks_are_given(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    store = healthy_store(folder)
    all_urls, one_url = f"bookie-disk:{folder}", f"bookie-disk:{folder}/bookie0"
    with open_entries([all_urls]) as all_disks, open_entries([one_url]) as one_disk:
        # One disk of three has two thirds of the entries. The others are elsewhere, not missing.
        assert new_findings(check_findings(store, one_disk), check_findings(store)) == []
        path = ledger_path(24)
        before = check_findings(store, all_disks)
        # Another ledger has this metadata, so no disk has its entries.
        topic = TopicName.parse(PLAIN)
        record = store.values[topic.path]
        store.values[ledger_path(777)] = store.values.pop(path)._replace(path=ledger_path(777))
        store.values[topic.path] = record._replace(value=_renamed(record.value, 24, 777))
        [finding] = new_findings(check_findings(store, all_disks), before)
    assert (finding.code, finding.ledger_id, finding.severity) == (
        "ledger-without-entries",
        777,
        Severity.ERROR,
    )
    assert finding.evidence.items() >= {"expected": 50, "found": 0, "last_entry": 49}.items()
    assert [piece["source"] for piece in finding.evidence["for"]] == ["disks"]


_OF_ENTRIES = {"ledger-end-differs", "ledger-without-entries"}


def test_a_truncated_entry_log_is_found_although_its_index_is_complete(
    capture: Capture, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    shutil.copytree(capture("pulsar-4.2.4"), folder)
    store, urls = healthy_store(folder), [f"bookie-disk:{folder}/bookie0"]
    with open_entries(urls) as source:
        before = check_findings(store, source)
    log = max(folder.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    os.truncate(log, log.stat().st_size // 2)
    with open_entries(urls) as source:
        [damaged] = new_findings(check_findings(store, source), before)
        options = CheckOptions(min_age=0, consequences=True)
        listed = new_findings(list(checkup(store, source, (), options).findings()), before)
        findings = [finding for finding in listed if finding.code in _OF_ENTRIES]
        # The findings count exactly the entries that can't be read.
        for finding in findings:
            ids = range(finding.evidence["last_entry"] + 1)
            readable = [entry_id for entry_id in ids if has_entry(source, finding.ledger_id or 0, entry_id)]
            assert (finding.evidence["expected"], finding.evidence["found"]) == (len(ids), len(readable))
            first = finding.evidence.get("first_missing", 0)
            assert readable == list(range(first)), finding
    assert (damaged.code, damaged.path) == ("entry-log-damaged", str(log))
    assert {finding.code for finding in findings} == _OF_ENTRIES
    log.unlink()
    with open_entries(urls) as source:
        [gone] = new_findings(check_findings(store, source), before)
        consequences = list(checkup(store, source, (), CheckOptions(min_age=0, consequences=True)).findings())
    assert (gone.code, gone.path) == ("entry-log-missing", str(log))
    explained = {
        consequence.ledger_id for consequence in consequences if consequence.code == "ledger-without-entries"
    }
    assert {finding.ledger_id for finding in findings} <= explained
    assert gone.evidence["ledgers"] >= len(explained)


def _renamed(value: bytes, old: int, new: int) -> bytes:
    info = decode_managed_ledger(value)
    for ledger in info.ledgerInfo:
        if ledger.ledgerId == old:
            ledger.ledgerId = new
    info.ledgerInfo.sort(key=lambda ledger: ledger.ledgerId)
    return info.SerializeToString()


def registered(store: MemoryStore, *bookies: str) -> None:
    for bookie in bookies:
        store.values[f"/ledgers/available/{bookie}"] = Versioned(f"/ledgers/available/{bookie}", b"", 0)


def test_stopped_bookies_are_unreachable_not_missing(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    ids = sorted(path.rpartition("/")[2] for path in store.values if path.startswith("/ledgers/cookies/"))
    [stopped] = [finding for finding in check_findings(store) if finding.code == "bookie-unreachable"]
    assert (stopped.severity, stopped.evidence["bookies"]) == (Severity.NOTE, ids)
    registered(store, *ids[:2])
    # Each entry has two copies, so one bookie may be down.
    [down] = [finding for finding in check_findings(store) if finding.code == "bookie-unreachable"]
    assert (down.severity, down.evidence["bookie"]) == (Severity.WARNING, ids[2])
    store.values.pop(f"/ledgers/available/{ids[1]}")
    assert {
        finding.severity for finding in check_findings(store) if finding.code == "bookie-unreachable"
    } == {Severity.ERROR}
    registered(store, *ids)
    assert [finding for finding in check_findings(store) if finding.code.startswith("bookie")] == []


def test_a_generator_below_the_highest_ledger_is_reported(capture: Capture) -> None:
    class StoreWithGenerator(MemoryStore):
        following = 0

        def next_sequence(self, parent: str) -> int | None:
            return self.following

    store = StoreWithGenerator()
    store.values = healthy_store(capture("pulsar-4.2.4")).values
    highest = max(index_ledgers(store.scan(LEDGERS)).ids)
    store.following = int(highest) + 1
    assert "ledger-id-ahead" not in {finding.code for finding in check_findings(store)}
    store.following = int(highest)
    [behind] = [finding for finding in check_findings(store) if finding.code == "ledger-id-ahead"]
    assert (behind.evidence["next"], behind.evidence["highest"]) == (highest, highest)
    assert not behind.undecided


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-5.0.0-M1"])
def test_the_generator_of_a_standalone_is_above_its_ledgers(capture: Capture, name: str) -> None:
    with open_store(f"rocksdb:{capture(name)}/rocksdb") as store:
        findings = list(checkup(store, None, (), CheckOptions()).findings())
        assert store.next_sequence("/ledgers/idgen") is not None
    assert {finding.code for finding in findings if finding.severity is not Severity.NOTE} <= {
        "record-unreadable"
    }


def test_orphans_are_reported_only_if_old_and_as_notes_in_a_snapshot(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.0.7"))
    young = checkup(store, None, (), CheckOptions())
    assert "orphan-ledger" not in {finding.code for finding in young.findings()}
    [why] = [why for what, why in young.not_checked.items() if what == "3 unreferenced ledgers"]
    assert why == "younger than --min-age, so a record may still refer to them"
    old = [finding for finding in check_findings(store) if finding.code == "orphan-ledger"]
    assert [(finding.ledger_id, finding.severity) for finding in old] == [
        (ledger_id, Severity.NOTE) for ledger_id in (9, 52, 206)
    ]
    live = check_findings(ChangingStore(store, lambda changing: None))
    assert {finding.severity for finding in live if finding.code == "orphan-ledger"} == {Severity.WARNING}


def test_ledgers_are_not_checked_if_the_store_has_none(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    store.values = {path: value for path, value in store.values.items() if not path.startswith("/ledgers")}
    run = checkup(store, None, (), CheckOptions())
    findings = list(run.findings())
    assert {finding.code for finding in findings if finding.severity is not Severity.NOTE} <= {
        "record-unreadable"
    }
    assert run.not_checked["ledgers"] == "this store has no metadata of ledgers"


def test_a_cookie_that_differs_from_the_disk_is_reported(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    urls = [f"bookie-disk:{folder}/bookie0"]

    def cookie_findings(store: MemoryStore) -> list[Finding]:
        with open_entries(urls) as source:
            run = checkup(store, source, (), CheckOptions(frozenset({"cookie-differs"})), urls=urls)
            return list(run.findings())

    store = healthy_store(folder)
    assert cookie_findings(store) == []
    [path] = [path for path in store.values if path.startswith("/ledgers/cookies/")]
    cookie = store.values[path]
    store.values[path] = cookie._replace(value=cookie.value.replace(b"instanceId: ", b'instanceId: "x" #'))
    findings = cookie_findings(store)
    assert {(finding.code, finding.path, finding.severity) for finding in findings} == {
        ("cookie-differs", path, Severity.ERROR)
    }
    assert all("instanceId" in finding.evidence["fields"] for finding in findings)
    store.values[f"{path}0"] = store.values.pop(path)._replace(path=f"{path}0")
    assert all(
        finding.message.endswith(", for which the store has no cookie") for finding in cookie_findings(store)
    )


def test_unfinished_offloads_and_missing_objects_are_reported(capture: Capture, tmp_path: Path) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    record, before = store.values[topic.path], check_findings(store)
    info = decode_managed_ledger(record.value)
    context = info.ledgerInfo[0].offloadContext
    context.uidMsb, context.uidLsb, context.timestamp = 1, 2, 1795240941033
    store.values[topic.path] = record._replace(value=info.SerializeToString())
    [begun] = new_findings(check_findings(store), before)
    assert (begun.code, begun.ledger_id, begun.severity) == ("offload-unfinished", 24, Severity.NOTE)
    assert begun.evidence["begun_at"] == 1795240941033
    # The offload is less than a day older than the newest time in the store.
    young = checkup(store, None, (), CheckOptions())
    assert "offload-unfinished" not in {finding.code for finding in young.findings()}
    assert young.not_checked["offloaded ledgers"] == "no --entries offload:"
    context.complete = context.bookkeeperDeleted = True
    store.values[topic.path] = record._replace(value=info.SerializeToString())
    store.values.pop(ledger_path(24))
    assert new_findings(check_findings(store), before) == []
    (tmp_path / "frames").write_bytes(b"")
    with open_entries([f"frames:{tmp_path}/frames"]) as source:
        run = checkup(store, source, (), CheckOptions(), urls=["offload:somewhere"])
        [gone] = [finding for finding in run.findings() if finding.code.startswith("offload")]
    assert (gone.code, gone.ledger_id, gone.severity) == ("offload-object-missing", 24, Severity.ERROR)


def test_idle_subscriptions_are_reported(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    run = checkup(store, None, ("plain-old", "empty", "compacted"), CheckOptions(idle=1000))
    idle = [finding for finding in run.findings() if finding.code == "cursor-idle"]
    # One of the others retains nothing, and one is the compaction cursor.
    assert [(finding.topic, finding.cursor, finding.evidence["bytes"]) for finding in idle] == [
        ("persistent://public/default/plain-old", "s1", 26483)
    ]
    assert "cursor-idle" not in {finding.code for finding in check_findings(store)}


def test_unreachable_bookies_do_not_hide_findings_about_the_store(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = healthy_store(folder)
    store.values.pop(ledger_path(25))
    with open_entry_sources(["bookie:"], store) as source:
        run = checkup(store, source, ("plain", "strings"), CheckOptions(), urls=["bookie:"])
        findings = [(finding.code, finding.ledger_id) for finding in run.findings()]
    assert findings == [("ledger-without-metadata", 25)]
    assert run.unreachable is not None
    assert "entries of 2 topics and cursors" in run.not_checked


def test_tiered_storage_alone_is_no_evidence_about_bookies(capture: Capture, tmp_path: Path) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    (tmp_path / "frames").write_bytes(b"")
    with open_entries([f"frames:{tmp_path}/frames"]) as bookies:
        tiered = EntryDamage().apply_to(JoinedEntries([]))
        both = EntryDamage().apply_to(bookies)
        for source, why in (
            (None, "no --entries"),
            (tiered, "no --entries of bookies"),
            (both, None),
            (bookies, None),
        ):
            run = checkup(store, source, ("plain",), CheckOptions(), urls=[TIERED])
            list(run.findings())
            assert run.not_checked.get("entries") == why
