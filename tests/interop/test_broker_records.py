"""The effects of records that brokers can't read, as the pages of the findings describe them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pulsar
import pytest

from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.registry import open_store
from tests.interop.changed_records import edit
from tests.interop.test_effects import add_namespace, load, send
from tests.servers.admin import AdminError
from tests.servers.jvm import JavaFailed
from tests.servers.pulsar import PulsarStandalone

pytestmark = pytest.mark.interop

BROKEN = b'{"nativeUrl": '
Damage = Callable[[Store], object]
Capture = Callable[[str], Path]


@contextmanager
def standalone_with(damage: Damage, version: str, capture: Capture) -> Iterator[PulsarStandalone]:
    """Damage the metadata of a standalone that is not running, which the caller starts."""
    running = PulsarStandalone(version, data=capture(f"pulsar-{version}"))
    with closing(running):
        with open_store(running.store_url, read_only=False) as store:
            damage(store)
        yield running


def damage_several(store: Store) -> None:
    add_namespace(store, "public/owned", ["0x00000000", "0xffffffff"])
    store.put("/namespace/public/owned/0x00000000_0xffffffff", BROKEN, ABSENT)
    edit(store, "/admin/configuration", lambda _: BROKEN)
    partitions = json.dumps({"partitions": 3}).encode()
    store.put("/admin/partitioned-topics/public/default/persistent/codec-lz4", partitions, ABSENT)


@pytest.fixture(scope="module")
def broker(version: str, capture: Capture) -> Iterator[PulsarStandalone]:
    with standalone_with(damage_several, version, capture) as running:
        running.start()
        yield running


def test_no_broker_starts_beside_a_leader_that_cannot_be_read(version: str, capture: Capture) -> None:
    damage: Damage = lambda store: store.put("/loadbalance/leader", BROKEN, ABSENT)  # noqa: E731
    with (
        standalone_with(damage, version, capture) as running,
        pytest.raises(JavaFailed, match=r"LeaderElectionImpl\.handleExistingLeaderValue"),
    ):
        running.start()


def test_one_registration_that_cannot_be_read_stops_all_lookups(version: str, capture: Capture) -> None:
    path = "/loadbalance/brokers/other:8080"
    damage: Damage = lambda store: store.put(path, BROKEN, ABSENT)  # noqa: E731
    with standalone_with(damage, version, capture) as running:
        running.start()
        assert f"Failed to deserialize payload for key '{path}'" in load(running, "fanout")


def test_an_owner_that_cannot_be_read_stops_lookups_of_its_bundle(broker: PulsarStandalone) -> None:
    with pytest.raises(pulsar.Timeout):
        send(broker, "public/owned/a")
    assert send(broker, "public/default/new")[1] == 0


def test_a_broker_starts_without_a_dynamic_configuration_that_it_cannot_read(
    broker: PulsarStandalone,
) -> None:
    assert load(broker, "fanout") == "LedgerOpened"
    with pytest.raises(AdminError, match="Failed to deserialize payload for key '/admin/configuration'"):
        broker.admin("GET", "brokers/configuration/values")


def test_a_topic_beside_partitions_of_its_name(version: str, broker: PulsarStandalone) -> None:
    refused = "Found partitioned metadata for non-partitioned topic"
    loaded = load(broker, "codec-lz4")
    assert loaded == "LedgerOpened" if version == "4.0.7" else refused in loaded
