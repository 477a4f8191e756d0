"""Remains of deletions, objects that no record refers to, and schema versions that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.sources import open_entries
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


def of_code(code: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


def test_a_namespace_without_policies_is_a_leftover(store: MemoryStore) -> None:
    assert of_code("leftover", check_findings(store)) == []
    del store.values["/admin/policies/public/zero"]
    [leftover] = of_code("leftover", check_findings(store))
    assert (leftover.path, leftover.severity) == ("/admin/policies/public/zero", Severity.ERROR)
    assert "it has 1 topics, which clients can't look up" in leftover.message
    assert leftover.evidence["namespace"] == "public/zero"
    for path in [path for path in store.values if path.startswith("/managed-ledgers/public/zero/")]:
        del store.values[path]
    [leftover] = of_code("leftover", check_findings(store))
    assert leftover.severity is Severity.NOTE
    # Brokers create heartbeat topics in namespaces without policies.
    del store.values["/admin/policies/pulsar/system"]
    assert len(of_code("leftover", check_findings(store))) == 1
    # The policies may be in a separate configuration store.
    store.values = {
        path: value for path, value in store.values.items() if not path.startswith("/admin/policies")
    }
    assert of_code("leftover", check_findings(store)) == []


def test_an_interrupted_deletion_of_a_topic_is_a_leftover(store: MemoryStore) -> None:
    for path in [path for path in store.values if path.startswith(f"{PLAIN.path}/")]:
        del store.values[path]
    ids = [ledger.ledgerId for ledger in decode_managed_ledger(store.values[PLAIN.path].value).ledgerInfo]
    for ledger_id in ids[:-1]:
        del store.values[ledger_path(ledger_id)]
    findings = check_findings(store)
    assert {finding.ledger_id for finding in of_code("ledger-without-metadata", findings)} == set(ids[:-1])
    store.values.pop(ledger_path(ids[-1]))
    findings = check_findings(store)
    assert of_code("ledger-without-metadata", findings) == []
    [left] = of_code("leftover", findings)
    assert (left.topic, left.severity) == (str(PLAIN), Severity.WARNING)


def test_objects_that_no_record_refers_to_are_reported(store: MemoryStore, tmp_path: Path) -> None:
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

    def object_findings(*names: str) -> tuple[list[Finding], dict[str, str]]:
        with open_entries(urls) as source:
            run = checkup(store, source, names, CheckOptions(), urls=urls)
            return of_code("offload-object-orphan", list(run.findings())), run.not_checked

    [orphan], _ = object_findings()
    assert (orphan.ledger_id, orphan.evidence, orphan.severity) == (24, {"uuid": UUIDS[1]}, Severity.WARNING)
    assert object_findings("plain")[0] == []
    # A record that can't be read may refer to any of the objects.
    store.values[PLAIN.path] = record._replace(value=b"\xff")
    orphans, not_checked = object_findings()
    assert orphans == []
    assert "unreferenced objects in tiered storage" in not_checked


def test_missing_schema_versions_are_reported(capture: Capture, store: MemoryStore) -> None:
    folder, path = capture("pulsar-4.2.4"), "/schemas/public/default/strings"

    def version_findings() -> list[Finding]:
        options = CheckOptions(frozenset({"schema-version-missing"}))
        with open_entries([f"bookie-disk:{folder}"]) as source:
            return list(checkup(store, source, ("strings", "plain"), options).findings())

    assert version_findings() == []
    record = store.values[path]
    locator = parse_message(SchemaLocator, record.value)
    for entry in (locator.info, *locator.index):
        entry.version += 5
    # Versions before the first one in the record are in the ledger of that one.
    store.values[path] = record._replace(value=locator.SerializeToString())
    assert version_findings() == []
    del store.values[path]
    [lost] = version_findings()
    assert (lost.topic, lost.severity) == ("persistent://public/default/strings", Severity.WARNING)
    assert (lost.evidence["version"], lost.evidence["known"]) == (0, [])
    # If the store has no schemas at all, they are kept elsewhere.
    store.values = {key: value for key, value in store.values.items() if not key.startswith("/schemas")}
    assert version_findings() == []
