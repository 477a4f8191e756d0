"""Findings that more than one witness decides, and causes that explain many of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.memory import MemoryStore
from tests.damage_pairs.damages import schema_metadata_gone
from tests.damage_pairs.scenario import Scenario, Target, loaded_store

Capture = Callable[[str], Path]
PLAIN = "persistent://public/default/plain"


def run(
    store: MemoryStore,
    url: str | None = None,
    others: Sequence[MemoryStore] = (),
    *,
    consequences: bool = False,
) -> tuple[list[Finding], Checkup]:
    """Check a store with the disks at a URL; return the findings but for notes, and the run."""
    options = CheckOptions(min_age=0, consequences=consequences)
    urls = [] if url is None else [url]
    with ExitStack() as stack:
        source = stack.enter_context(open_entries(urls)) if urls else None
        made = checkup(store, source, (), options, urls=urls, others=others)
        found = [finding for finding in made.findings() if finding.severity is not Severity.NOTE]
    return [finding for finding in found if finding.code != "record-unreadable"], made


def copied_disks(capture: Capture, name: str, into: Path) -> Path:
    for bookie in sorted(capture(name).glob("bookie*")):
        shutil.copytree(bookie, into / bookie.name)
    return into


def test_a_cluster_below_another_root_keeps_its_ledgers(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    path = TopicName.parse(PLAIN).path
    # All of the topic moves to the cluster below /west, cursors included.
    for old in [value for value in store.values if value == path or value.startswith(f"{path}/")]:
        record = store.values.pop(old)
        store.values[f"/west{old}"] = record._replace(path=f"/west{old}")
    assert run(store)[0] == []
    record = store.values[f"/west{path}"]
    store.values[path] = record._replace(path=path)
    [found] = [one for one in run(store)[0] if one.code == "ledgers-in-two-clusters"]
    assert (found.severity, found.path, found.evidence["ledgers"]) == (Severity.ERROR, "/west", 6)


def test_a_ledger_that_only_disks_have_is_found_between_its_neighbours(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)
    url = f"bookie-disk:{folder}"
    case = Scenario(folder, folder, store, Random(1))
    topic = next(topic for topic in case.topics() if topic.name == PLAIN)
    case.target = Target(topic, 26)
    case.unlist(topic, 26)
    case.remove(ledger_path(26))
    [found] = [one for one in run(store, url)[0] if one.ledger_id == 26]
    assert (found.code, found.severity, found.topic) == ("ledger-lost", Severity.ERROR, PLAIN)
    assert (found.evidence["before"], found.evidence["after"], found.evidence["entries"]) == (25, 27, 50)
    assert "next garbage collection" in found.message
    # Without the disks nothing can be told, and that is said.
    assert "entries" in run(store)[1].not_checked


def test_one_missing_entry_log_is_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    store, url = loaded_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}"
    log = max(disks.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    log.unlink()
    [found] = run(store, url)[0]
    assert (found.code, found.severity, found.path) == ("entry-log-missing", Severity.ERROR, str(log))
    assert found.repair is None
    listed = run(store, url, consequences=True)[0]
    assert {"entry-log-missing", "ledger-without-entries"} <= {one.code for one in listed}
    assert found.evidence["consequences"] >= sum(one.code == "ledger-without-entries" for one in listed)


def test_a_directory_that_is_not_given_makes_no_entry_missing(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    (disks / "bookie0").rename(disks / "bookkeeper")
    store, url = loaded_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}"
    version = disks / "bookkeeper" / "current" / "VERSION"
    version.write_text(version.read_text().replace('"1\\t', '"2\\t/elsewhere/l3\\t'))
    # A ledger of another id has the metadata, so that its entries are not in this directory.
    topic = TopicName.parse(PLAIN).path
    store.values[ledger_path(777)] = store.values.pop(ledger_path(24))._replace(path=ledger_path(777))
    info = decode_managed_ledger(store.values[topic].value)
    info.ledgerInfo[0].ledgerId = 777
    store.values[topic] = store.values[topic]._replace(value=info.SerializeToString())
    found, made = run(store, url)
    assert "ledger-without-entries" not in {finding.code for finding in found}
    [missing] = [finding for finding in found if finding.code == "bookie-directory-missing"]
    assert (missing.severity, missing.path) == (Severity.WARNING, "/elsewhere/l3")
    assert any("directory /elsewhere/l3 not given" in what for what in made.not_checked)


def test_a_lost_subtree_is_one_finding(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    gone = [path for path in store.values if path.startswith("/ledgers/00/0000/")]
    kept = gone.pop()
    record = store.values[kept]
    for path in (*gone, kept):
        del store.values[path]
    store.values[ledger_path(20_000_000)] = record._replace(path=ledger_path(20_000_000))
    found, _ = run(store)
    [cause] = [finding for finding in found if finding.code == "store-part-lost"]
    assert (cause.severity, cause.path) == (Severity.ERROR, "/ledgers/00/0000")
    assert cause.evidence["topics"] > 10
    # The first answers came before all ledgers were read.
    assert sum(finding.code == "ledger-without-metadata" for finding in found) < 5


def test_a_schema_that_disks_still_have_is_not_given_up(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)

    schema_metadata_gone(Scenario(folder, folder, store, Random(2)))
    [found] = [one for one in run(store, f"bookie-disk:{folder}")[0] if one.code == "schema-ledger-missing"]
    assert found.severity is Severity.ERROR
    assert found.repair == f"pulsar-meta repair ledger-metadata {found.ledger_id}"
    [alone] = [one for one in run(store)[0] if one.code == "schema-ledger-missing"]
    assert (alone.severity, alone.repair) == (Severity.ERROR, None)
    assert "--entries" in alone.message


def test_a_store_that_is_older_than_the_disks_is_named(capture: Capture) -> None:
    class Counting(MemoryStore):
        def next_sequence(self, parent: str) -> int | None:
            return 300

    folder = capture("pulsar-4.2.4")
    store = Counting()
    store.values = loaded_store(folder).values
    for ledger_id in range(300, 400):
        store.values.pop(ledger_path(ledger_id), None)
    found = {one.code: one for one in run(store, f"bookie-disk:{folder}")[0]}
    assert found["store-older-than-disks"].evidence["next"] == 300


def test_an_emptied_bookie_is_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    current = disks / "bookie1" / "current"
    for path in list(current.iterdir()):
        if path.name not in ("VERSION", "lastMark"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (current / "lastId").write_text("0")
    found, _ = run(loaded_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    assert {finding.code for finding in found} <= {"bookie-emptied", "ledger-below-ack-quorum"}
    assert [finding.path for finding in found if finding.code == "bookie-emptied"]
