"""Transaction coordinators that would not start, or that would give out ids again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.coordinators import coordinator_of
from pulsar_meta.stores.memory import MemoryStore
from tests.damage import check_findings, healthy_store

Capture = Callable[[str], Path]
LOG = TopicName.parse("pulsar/system/__transaction_log_0")
COORDINATORS = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"


def findings(folder: Path, store: MemoryStore) -> list[Finding]:
    """Check the log with the disks of a capture."""
    with open_entries([f"bookie-disk:{folder}"]) as source:
        return check_findings(store, source, str(LOG))


def with_property(folder: Path, value: str | None) -> MemoryStore:
    """Return the capture's store with another property of the log; its ledgers have ids up to 25."""
    store = healthy_store(folder)
    info = decode_managed_ledger(store.values[LOG.path].value)
    assert [(pair.key, pair.value) for pair in info.properties] == [("max_local_txn_id", "25")]
    del info.properties[:]
    if value is not None:
        info.properties.add(key="max_local_txn_id", value=value)
    store.values[LOG.path] = store.values[LOG.path]._replace(value=info.SerializeToString())
    return store


@pytest.mark.parametrize("name", ["transactions-4.0.7", "transactions-4.2.4"])
@pytest.mark.parametrize("value", ["24", "-1", None])
def test_ids_below_those_in_the_log_are_an_error(capture: Capture, name: str, value: str | None) -> None:
    folder = capture(name)
    [finding] = findings(folder, with_property(folder, value))
    assert (finding.code, finding.severity) == ("transaction-ids-behind", Severity.ERROR)
    assert finding.evidence == {"value": value, "highest": 25}


@pytest.mark.parametrize("value", ["25", "4711"])
def test_ids_above_those_in_the_log_are_no_finding(capture: Capture, value: str) -> None:
    folder = capture("transactions-4.2.4")
    assert findings(folder, with_property(folder, value)) == []


def test_a_property_that_is_no_number_is_an_error_also_without_entries(capture: Capture) -> None:
    store = with_property(capture("transactions-4.2.4"), "x")
    [finding] = check_findings(store, None, str(LOG))
    assert (finding.code, finding.severity) == ("transaction-ids-behind", Severity.ERROR)


@pytest.mark.parametrize(("value", "partitions"), [(None, None), (b'{"partitions":0}', None)])
def test_a_log_without_a_coordinator_is_an_error(
    capture: Capture, value: bytes | None, partitions: int | None
) -> None:
    folder = capture("transactions-4.2.4")
    store = healthy_store(folder)
    if value is None:
        del store.values[COORDINATORS]
    else:
        store.values[COORDINATORS] = store.values[COORDINATORS]._replace(value=value)
    [finding] = findings(folder, store)
    assert (finding.code, finding.severity) == ("transaction-coordinator-missing", Severity.ERROR)
    assert finding.evidence == {"coordinator": 0, "partitions": partitions, "entries": 17}


def test_a_log_beyond_the_number_of_coordinators_is_an_error(capture: Capture) -> None:
    folder = capture("transactions-4.2.4")
    store = healthy_store(folder)
    path = LOG.path.replace("log_0", "log_7")
    store.values[path] = store.values[LOG.path]._replace(path=path)
    [finding] = [each for each in check_findings(store) if each.code == "transaction-coordinator-missing"]
    assert (finding.path, finding.evidence["coordinator"], finding.evidence["partitions"]) == (path, 7, 1)


@pytest.mark.parametrize(
    "name", ["pulsar/system/__transaction_log_x", "public/default/__transaction_log_0", "pulsar/system/other"]
)
def test_other_topics_have_no_coordinator(name: str) -> None:
    assert coordinator_of(TopicName.parse(name)) is None


def test_partitions_may_be_counted_in_a_separate_configuration_store(capture: Capture) -> None:
    store = healthy_store(capture("pulsar-4.2.4"))
    for path in [path for path in store.values if path.startswith("/admin/")]:
        if not path.startswith("/admin/local-policies/"):
            del store.values[path]
    run = checkup(store, None, (), CheckOptions())
    codes = {finding.code for finding in run.findings()}
    assert not codes & {"partition-without-parent", "transaction-coordinator-missing"}
    assert "separate configuration store" in run.not_checked["partitioned topics"]
