"""Two clusters on one BookKeeper: no repair of one touches the other's ledgers, and both serve everything.

The second cluster has its metadata below `/west` in the same ZooKeeper, or in a ZooKeeper of its own. Both
have topics of the same names, and wrote to them in turns.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.stores.registry import open_store
from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.interop.changed_records import topic_record
from tests.interop.test_repairs_ledgers import metadata_gone, not_listed, record_gone
from tests.servers.cluster import Broker, Cluster

pytestmark = pytest.mark.interop

PARTS = range(15), range(15, 35)
SETTINGS = {
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "10",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
    "systemTopicEnabled": "false",
    "topicLevelPoliciesEnabled": "false",
}
HEALTHY, RECORD_GONE = "persistent://public/default/healthy", "persistent://public/default/record-gone"
TOPICS = {
    HEALTHY: None,
    "persistent://public/default/not-listed": not_listed,
    RECORD_GONE: record_gone,
    "persistent://public/default/metadata-gone": metadata_gone(1),
}


class Neighbour(Cluster):
    """A cluster with another one's bookies, below `root` of its ZooKeeper or in a ZooKeeper of its own."""

    def __init__(self, first: Cluster, version: str, root: str) -> None:
        super().__init__(racks=["A"], version=version, settings={**SETTINGS, "clusterName": "west"})
        self._first, self.root = first, root

    @property
    def store_url(self) -> str:
        return f"{self._first.store_url}{self.root}" if self.root else super().store_url

    @property
    def _store(self) -> str:
        return self.store_url.replace("zk://", "zk:")

    @property
    def metadata_service_uri(self) -> str:
        return self._first.metadata_service_uri

    def bring_up(self) -> None:
        if not self.root:
            self._bookies.zookeeper.start()
        self.start_brokers()


