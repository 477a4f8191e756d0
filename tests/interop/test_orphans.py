"""Orphans beside a real broker: none where topics come and go, one where it was killed at a bad moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from pulsar_meta.jobs.check.checkup import Checkup, checkup
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.check.orphans import YOUNG
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.stores.registry import open_store
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

BUSY = "tests.interop.busy"
TOPIC = "persistent://public/default/stays"
SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
}
RACE_SECONDS = 25.0


@pytest.fixture(params=["zookeeper", "rocksdb"])
def pulsar(request: pytest.FixtureRequest, version: str) -> Iterator[PulsarStandalone]:
    environment = {"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"} if request.param == "zookeeper" else {}
    with PulsarStandalone(version, settings=SETTINGS, environment=environment) as running:
        yield running


def checked(
    pulsar: PulsarStandalone, urls: Sequence[str] = (), *, min_age: int = 0
) -> tuple[list[Finding], Checkup]:
    with open_store(pulsar.store_url) as store:
        source = open_entry_sources(urls, store) if urls else None
        try:
            run = checkup(store, source, (), CheckOptions(min_age=min_age), urls=urls)
            return list(run.findings()), run
        finally:
            if source is not None:
                source.close()


def until(found: Callable[[], list[Finding]], seconds: float = 90) -> list[Finding]:
    """Return what is found, once that is nothing, or after so long."""
    end = time.monotonic() + seconds
    while (left := found()) and time.monotonic() < end:
        time.sleep(1)
    return left


def orphans(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.code == "orphan-ledger"]


def test_a_broker_at_work_and_one_that_was_killed(pulsar: PulsarStandalone) -> None:
    pulsar.call(f"{BUSY}:begin", pulsar.service_url)
    end, rounds = time.monotonic() + RACE_SECONDS, 0
    # Disks are read as of their opening, RocksDB too, and all goes on meanwhile.
    given: tuple[list[str], ...] = ([], [f"bookie-disk:{path}" for path in pulsar.bookie_dirs], ["bookie:"])
    while time.monotonic() < end or rounds < 4:
        found, run = checked(pulsar, given[rounds % 3])
        assert [finding for finding in found if finding.severity is Severity.ERROR] == [], given[rounds % 3]
        # A young ledger that nobody names yet is nobody's fault.
        assert orphans(checked(pulsar, min_age=3_600_000)[0]) == []
        rounds += 1
    done = pulsar.call(f"{BUSY}:end")
    assert done["trimmed"] > 0, done
    assert done["deleted"] > 0, done
    assert run.counts["topics"] > 0
    # What was trimmed and deleted goes in the background.
    assert until(lambda: orphans(checked(pulsar)[0])) == []

    lost = pulsar.call(f"{BUSY}:create_unnamed", TOPIC)
    pulsar.kill()
    pulsar.start()
    found, run = checked(pulsar)
    [orphan] = orphans(found)
    assert (orphan.ledger_id, orphan.evidence["owner"], orphan.evidence["role"]) == (lost, TOPIC, "data")
    assert orphan.severity is (Severity.WARNING if pulsar.uses_zookeeper else Severity.NOTE)
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []
    found, run = checked(pulsar, min_age=3_600_000)
    assert orphans(found) == []
    assert YOUNG in run.not_checked.values()
