"""Findings that need several sources of evidence, and root causes that explain many findings."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.memory import MemoryStore
from tests.damage_pairs.damages import schema_metadata_gone
from tests.damage_pairs.scenario import Scenario, Target, loaded_store

Capture = Callable[[str], Path]
PLAIN = "persistent://public/default/plain"


def run_check(
    store: MemoryStore,
    url: str | None = None,
    others: Sequence[MemoryStore] = (),
    *,
    consequences: bool = False,
) -> tuple[list[Finding], Checkup]:
    """Check a store with the disks at a URL; return the run and its findings, without notes."""
    options = CheckOptions(min_age=0, consequences=consequences)
    urls = [] if url is None else [url]
    with ExitStack() as stack:
        source = stack.enter_context(open_entries(urls)) if urls else None
        run = checkup(store, source, (), options, urls=urls, others=others)
        findings = [finding for finding in run.findings() if finding.severity is not Severity.NOTE]
    return [finding for finding in findings if finding.code != "record-unreadable"], run


def copied_disks(capture: Capture, name: str, into: Path) -> Path:
    for bookie in sorted(capture(name).glob("bookie*")):
        shutil.copytree(bookie, into / bookie.name)
    return into


def test_a_cluster_below_another_root_keeps_its_ledgers(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    path = TopicName.parse(PLAIN).path
    # The topic and its cursors move to the cluster below /west.
    for old in [value for value in store.values if value == path or value.startswith(f"{path}/")]:
        record = store.values.pop(old)
        store.values[f"/west{old}"] = record._replace(path=f"/west{old}")
    assert run_check(store)[0] == []
    record = store.values[f"/west{path}"]
    store.values[path] = record._replace(path=path)
    [shared] = [finding for finding in run_check(store)[0] if finding.code == "ledgers-in-two-clusters"]
    assert (shared.severity, shared.path, shared.evidence["ledgers"]) == (Severity.ERROR, "/west", 6)


def test_a_ledger_that_only_disks_have_is_found_between_its_neighbours(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)
    url = f"bookie-disk:{folder}"
    case = Scenario(folder, folder, store, Random(1))
    topic = next(topic for topic in case.topics() if topic.name == PLAIN)
    case.target = Target(topic, 26)
    case.unlist(topic, 26)
    case.remove(ledger_path(26))
    [lost] = [finding for finding in run_check(store, url)[0] if finding.ledger_id == 26]
    assert (lost.code, lost.severity, lost.topic) == ("ledger-lost", Severity.ERROR, PLAIN)
    assert (lost.evidence["before"], lost.evidence["after"], lost.evidence["entries"]) == (25, 27, 50)
    assert "next garbage collection" in lost.message
    # Without the disks, `check` can't decide and reports that it did not check the entries.
    assert "entries" in run_check(store)[1].not_checked


def test_one_missing_entry_log_is_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    store, url = loaded_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}"
    log = max(disks.glob("bookie0/current/*.log"), key=lambda path: path.stat().st_size)
    log.unlink()
    [missing] = run_check(store, url)[0]
    assert (missing.code, missing.severity, missing.path) == ("entry-log-missing", Severity.ERROR, str(log))
    assert missing.repair is None
    listed = run_check(store, url, consequences=True)[0]
    assert {"entry-log-missing", "ledger-without-entries"} <= {finding.code for finding in listed}
    assert missing.evidence["consequences"] >= sum(
        finding.code == "ledger-without-entries" for finding in listed
    )


def test_no_entry_is_missing_if_a_directory_is_not_given(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4", tmp_path)
    (disks / "bookie0").rename(disks / "bookkeeper")
    store, url = loaded_store(capture("pulsar-4.2.4")), f"bookie-disk:{disks}"
    version = disks / "bookkeeper" / "current" / "VERSION"
    version.write_text(version.read_text().replace('"1\\t', '"2\\t/elsewhere/l3\\t'))
    # Another ledger has this metadata, so its entries are not in this directory.
    topic = TopicName.parse(PLAIN).path
    store.values[ledger_path(777)] = store.values.pop(ledger_path(24))._replace(path=ledger_path(777))
    info = decode_managed_ledger(store.values[topic].value)
    info.ledgerInfo[0].ledgerId = 777
    store.values[topic] = store.values[topic]._replace(value=info.SerializeToString())
    findings, checkup = run_check(store, url)
    assert "ledger-without-entries" not in {finding.code for finding in findings}
    [missing] = [finding for finding in findings if finding.code == "bookie-directory-missing"]
    assert (missing.severity, missing.path) == (Severity.WARNING, "/elsewhere/l3")
    assert any("directory /elsewhere/l3 not given" in what for what in checkup.not_checked)


def test_a_lost_subtree_is_one_finding(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    gone = [path for path in store.values if path.startswith("/ledgers/00/0000/")]
    kept = gone.pop()
    record = store.values[kept]
    for path in (*gone, kept):
        del store.values[path]
    store.values[ledger_path(20_000_000)] = record._replace(path=ledger_path(20_000_000))
    findings, _ = run_check(store)
    [cause] = [finding for finding in findings if finding.code == "store-part-lost"]
    assert (cause.severity, cause.path) == (Severity.ERROR, "/ledgers/00/0000")
    assert cause.evidence["topics"] > 10
    # The first findings were reported before all ledgers were read.
    assert sum(finding.code == "ledger-without-metadata" for finding in findings) < 5


def test_a_schema_that_is_still_on_disk_is_repairable(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)

    schema_metadata_gone(Scenario(folder, folder, store, Random(2)))
    [lost] = [
        finding
        for finding in run_check(store, f"bookie-disk:{folder}")[0]
        if finding.code == "schema-ledger-missing"
    ]
    assert lost.severity is Severity.ERROR
    assert lost.repair == f"pulsar-meta repair ledger-metadata {lost.ledger_id}"
    [alone] = [finding for finding in run_check(store)[0] if finding.code == "schema-ledger-missing"]
    assert (alone.severity, alone.repair) == (Severity.ERROR, None)
    assert "--entries" in alone.message


def test_a_store_older_than_the_disks_is_reported(capture: Capture) -> None:
    class StoreWithGenerator(MemoryStore):
        def next_sequence(self, parent: str) -> int | None:
            return 300

    folder = capture("pulsar-4.2.4")
    store = StoreWithGenerator()
    store.values = loaded_store(folder).values
    for ledger_id in range(300, 400):
        store.values.pop(ledger_path(ledger_id), None)
    by_code = {finding.code: finding for finding in run_check(store, f"bookie-disk:{folder}")[0]}
    assert by_code["store-older-than-disks"].evidence["next"] == 300


def test_an_emptied_bookie_is_one_finding(capture: Capture, tmp_path: Path) -> None:
    disks = copied_disks(capture, "pulsar-4.2.4-3bookies", tmp_path)
    current = disks / "bookie1" / "current"
    for path in list(current.iterdir()):
        if path.name not in ("VERSION", "lastMark"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (current / "lastId").write_text("0")
    findings, _ = run_check(loaded_store(capture("pulsar-4.2.4-3bookies")), f"bookie-disk:{disks}")
    assert {finding.code for finding in findings} <= {"bookie-emptied", "ledger-below-ack-quorum"}
    assert [finding.path for finding in findings if finding.code == "bookie-emptied"]


def take_topics(store: MemoryStore, names: Sequence[str]) -> MemoryStore:
    """Move topics and their cursors to another store, whose cluster shares the BookKeeper."""
    other = MemoryStore()
    for name in names:
        path = TopicName.parse(name).path
        for each in [each for each in store.values if each == path or each.startswith(f"{path}/")]:
            other.values[each] = store.values.pop(each)
    return other


def test_topics_of_an_unknown_cluster_are_not_rebuilt(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    other = take_topics(store, ("codec-lz4", "codec-none", "marks", "fanout"))
    findings = run_check(store)[0]
    assert {finding.code for finding in findings} == {"topic-record-lost"}
    assert len(findings) == 4
    assert [finding.repair for finding in findings] == [None] * 4
    assert all("--other-store" in finding.message for finding in findings)
    assert all(finding.evidence["against"][0]["source"] == "other-cluster" for finding in findings)
    # The other cluster's store names all of these ledgers.
    assert run_check(store, others=[other])[0] == []


def test_many_topics_of_an_unknown_cluster_are_one_finding(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    names = ("codec-lz4", "codec-none", "codec-zlib", "marks", "fanout", "go-none")
    other = take_topics(store, names)
    [finding] = run_check(store)[0]
    assert (finding.code, finding.severity, finding.repair) == ("topics-without-trace", Severity.ERROR, None)
    assert (finding.evidence["topics"], finding.evidence["consequences"]) == (6, 6)
    assert "--other-store" in finding.message
    lost = [each for each in run_check(store, consequences=True)[0] if each.code == "topic-record-lost"]
    assert ({each.topic for each in lost}, {each.repair for each in lost}) == (
        {f"persistent://public/default/{name}" for name in names},
        {None},
    )
    assert run_check(store, others=[other])[0] == []


def test_records_of_topics_with_subscriptions_are_rebuilt(capture: Capture) -> None:
    store = loaded_store(capture("pulsar-4.2.4"))
    names = ("marks", "fanout", "delayed-buckets", "plain-old")
    for name in names:
        del store.values[TopicName.parse(name).path]
    commands = {finding.repair for finding in run_check(store)[0] if finding.code == "topic-record-lost"}
    assert commands == {
        f"pulsar-meta repair topic-record persistent://public/default/{name}" for name in names
    }


def test_a_list_is_not_rebuilt_from_ledgers_whose_messages_overlap(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = loaded_store(folder)
    path = TopicName.parse(PLAIN).path
    del store.values[path]
    # A ledger of another topic, created later than the topic's first ones, names this topic.
    decoded = decode_ledger_metadata(store.values[ledger_path(65)].value)
    for pair in decoded.metadata.customMetadata:
        if pair.key == "pulsar/managed-ledger":
            pair.value = path.removeprefix("/managed-ledgers/").encode()
    record = store.values[ledger_path(65)]
    store.values[ledger_path(65)] = record._replace(value=encode_ledger_metadata(decoded))
    marks = TopicName.parse("marks").path
    info = decode_managed_ledger(store.values[marks].value)
    kept = [ledger for ledger in info.ledgerInfo if ledger.ledgerId != 65]
    del info.ledgerInfo[:]
    info.ledgerInfo.extend(kept)
    store.values[marks] = store.values[marks]._replace(value=info.SerializeToString())
    [lost] = [each for each in run_check(store, f"bookie-disk:{folder}")[0] if each.topic == PLAIN]
    assert (lost.code, lost.repair) == ("topic-record-lost", None)
    [against] = lost.evidence["against"]
    assert (against["source"], against["says"][:36]) == ("disks", "ledger 65 does not come after 28: in")
