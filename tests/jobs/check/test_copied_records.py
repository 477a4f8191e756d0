"""A record that was copied to a wrong path is one finding, which names the original."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.memory import MemoryStore
from tests.damage_pairs.scenario import loaded_store

Capture = Callable[[str], Path]
TOPICS = "/managed-ledgers/public/default/persistent"
SCHEMAS = "/schemas/public/default"


def new_findings(
    folder: Path, store: MemoryStore, *, disks: bool = True, consequences: bool = False
) -> list[Finding]:
    """Return the findings that an undamaged capture doesn't have."""
    options = CheckOptions(min_age=0, consequences=consequences)
    urls = [f"bookie-disk:{folder}"] if disks else []
    with ExitStack() as stack:
        source = stack.enter_context(open_entries(urls)) if disks else None
        before, after = (
            list(checkup(each, source, (), options, urls=urls).findings())
            for each in (loaded_store(folder), store)
        )
    known = {finding.place for finding in before}
    return [
        finding for finding in after if finding.place not in known and finding.code != "record-unreadable"
    ]


def copied(folder: Path, original: str, path: str) -> MemoryStore:
    store = loaded_store(folder)
    record = store.values[original]
    store.values[path] = record._replace(path=path)
    return store


@pytest.mark.parametrize("disks", [True, False])
@pytest.mark.parametrize(
    ("original", "path", "lost"),
    [
        ("plain", "plain-old", [10, 11, 12, 339]),
        # Its subscriptions are in the ledgers of the record that was overwritten.
        ("plain", "marks", list(range(64, 74))),
        ("empty", "plain", [24, 25, 26, 27, 28, 338]),
        ("plain", "never-written", []),
    ],
)
def test_a_copied_topic_record_is_one_finding(
    capture: Capture, original: str, path: str, lost: list[int], *, disks: bool
) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/{original}", f"{TOPICS}/{path}")
    [finding] = new_findings(folder, store, disks=disks)
    assert (finding.code, finding.severity) == ("record-copied", Severity.ERROR)
    assert (finding.topic, finding.path) == (f"persistent://public/default/{path}", f"{TOPICS}/{path}")
    assert finding.evidence["original"] == f"persistent://public/default/{original}"
    assert finding.evidence["own"] == lost
    assert (finding.repair, finding.evidence["against"]) == (None, [])
    assert {piece["source"] for piece in finding.evidence["for"]} >= {"list", "metadata"}


def test_a_record_under_a_wrong_name_is_one_finding(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/plain", f"{TOPICS}/wrong-name")
    del store.values[f"{TOPICS}/plain"]
    [finding] = new_findings(folder, store)
    assert (finding.code, finding.path) == ("record-copied", f"{TOPICS}/wrong-name")
    assert "persistent://public/default/plain has no record" in [
        piece["says"] for piece in finding.evidence["for"]
    ]


def test_records_that_were_exchanged_are_two_findings(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store, healthy = copied(folder, f"{TOPICS}/plain", f"{TOPICS}/plain-old"), loaded_store(folder)
    path = f"{TOPICS}/plain"
    store.values[path] = healthy.values[f"{TOPICS}/plain-old"]._replace(path=path)
    found = {finding.path: finding for finding in new_findings(folder, store)}
    assert {finding.code for finding in found.values()} == {"record-copied"}
    originals = {each: finding.evidence["original"] for each, finding in found.items()}
    assert originals == {
        path: "persistent://public/default/plain-old",
        f"{TOPICS}/plain-old": "persistent://public/default/plain",
    }


def test_a_copy_is_found_after_the_original_was_trimmed(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/plain", f"{TOPICS}/plain-old")
    path = f"{TOPICS}/plain"
    info = decode_managed_ledger(store.values[path].value)
    del info.ledgerInfo[0]
    store.values[path] = store.values[path]._replace(value=info.SerializeToString())
    [finding] = new_findings(folder, store)
    assert (finding.code, finding.topic) == ("record-copied", "persistent://public/default/plain-old")


@pytest.mark.parametrize(
    ("original", "path", "severity"),
    [
        ("fanout/fan-000", "marks/holes", Severity.ERROR),
        ("delayed-buckets/later", "marks/holes", Severity.ERROR),
        ("marks/holes", "delayed-buckets/later", Severity.WARNING),
        ("compacted/__compaction", "fanout/fan-000", Severity.WARNING),
    ],
)
def test_a_copied_cursor_is_one_finding(
    capture: Capture, original: str, path: str, severity: Severity
) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/{original}", f"{TOPICS}/{path}")
    [finding] = new_findings(folder, store)
    topic, cursor = original.split("/")
    assert (finding.code, finding.severity, finding.path) == ("record-copied", severity, f"{TOPICS}/{path}")
    assert finding.evidence["original"] == f"{cursor} of persistent://public/default/{topic}"
    assert finding.repair is not None
    assert finding.repair.endswith("--position LEDGER:ENTRY")


def test_a_copied_schema_is_one_finding(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{SCHEMAS}/__change_events", f"{SCHEMAS}/strings")
    [finding] = new_findings(folder, store)
    assert (finding.code, finding.path) == ("record-copied", f"{SCHEMAS}/strings")
    assert finding.evidence["original"] == "the schema of public/default/__change_events"
    # The ledger of the schema that was overwritten.
    assert (finding.evidence["own"], finding.repair) == ([42], None)


@pytest.mark.parametrize(
    ("original", "ledger_id", "is_repairable"),
    # A ledger of the same topic, one of another topic, and one of a schema.
    [(25, 26, True), (25, 65, True), (25, 42, False)],
)
def test_copied_ledger_metadata_is_one_finding(
    capture: Capture, original: int, ledger_id: int, *, is_repairable: bool
) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, ledger_path(original), ledger_path(ledger_id))
    [finding] = new_findings(folder, store)
    assert (finding.code, finding.ledger_id) == ("ledger-metadata-copied", ledger_id)
    assert (finding.severity, finding.evidence["twin"]) == (Severity.ERROR, original)
    command = f"pulsar-meta repair ledger-metadata {ledger_id} --again"
    assert finding.repair == (command if is_repairable else None)


def test_the_consequences_of_a_copy_are_listed_on_request(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/plain", f"{TOPICS}/marks")
    first, *others = new_findings(folder, store, consequences=True)
    assert first.code == "record-copied"
    assert len(others) == first.evidence["consequences"] > 80


def test_one_ledger_of_another_topic_is_no_copied_record(capture: Capture) -> None:
    folder = capture("pulsar-4.2.4")
    store = copied(folder, f"{TOPICS}/plain", f"{TOPICS}/plain")
    path = f"{TOPICS}/orders"
    record = store.values[path]
    # A record of protobuf: the entries of both lists follow each other.
    store.values[path] = record._replace(value=record.value + store.values[f"{TOPICS}/empty"].value)
    found = {(finding.code, finding.ledger_id) for finding in new_findings(folder, store)}
    assert ("ledger-in-two-topics", 315) in found
    assert "record-copied" not in {code for code, _ in found}
