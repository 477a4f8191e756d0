"""Lookup properties (PIP-368) on two real brokers: registered, sent, heeded, followed, and in the store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import pairwise

import pulsar
import pytest

from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.interop.lookups import lookup, run, stated
from tests.servers.cluster import Cluster
from tests.servers.pulsar import PulsarStandalone
from tests.servers.versions import NEWEST

pytestmark = pytest.mark.interop

IN_STORE = (
    "org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateMetadataStoreTableViewImpl"
)
MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
RACKS = "tests.interop.rack_load_manager"


@pytest.fixture(scope="module")
def racks() -> Iterator[Cluster]:
    """Two brokers with a load manager that says what it is sent and heeds `rack`."""
    settings = {
        "loadManagerServiceUnitStateTableViewClassName": IN_STORE,
        "allowAutoTopicCreationType": "partitioned",
        "defaultNumPartitions": "2",
    }
    with Cluster(settings=settings, inside=f"{RACKS}:define") as cluster:
        yield cluster


def test_brokers_shows_what_they_registered(racks: Cluster) -> None:
    shown = {broker["broker"]: broker for broker in stated("brokers", "--store", racks.store_url)}
    assert set(shown) == set(racks.brokers[0].admin("GET", "brokers/test"))
    for broker in racks.brokers:
        one = shown[broker.name]
        assert (one["kind"], one["extensible"]) == ("BrokerLookupData", True)
        assert (one["service_url"], one["web_service_url"]) == (broker.service_url, broker.admin_url)
        assert one["broker_version"] == NEWEST
        # The stored key keeps the prefix.
        assert one["properties"] == {"lookup.rack": broker.rack}
        (settings,) = racks.directory.glob(f"broker{racks.brokers.index(broker)}.conf")
        assert stated("lookup-properties", str(settings))["properties"] == one["properties"]


def test_match_says_which_could_be_chosen_and_why(racks: Cluster) -> None:
    first, second = racks.brokers
    shown = stated("brokers", "--store", racks.store_url, "--match", "rack=A")
    matches = {broker["broker"]: broker["match"] for broker in shown}
    assert matches[first.name]["could_be_chosen"] is True
    assert matches[first.name]["keys"][0]["found_as"] == "lookup.rack"
    assert matches[second.name]["could_be_chosen"] is False
    assert matches[second.name]["why"] == "lookup.rack is B, not A"
    nobody = run("brokers", "--store", racks.store_url, "--match", "rack=A", "--match", "zone=1")
    assert nobody.returncode == 1
    assert "no zone" in nobody.stdout


def owners(store: Store) -> dict[tuple[int, int], str]:
    """Return the owners of public/default's bundles, by their range of hashes."""
    path = "/service_unit_state/public/default"
    found = {}
    for bundle in store.children(path):
        state = json.loads(store.read(f"{path}/{bundle}").value)
        if state["state"] == "Owned":
            low, high = (int(end, 16) for end in bundle.split("_"))
            found[low, high] = state["dstBroker"]
    return found


def owner_of(topic: str, bundles: dict[tuple[int, int], str]) -> str:
    place = zlib.crc32(topic.encode())
    return next(broker for (low, high), broker in bundles.items() if low <= place < high)


