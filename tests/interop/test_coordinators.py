"""Damaged metadata of transaction coordinators: what `check` finds, and which id a broker gives a client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.interop.changed_records import edit, edit_topic
from tests.servers.jvm import JavaFailed, Jvm
from tests.servers.pulsar import PulsarStandalone
from tests.servers.transactions import CLIENT, SETTINGS

pytestmark = pytest.mark.interop
LOG = TopicName.parse("pulsar/system/__transaction_log_0")
COORDINATORS = "/admin/partitioned-topics/pulsar/system/persistent/transaction_coordinator_assign"
CAPTURED = ("4.0.7", "4.2.4")
HIGHEST, PATIENCE = 25, 30
Damage = Callable[[Store], None]


def with_property(value: str) -> Damage:
    """Change the id after which the coordinator continues, since the last ledger of its log is empty."""

    def change(info: ManagedLedgerInfo) -> None:
        [pair] = info.properties
        assert (pair.key, pair.value) == ("max_local_txn_id", str(HIGHEST))
        pair.value = value

    return lambda store: edit_topic(store, str(LOG), change)


def with_no_partitions(store: Store) -> None:
    """Count no coordinators. If the record were missing, a standalone would write it."""
    edit(store, COORDINATORS, lambda value: b'{"partitions":0}')


def outcome(version: str, data: Path, damage: Damage) -> tuple[Finding, str]:
    """Return the finding on the damaged log, and the id that the broker then gives a client, or its error."""
    pulsar = PulsarStandalone(version, data=data, settings=SETTINGS)
    with closing(pulsar):
        with open_store(pulsar.store_url, read_only=False) as store:
            damage(store)
        disks = open_entries([f"bookie-disk:{pulsar.bookie_dirs[0]}"])
        with open_store(pulsar.store_url) as store, disks as source:
            run = checkup(store, source, [str(LOG)], CheckOptions(min_age=0))
            [found] = [finding for finding in run.findings() if finding.path == LOG.path]
        pulsar.start()
        with Jvm(version, heap="256m") as client:
            try:
                return found, client.call(f"{CLIENT}:next_id", pulsar.service_url, PATIENCE)
            except JavaFailed as error:
                return found, str(error)


@pytest.fixture
def data(version: str, capture: Callable[[str], Path]) -> Path:
    """A capture with transactions, made by this release."""
    if version not in CAPTURED:
        pytest.skip(f"no capture of {version} has transactions")
    return capture(f"transactions-{version}")


def test_ids_are_given_again(version: str, data: Path) -> None:
    found, given = outcome(version, data, with_property("10"))
    assert (found.code, found.evidence) == ("transaction-ids-behind", {"value": "10", "highest": HIGHEST})
    assert given == "0:11"


def test_without_a_number_the_coordinator_does_not_start(version: str, data: Path) -> None:
    found, given = outcome(version, data, with_property("x"))
    assert (found.code, found.evidence) == ("transaction-ids-behind", {"value": "x"})
    assert 'NumberFormatException: For input string: "x"' in given


def test_without_partitions_the_coordinator_does_not_start(version: str, data: Path) -> None:
    found, given = outcome(version, data, with_no_partitions)
    assert found.code == "transaction-coordinator-missing"
    assert "the transaction coordinator has not initialized" in given
