"""What wounds of a store alone do not show: entries, bookies that run, generators, stores that change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.registry import open_entries
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


def new_in(found: list[Finding], before: list[Finding]) -> list[Finding]:
    known = set(map(as_expected, before))
    return [finding for finding in found if as_expected(finding) not in known]


class ChangingStore(MemoryStore):
    """A store on which something happens between the first look at a topic and the second."""

    networked = True

    def __init__(self, healthy: MemoryStore, happens: Callable[[MemoryStore], None]) -> None:
        super().__init__()
        self.values = dict(healthy.values)
        self._happens: Callable[[MemoryStore], None] | None = happens

    def children(self, path: str) -> list[str]:
        if self._happens is not None and path.startswith(MANAGED_LEDGERS):
            self._happens(self)
            self._happens = None
        return super().children(path)


def test_what_is_well_again_at_the_second_look_is_not_reported(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    path = ledger_path(25)
    kept = store.values.pop(path)

    def comes_back(changing: MemoryStore) -> None:
        changing.values[path] = kept

    assert [
        finding.ledger_id for finding in check_findings(store) if finding.code == "ledger-without-metadata"
    ] == [25]
    live = check_findings(ChangingStore(store, comes_back))
    assert "ledger-without-metadata" not in {one.code for one in live}


def test_a_topic_that_is_trimmed_meanwhile_is_well(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    before = store.values.pop(ledger_path(24))
    trimmed = store.values[topic.path]

    def trims(changing: MemoryStore) -> None:
        # The record went first, and the listing was made between the two.
        changing.values[topic.path] = trimmed._replace(value=_without_first(trimmed.value))

    found = check_findings(ChangingStore(store, trims))
    assert before is not None
    assert "ledger-without-metadata" not in {finding.code for finding in found}


class DeletingStore(MemoryStore):
    """A store from which a topic's ledgers go as soon as they were read one by one."""

    networked = True

    def __init__(self, healthy: MemoryStore, ledgers: Collection[str]) -> None:
        super().__init__()
        self.values = dict(healthy.values)
        self._ledgers = ledgers

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        found = list(super().read_many(paths))
        for path in {*paths} & {*self._ledgers}:
            self.values.pop(path, None)
        return found


