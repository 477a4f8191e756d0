"""What deletions leave behind, objects that nobody names, versions of schemas that there are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store

Capture = Callable[[str], Path]
PLAIN = TopicName.parse("public/default/plain")
UUIDS = ("6e9bfcb2-1f3a-4b8e-9d45-000000000001", "6e9bfcb2-1f3a-4b8e-9d45-000000000002")


@pytest.fixture
def store(capture: Capture) -> MemoryStore:
    return healthy_store(capture("pulsar-4.2.4"))


def of_code(code: str, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == code]


def test_a_namespace_whose_policies_are_gone(store: MemoryStore) -> None:
    assert of_code("leftover", check_findings(store)) == []
    del store.values["/admin/policies/public/zero"]
    [found] = of_code("leftover", check_findings(store))
    assert (found.path, found.severity) == ("/admin/policies/public/zero", Severity.NOTE)
    assert found.evidence["namespace"] == "public/zero"
    # Brokers make heartbeat topics in namespaces that nobody made.
    del store.values["/admin/policies/pulsar/system"]
    assert len(of_code("leftover", check_findings(store))) == 1
    # Policies may lie in a configuration store of their own.
    store.values = {path: one for path, one in store.values.items() if not path.startswith("/admin/policies")}
    assert of_code("leftover", check_findings(store)) == []


def test_a_topic_whose_deletion_was_cut_short(store: MemoryStore) -> None:
    for path in [path for path in store.values if path.startswith(f"{PLAIN.path}/")]:
        del store.values[path]
    ids = [ledger.ledgerId for ledger in decode_managed_ledger(store.values[PLAIN.path].value).ledgerInfo]
    for ledger_id in ids[:-1]:
        del store.values[ledger_path(ledger_id)]
    found = check_findings(store)
    assert {one.ledger_id for one in of_code("ledger-without-metadata", found)} == set(ids[:-1])
    store.values.pop(ledger_path(ids[-1]))
    found = check_findings(store)
    assert of_code("ledger-without-metadata", found) == []
    [left] = of_code("leftover", found)
    assert (left.topic, left.severity) == (str(PLAIN), Severity.WARNING)


def test_objects_that_nobody_names(store: MemoryStore, tmp_path: Path) -> None:
    for uuid in UUIDS:
        (tmp_path / f"{uuid}-ledger-24").write_bytes(b"")
        (tmp_path / f"{uuid}-ledger-24-index").write_bytes(b"")
    info = decode_managed_ledger(store.values[PLAIN.path].value)
    context = info.ledgerInfo[0].offloadContext
    context.uidMsb = int(UUIDS[0].replace("-", "")[:16], 16)
    context.uidLsb = int(UUIDS[0].replace("-", "")[16:], 16) - 2**64
    context.complete = context.bookkeeperDeleted = True
    record = store.values[PLAIN.path]
    store.values[PLAIN.path] = record._replace(value=info.SerializeToString())
    urls = [f"offload:{tmp_path}"]

    def found_in(*names: str) -> tuple[list[Finding], dict[str, str]]:
        with open_entries(urls) as source:
            run = checkup(store, source, names, CheckOptions(), urls=urls)
            return of_code("offload-object-orphan", list(run.findings())), run.not_checked

    [orphan], _ = found_in()
    assert (orphan.ledger_id, orphan.evidence, orphan.severity) == (24, {"uuid": UUIDS[1]}, Severity.WARNING)
    assert found_in("plain")[0] == []
    # A record that cannot be read may name any of them.
    store.values[PLAIN.path] = record._replace(value=b"\xff")
    orphans, not_checked = found_in()
    assert orphans == []
    assert "unreferenced objects in tiered storage" in not_checked


def test_versions_of_a_schema_that_there_are_not(capture: Capture, store: MemoryStore) -> None:
    folder, path = capture("pulsar-4.2.4"), "/schemas/public/default/strings"

    def found() -> list[Finding]:
        options = CheckOptions(frozenset({"schema-version-missing"}))
        with open_entries([f"bookie-disk:{folder}"]) as source:
            return list(checkup(store, source, ("strings", "plain"), options).findings())

    assert found() == []
    record = store.values[path]
    locator = parse_message(SchemaLocator, record.value)
    for entry in (locator.info, *locator.index):
        entry.version += 5
    # What comes before the first that the record lists lies in that one's ledger.
    store.values[path] = record._replace(value=locator.SerializeToString())
    assert found() == []
    del store.values[path]
    [lost] = found()
    assert (lost.topic, lost.severity) == ("persistent://public/default/strings", Severity.WARNING)
    assert (lost.evidence["version"], lost.evidence["known"]) == (0, [])
    # A store that has no schema at all: they lie elsewhere.
    store.values = {key: one for key, one in store.values.items() if not key.startswith("/schemas")}
    assert found() == []