def test_properties_arrive_and_decide_and_the_store_agrees(racks: Cluster) -> None:
    first, second = racks.brokers
    topics = [f"heeded-{number}" for number in range(6)]
    for number, topic in enumerate(topics):
        asked, rack = racks.brokers[number % 2], "BA"[number // 3]
        found = lookup(asked.service_url, topic, "--property", f"rack={rack}", "--property", "zone=z 1")
        assert found["status"] == "found"
        arrived = racks.call(number % 2, f"{RACKS}:assigned")
        assert (found["topic"], {"rack": rack, "zone": "z 1"}) in arrived
        assert all(hop["knows_properties"] for hop in found["hops"])
    urls = {broker.name: broker.service_url for broker in racks.brokers}
    with open_store(racks.store_url) as store:
        bundles = owners(store)
    for topic in topics:
        answers = {lookup(broker.service_url, topic)["broker"] for broker in racks.brokers}
        assert answers == {urls[owner_of(f"persistent://public/default/{topic}", bundles)]}
    assert second.name in bundles.values()
    fresh = next(t for t in topics if owner_of(f"persistent://public/default/{t}", bundles) == second.name)
    assert lookup(first.service_url, fresh)["broker"] == second.service_url


def test_a_partitioned_topic_stands_for_its_partitions(racks: Cluster) -> None:
    broker = racks.brokers[0]
    broker.admin("PUT", "persistent/public/default/parts/partitions", 5)
    found = stated("lookup", "parts", "--service-url", broker.service_url)
    names = [f"persistent://public/default/parts-partition-{number}" for number in range(5)]
    assert [answer["topic"] for answer in found] == names
    with open_store(racks.store_url) as store:
        bundles = owners(store)
    urls = {broker.name: broker.service_url for broker in racks.brokers}
    assert [answer["broker"] for answer in found] == [urls[owner_of(name, bundles)] for name in names]
    assert lookup(broker.service_url, "parts-partition-1")["broker"] == found[1]["broker"]


def test_looking_up_creates_no_partitions(racks: Cluster) -> None:
    broker = racks.brokers[0]
    assert lookup(broker.service_url, "not-there")["topic"] == "persistent://public/default/not-there"
    listed = broker.admin("GET", "persistent/public/default/partitioned")
    assert not any("not-there" in name for name in listed)
    # The broker does create them for whoever asks without forbidding it.
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    assert len(client.get_topic_partitions("persistent://public/default/asked-for")) == 2
    client.close()
    listed = broker.admin("GET", "persistent/public/default/partitioned")
    assert "persistent://public/default/asked-for" in listed


def test_a_name_that_the_broker_refuses(racks: Cluster) -> None:
    url = racks.brokers[0].service_url
    done = run("lookup", "nowhere/at/all", "--service-url", url, "-o", "json")
    assert done.returncode in (3, 6)
    document, error = json.loads(done.stdout), json.loads(done.stderr)
    assert document["status"] == "failed"
    assert [hop["response"] for hop in document["hops"]] == ["failed"]
    assert error["source"] == url


def test_redirects_of_a_modular_load_manager_are_followed() -> None:
    with Cluster(settings={"loadManagerClassName": MODULAR}) as cluster:
        found = [
            lookup(cluster.brokers[number % 2].service_url, f"m-{number}", "--property", "rack=A")
            for number in range(8)
        ]
        redirected = [answer for answer in found if len(answer["hops"]) > 1]
        assert redirected
        for hop, following in (pair for one in redirected for pair in pairwise(one["hops"])):
            assert hop["response"] == "redirect"
            assert following["broker"] == hop["broker_service_url"]
            assert following["asked_authoritative"] is hop["authoritative"]
        names = {broker.service_url: broker for broker in cluster.brokers}
        with open_store(cluster.store_url) as store:
            for number, one in enumerate(found):
                assert _modular_owner(store, f"m-{number}") == one["broker"]
        assert {answer["broker"] for answer in found} <= set(names)
        shown = stated("brokers", "--store", cluster.store_url)
        assert {broker["kind"] for broker in shown} == {"LocalBrokerData"}
        assert not any(broker["extensible"] for broker in shown)
        matched = run("brokers", "--store", cluster.store_url, "--match", "rack=A")
        assert matched.returncode == 0
        assert "ignores properties" in matched.stdout


def _modular_owner(store: Store, topic: str) -> str:
    place, path = zlib.crc32(f"persistent://public/default/{topic}".encode()), "/namespace/public/default"
    for bundle in store.children(path):
        low, high = (int(end, 16) for end in bundle.split("_"))
        if low <= place < high:
            return str(json.loads(store.read(f"{path}/{bundle}").value)["nativeUrl"])
    raise AssertionError("no owner")


@pytest.mark.parametrize(
    ("version", "knows", "partitions"),
    [("2.8.2", False, False), ("3.0.7", False, True), ("4.0.7", True, True)],
)
def test_brokers_of_other_versions(version: str, knows: bool, partitions: bool) -> None:
    with PulsarStandalone(version) as standalone:
        found = lookup(standalone.service_url, "t", "--property", "rack=A")
        standalone.admin("PUT", "persistent/public/default/parts/partitions", 2)
        several = run("lookup", "parts", "--service-url", standalone.service_url, "-v", "-o", "ndjson")
    assert several.returncode == 0
    assert len(several.stdout.splitlines()) == (2 if partitions else 1)
    assert ("did not request the partitions" in several.stderr) is not partitions
    (hop,) = found["hops"]
    assert hop["knows_properties"] is knows
    assert hop["server_version"].endswith(version)
    assert any("ignored the properties" in note for note in found["notes"]) is not knows