def test_a_topic_that_is_deleted_meanwhile_is_not_lost(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    record = store.values.pop(topic.path)
    ids = [ledger.ledgerId for ledger in decode_managed_ledger(record.value).ledgerInfo]
    assert "topic-record-lost" in {finding.code for finding in check_findings(store)}
    deleted = check_findings(DeletingStore(store, [*map(ledger_path, ids)]))
    assert "topic-record-lost" not in {one.code for one in deleted}
    kept = check_findings(DeletingStore(store, []))
    assert "topic-record-lost" in {one.code for one in kept}


def _without_first(value: bytes) -> bytes:
    info = decode_managed_ledger(value)
    del info.ledgerInfo[0]
    return info.SerializeToString()


def test_entries_that_are_not_on_the_disks(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4-3bookies")
    store = healthy_store(folder)
    whole, one = f"bookie-disk:{folder}", f"bookie-disk:{folder}/bookie0"
    with open_entries([whole]) as all_disks, open_entries([one]) as one_disk:
        # One of three disks has two thirds of the entries: the others are not missing, they are elsewhere.
        assert new_in(check_findings(store, one_disk), check_findings(store)) == []
        path = ledger_path(24)
        before = check_findings(store, all_disks)
        # A ledger of another id has its metadata: no disk has entries of it.
        topic = TopicName.parse(PLAIN)
        record = store.values[topic.path]
        store.values[ledger_path(777)] = store.values.pop(path)._replace(path=ledger_path(777))
        store.values[topic.path] = record._replace(value=_renamed(record.value, 24, 777))
        [found] = new_in(check_findings(store, all_disks), before)
    assert (found.code, found.ledger_id, found.severity) == ("ledger-without-entries", 777, Severity.ERROR)
    assert found.evidence.items() >= {"expected": 50, "found": 0, "last_entry": 49}.items()
    assert [piece["source"] for piece in found.evidence["for"]] == ["disks"]


def test_an_entry_log_that_is_cut_though_its_index_is_whole(capture: Capture, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    shutil.copytree(capture("pulsar-4.2.4"), folder)
    store, urls = healthy_store(folder), [f"bookie-disk:{folder}/bookie0"]
    with open_entries(urls) as source:
        before = check_findings(store, source)
    log = max(folder.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    os.truncate(log, log.stat().st_size // 2)
    with open_entries(urls) as source:
        found = new_in(check_findings(store, source), before)
        # What can be read is what is not missing, to the entry.
        for finding in found:
            ids = range(finding.evidence["last_entry"] + 1)
            held = [entry_id for entry_id in ids if has_entry(source, finding.ledger_id or 0, entry_id)]
            assert (finding.evidence["expected"], finding.evidence["found"]) == (len(ids), len(held))
            first = finding.evidence.get("first_missing", 0)
            assert held == list(range(first)), finding
    assert {"ledger-end-differs", "ledger-without-entries"} <= {finding.code for finding in found}
    log.unlink()
    with open_entries(urls) as source:
        [gone] = new_in(check_findings(store, source), before)
        consequences = list(checkup(store, source, (), CheckOptions(min_age=0, consequences=True)).findings())
    assert (gone.code, gone.path) == ("entry-log-missing", str(log))
    explained = {
        consequence.ledger_id for consequence in consequences if consequence.code == "ledger-without-entries"
    }
    assert {finding.ledger_id for finding in found} <= explained
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


def test_bookies_that_are_down_are_not_missing(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4-3bookies"))
    ids = sorted(path.rpartition("/")[2] for path in store.values if path.startswith("/ledgers/cookies/"))
    [stopped] = [finding for finding in check_findings(store) if finding.code == "bookie-unreachable"]
    assert (stopped.severity, stopped.evidence["bookies"]) == (Severity.NOTE, ids)
    registered(store, *ids[:2])
    # Two copies of everything: one bookie may be down.
    [down] = [finding for finding in check_findings(store) if finding.code == "bookie-unreachable"]
    assert (down.severity, down.evidence["bookie"]) == (Severity.WARNING, ids[2])
    store.values.pop(f"/ledgers/available/{ids[1]}")
    assert {
        finding.severity for finding in check_findings(store) if finding.code == "bookie-unreachable"
    } == {Severity.ERROR}
    registered(store, *ids)
    assert [finding for finding in check_findings(store) if finding.code.startswith("bookie")] == []


def test_a_generator_that_was_set_back(capture: Capture) -> None:
    class Counting(MemoryStore):
        following = 0

        def next_sequence(self, parent: str) -> int | None:
            return self.following

    store = Counting()
    store.values = healthy_store(capture("pulsar-4.2.4")).values
    highest = max(index_ledgers(store.scan(LEDGERS)).ids)
    store.following = int(highest) + 1
    assert "ledger-id-ahead" not in {finding.code for finding in check_findings(store)}
    store.following = int(highest)
    [found] = [finding for finding in check_findings(store) if finding.code == "ledger-id-ahead"]
    assert (found.evidence["next"], found.evidence["highest"]) == (highest, highest)
    assert not found.undecided


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-5.0.0-M1"])
def test_the_generator_of_a_standalone_is_ahead_of_its_ledgers(capture: Capture, name: str) -> None:
    with open_store(f"rocksdb:{capture(name)}/rocksdb") as store:
        found = list(checkup(store, None, (), CheckOptions()).findings())
        assert store.next_sequence("/ledgers/idgen") is not None
    assert {one.code for one in found if one.severity is not Severity.NOTE} <= {"record-unreadable"}


def test_orphans_have_to_be_old_and_are_only_notes_in_a_snapshot(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.0.7"))
    young = checkup(store, None, (), CheckOptions())
    assert "orphan-ledger" not in {finding.code for finding in young.findings()}
    [why] = [why for what, why in young.not_checked.items() if what == "3 unreferenced ledgers"]
    assert why == "younger than --min-age, so a record may still refer to them"
    old = [finding for finding in check_findings(store) if finding.code == "orphan-ledger"]
    assert [(one.ledger_id, one.severity) for one in old] == [(one, Severity.NOTE) for one in (9, 52, 206)]
    live = check_findings(ChangingStore(store, lambda changing: None))
    assert {one.severity for one in live if one.code == "orphan-ledger"} == {Severity.WARNING}


def test_a_store_without_ledgers_is_not_checked_for_them(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    store.values = {path: value for path, value in store.values.items() if not path.startswith("/ledgers")}
    run = checkup(store, None, (), CheckOptions())
    found = list(run.findings())
    assert {one.code for one in found if one.severity is not Severity.NOTE} <= {"record-unreadable"}
    assert run.not_checked["ledgers"] == "this store has no metadata of ledgers"


def test_disks_whose_cookie_is_another_one(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    urls = [f"bookie-disk:{folder}/bookie0"]

    def found_in(store: MemoryStore) -> list[Finding]:
        with open_entries(urls) as source:
            run = checkup(store, source, (), CheckOptions(frozenset({"cookie-differs"})), urls=urls)
            return list(run.findings())

    store = healthy_store(folder)
    assert found_in(store) == []
    [path] = [path for path in store.values if path.startswith("/ledgers/cookies/")]
    cookie = store.values[path]
    store.values[path] = cookie._replace(value=cookie.value.replace(b"instanceId: ", b'instanceId: "x" #'))
    found = found_in(store)
    assert {(finding.code, finding.path, finding.severity) for finding in found} == {
        ("cookie-differs", path, Severity.ERROR)
    }
    assert all("instanceId" in finding.evidence["fields"] for finding in found)
    store.values[f"{path}0"] = store.values.pop(path)._replace(path=f"{path}0")
    assert all(one.message.endswith(", for which the store has no cookie") for one in found_in(store))


def test_offloads_that_did_not_end(capture: Capture, tmp_path: Path) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    topic = TopicName.parse(PLAIN)
    record, before = store.values[topic.path], check_findings(store)
    info = decode_managed_ledger(record.value)
    context = info.ledgerInfo[0].offloadContext
    context.uidMsb, context.uidLsb, context.timestamp = 1, 2, 1795240941033
    store.values[topic.path] = record._replace(value=info.SerializeToString())
    [begun] = new_in(check_findings(store), before)
    assert (begun.code, begun.ledger_id, begun.severity) == ("offload-unfinished", 24, Severity.NOTE)
    assert begun.evidence["begun_at"] == 1795240941033
    # Younger than a day, by the newest time in the store.
    young = checkup(store, None, (), CheckOptions())
    assert "offload-unfinished" not in {finding.code for finding in young.findings()}
    assert young.not_checked["offloaded ledgers"] == "no --entries offload:"
    context.complete = context.bookkeeperDeleted = True
    store.values[topic.path] = record._replace(value=info.SerializeToString())
    store.values.pop(ledger_path(24))
    assert new_in(check_findings(store), before) == []
    (tmp_path / "frames").write_bytes(b"")
    with open_entries([f"frames:{tmp_path}/frames"]) as source:
        run = checkup(store, source, (), CheckOptions(), urls=["offload:somewhere"])
        [gone] = [finding for finding in run.findings() if finding.code.startswith("offload")]
    assert (gone.code, gone.ledger_id, gone.severity) == ("offload-object-missing", 24, Severity.ERROR)


def test_subscriptions_that_nobody_uses(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    run = checkup(store, None, ("plain-old", "empty", "compacted"), CheckOptions(idle=1000))
    idle = [finding for finding in run.findings() if finding.code == "cursor-idle"]
    # One holds nothing, one is the compaction's own.
    assert [(one.topic, one.cursor, one.evidence["bytes"]) for one in idle] == [
        ("persistent://public/default/plain-old", "s1", 26483)
    ]
    assert "cursor-idle" not in {finding.code for finding in check_findings(store)}


def test_bookies_that_do_not_answer_hide_nothing_of_the_store(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = healthy_store(folder)
    store.values.pop(ledger_path(25))
    with open_entry_sources(["bookie:"], store) as source:
        run = checkup(store, source, ("plain", "strings"), CheckOptions(), urls=["bookie:"])
        found = [(finding.code, finding.ledger_id) for finding in run.findings()]
    assert found == [("ledger-without-metadata", 25)]
    assert run.unreachable is not None
    assert "entries of 2 topics and cursors" in run.not_checked


def test_tiered_storage_alone_says_nothing_of_what_bookies_have(capture: Capture, tmp_path: Path) -> None:
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