@dataclass
class Pair:
    """Two stopped clusters on one BookKeeper. `folder` is for undo files."""

    east: Cluster
    west: Neighbour
    folder: Path

    def sides(self) -> Iterator[tuple[str, Cluster, Cluster]]:
        """Yield the name of each cluster, the cluster and the other one."""
        yield "east", self.east, self.west
        yield "west", self.west, self.east

    def places(self, own: Cluster, other: Cluster | None = None) -> list[str]:
        """Return the options for a cluster's store and the bookie's disk; `other` is named, too."""
        words = ["--store", own.store_url, "--entries", f"bookie-disk:{self.east.bookie_dirs[0]}"]
        words += ["--ledger-store", self.east.store_url] if own is self.west else []
        return words if other is None else [*words, "--other-store", other.store_url]

    def run(self, *words: object, codes: Container[int] = (0,)) -> Any:
        """Run a command; return its document."""
        done = self.tried(*words, "-o", "json")
        assert done.returncode in codes, (words, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def tried(self, *words: object) -> Any:
        return as_text(pulsar_meta_here(*words, env=environment(self.folder)))

    def ledgers(self, cluster: Cluster, topic: str = HEALTHY) -> list[int]:
        with open_store(cluster.store_url) as store:
            return [ledger.ledgerId for ledger in topic_record(store, topic).ledgerInfo]

    def values_of_west(self) -> dict[str, bytes]:
        """Return the lists of the west's topics, and the metadata of its ledgers."""
        lists = [(self.west, TopicName.parse(topic).path) for topic in TOPICS]
        ids = [ledger for topic in TOPICS for ledger in self.ledgers(self.west, topic)]
        values = {}
        for cluster, path in (*lists, *((self.east, ledger_path(ledger)) for ledger in ids)):
            with open_store(cluster.store_url) as store:
                values[path] = store.read(path).value
        return values


@pytest.fixture(scope="module", params=["root", "store"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    version, root = {"root": ("4.2.4", "/west"), "store": ("4.0.7", "")}[request.param]
    with (
        Cluster(racks=["A"], version=version, settings={**SETTINGS, "clusterName": "east"}) as east,
        Neighbour(east, version, root) as west,
    ):
        pair = Pair(east, west, tmp_path_factory.mktemp("pair"))
        for part in PARTS:
            for name, cluster, _ in pair.sides():
                for topic in TOPICS:
                    send(cluster.brokers[0], topic, [text_of(name, topic, number) for number in part])
        for _, cluster, _ in pair.sides():
            cluster.stop(0)
        yield pair


def text_of(cluster: str, topic: str, number: int) -> str:
    return f"{cluster} {topic} {number}"


def send(broker: Broker, topic: str, texts: list[str]) -> None:
    client = client_of(broker)
    producer = client.create_producer(topic, batching_enabled=False)
    for text in texts:
        producer.send(text.encode())
    client.close()


def read(broker: Broker, topic: str, count: int) -> list[str]:
    import pulsar

    client = client_of(broker)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    texts = [reader.read_next(60_000).data().decode() for _ in range(count)]
    assert not reader.has_message_available()
    client.close()
    return texts


def client_of(broker: Broker) -> Any:
    import pulsar

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(broker.service_url, logger=logger, operation_timeout_seconds=60)


def test_the_other_clusters_ledgers_have_their_owner(pair: Pair) -> None:
    for _, own, other in pair.sides():
        assert pair.run("check", *pair.places(own, other), "--min-age", "0") == []
        rows = [row for row in pair.run("disk", *pair.places(own, other)) if row["role"] != "deleted"]
        assert {(row["role"], row["ledgers"], row["entries"]) for row in rows} == {
            ("data", 4, PARTS[-1].stop)
        }
        theirs = [row["name"].partition(" of ")[0] for row in rows if " of " in row["name"]]
        assert sorted(theirs) == sorted(TOPICS)
        ledger = pair.ledgers(other)[1]
        [found] = pair.run("whois", ledger, *pair.places(own, other))
        assert found["role"] == "data"
        # Once, although it is found below another root and was named.
        [kept] = found["kept_by"]
        assert kept.startswith(f"another cluster refers to it as data: {HEALTHY} of ")
        done = pair.tried("rm", "ledger", ledger, "--yes", *without_entries(pair.places(own, other)))
        assert (done.returncode, "belongs to another cluster" in done.stderr) == (2, True)


def test_ledgers_of_a_cluster_that_is_not_named_are_not_repaired(pair: Pair) -> None:
    findings = pair.run(
        "check", *pair.places(pair.east), "--min-age", "0", codes=[0 if pair.west.root else 1]
    )
    assert [finding for finding in findings if "repair" in finding] == []
    assert {finding["code"] for finding in findings} == (set() if pair.west.root else {"ledger-not-listed"})


def test_both_clusters_serve_everything_after_the_repairs(pair: Pair) -> None:
    theirs = pair.values_of_west()
    with open_store(pair.east.store_url, read_only=False) as store:
        for topic, damage in TOPICS.items():
            if damage is not None:
                damage(store, topic)
    for others in (None, pair.west):
        for view in (pair.places(pair.west, others and pair.east), pair.places(pair.east, others)):
            findings = pair.run("check", *view, "--min-age", "0", codes=(0, 1))
            for repair in sorted({finding["repair"] for finding in findings if "repair" in finding}):
                done = pair.tried(*shlex.split(repair)[1:], "--yes")
                assert done.returncode == 0, (repair, done.stderr)
        assert pair.values_of_west() == theirs
    # Its record is gone, so which of the ledgers are its own is known from the other cluster alone.
    [lost] = pair.run("check", *pair.places(pair.east, pair.west), "--min-age", "0")
    assert (lost["code"], lost["topic"], "repair" in lost) == ("topic-record-lost", RECORD_GONE, False)
    pair.run("repair", "topic-record", RECORD_GONE, "--yes", *pair.places(pair.east, pair.west))
    assert pair.values_of_west() == theirs
    for name, cluster, other in pair.sides():
        assert pair.run("check", *pair.places(cluster, other), "--min-age", "0") == []
        cluster.start(0)
        for topic in TOPICS:
            sent = [text_of(name, topic, number) for part in PARTS for number in part]
            assert read(cluster.brokers[0], topic, len(sent)) == sent
        cluster.stop(0)


def without_entries(words: list[str]) -> list[str]:
    at = words.index("--entries")
    return words[:at] + words[at + 2 :]
