"""The servers themselves: new and captured standalones, bookies, and two brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.bookies import Bookies
from tests.servers.cluster import Cluster
from tests.servers.processes import port_answers
from tests.servers.pulsar import PulsarStandalone, release
from tests.servers.versions import NEWEST, VERSIONS

pytestmark = pytest.mark.interop

CAPTURED = {"3.0.7", "4.0.7", "4.2.4", "5.0.0-M1"}
ORDERS = "persistent/public/default/orders/internalStats"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_standalone_can_be_stopped_and_restarted(version: str) -> None:
    with PulsarStandalone(version) as pulsar:
        assert "public/default" in pulsar.admin("GET", "namespaces/public")
        pulsar.admin("PUT", "persistent/public/default/kept")
        pulsar.stop()
        assert not port_answers(pulsar.broker_port)
        pulsar.start()
        pulsar.kill()
        pulsar.start()
        assert "persistent://public/default/kept" in pulsar.admin("GET", "persistent/public/default")
        directory, process = pulsar.directory, pulsar.process
    assert process is not None
    assert not process.alive
    assert not directory.exists()


@pytest.mark.parametrize("version", [version for version in VERSIONS if version in CAPTURED])
def test_a_standalone_serves_the_data_of_a_capture(version: str, capture: Callable[[str], Path]) -> None:
    data = capture(f"pulsar-{version}")
    truth = json.loads((data / "truth.json").read_text())["persistent://public/default/orders"]
    with PulsarStandalone(version, data=data) as pulsar:
        stats = pulsar.admin("GET", ORDERS)
    assert stats["numberOfEntries"] == truth["internalStats"]["numberOfEntries"]
    assert stats["lastConfirmedEntry"] == truth["internalStats"]["lastConfirmedEntry"]


def test_the_objects_of_a_broker_can_be_reached() -> None:
    topic = "persistent://public/default/inside"
    with PulsarStandalone(NEWEST) as pulsar:
        pulsar.admin("PUT", "persistent/public/default/inside")
        path = "persistent/public/default/inside/internalStats"
        (ledger,) = pulsar.admin("GET", path)["ledgers"]
        pulsar.call("tests.servers.inside:add_ledger_property", topic, ledger["ledgerId"], "key", "wert €")
        (ledger,) = pulsar.admin("GET", path)["ledgers"]
        assert ledger["properties"] == {"key": "wert €"}


@pytest.mark.parametrize("version", VERSIONS)
def test_three_bookies_survive_the_death_of_one(version: str) -> None:
    with Bookies(3, version=version) as bookies:
        entries = [b"entry %d" % number for number in range(20)]
        options = {"ensemble": 3, "write": 2, "digest": "MAC"}
        ledger = bookies.call("tests.servers.ledgers:write", entries, options)
        bookies.kill(1)
        assert bookies.call("tests.servers.ledgers:read", ledger, "MAC") == entries
        bookies.start(1)
        assert all((directory / "current").is_dir() for directory in bookies.directories)


@pytest.mark.parametrize("version", [version for version in VERSIONS if release(version) >= (4, 0)])
def test_two_brokers_publish_their_racks(version: str) -> None:
    with Cluster(racks=("A", "B"), version=version) as cluster:
        assert sorted(cluster.brokers[0].admin("GET", "brokers/test")) == sorted(
            b.name for b in cluster.brokers
        )
        registered = cluster.store_values("/loadbalance/brokers")
        racks = {name: json.loads(value)["properties"] for name, value in registered.items()}
        assert racks == {broker.name: {"lookup.rack": broker.rack} for broker in cluster.brokers}
