"""`check` finds the same on a real server as in a copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.check import recheck
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store
from tests.servers.zookeeper import ZookeeperServer


def test_check_works_on_a_zookeeper(
    capture: Callable[[str], Path], zookeeper_server: ZookeeperServer, root: str
) -> None:
    values = healthy_store(capture("pulsar-2.8.2")).values
    url = f"zk://{zookeeper_server.address}{root}"
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as server:
        server.put(root, b"", ABSENT)
    with open_store(url, read_only=False) as store:
        for path in sorted(values):
            if path != "/" and path not in ("/ledgers/idgen",):
                store.put(path, values[path].value, ABSENT)
        first = list(checkup(store, None, (), CheckOptions()).findings())
        assert [finding for finding in first if finding.severity is Severity.ERROR] == []
        path = ledger_path(11)
        store.delete(path, store.read(path).version)
        [missing] = [
            finding for finding in checkup(store, None, (), CheckOptions()).findings() if finding not in first
        ]
    assert (missing.code, missing.ledger_id) == ("ledger-without-metadata", 11)
    assert missing.topic == "persistent://public/default/plain"


class DeletingStore(MemoryStore):
    """A live store in which a broker removes a topic's record, some reads after its ledgers."""

    networked = True

    def __init__(self, healthy: MemoryStore, record: str, reads: int) -> None:
        super().__init__()
        self.values = dict(healthy.values)
        self._record, self._reads = record, reads

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        if self._record in paths:
            self._reads -= 1
            if not self._reads:
                for path in [path for path in self.values if path.startswith(self._record)]:
                    del self.values[path]
        return super().read_many(paths)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(recheck, "sleep", pauses.append)
    return pauses


@pytest.mark.parametrize("reads", [2, 4, 5, 6])
def test_a_topic_that_is_being_deleted_is_not_reported(
    capture: Callable[[str], Path], pauses: list[float], reads: int
) -> None:
    store = healthy_store(capture("pulsar-4.0.7"))
    topic = TopicName.parse("public/default/plain")
    for ledger in read_topic(store, topic).ledgers:
        del store.values[ledger_path(ledger.ledger_id)]
    findings = checkup(
        DeletingStore(store, topic.path, reads), None, (str(topic),), CheckOptions()
    ).findings()
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []


@pytest.mark.parametrize("deleted", [True, False])
def test_the_schema_of_a_topic_that_is_being_deleted_is_not_missing(
    capture: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    folder, topic = capture("pulsar-4.2.4"), TopicName.parse("strings")
    store = DeletingStore(healthy_store(folder), topic.path, -1)
    ledgers = [ledger_path(ledger.ledger_id) for ledger in read_topic(store, topic).ledgers]
    del store.values[topic.schema_path]

    def delete(seconds: float) -> None:
        for path in (topic.path, *ledgers) if deleted else ():
            store.values.pop(path, None)

    monkeypatch.setattr(recheck, "sleep", delete)
    with open_entries([f"bookie-disk:{folder}"]) as source:
        urls = [f"bookie-disk:{folder}"]
        found = list(checkup(store, source, (str(topic),), CheckOptions(), urls=urls).findings())
    assert [finding.code for finding in found] == ([] if deleted else ["schema-version-missing"])


def test_a_lost_ledger_is_reported_after_several_looks(
    capture: Callable[[str], Path], pauses: list[float]
) -> None:
    store = healthy_store(capture("pulsar-4.0.7"))
    del store.values[ledger_path(25)]
    topic = TopicName.parse("public/default/plain")
    never = DeletingStore(store, topic.path, -1)
    findings = checkup(never, None, (str(topic),), CheckOptions()).findings()
    [lost] = [finding for finding in findings if finding.severity is Severity.ERROR]
    assert (lost.code, lost.ledger_id, len(pauses)) == ("ledger-without-metadata", 25, recheck.LIVE_LOOKS - 1)
    assert f"{recheck.LIVE_LOOKS} looks" in lost.message


@pytest.mark.parametrize("parent", ["/loadbalance/brokers", "/ledgers/available"])
def test_a_persistent_registration_in_zookeeper_is_reported(
    capture: Callable[[str], Path], zookeeper_server: ZookeeperServer, parent: str, root: str
) -> None:
    metadata = healthy_store(capture("pulsar-2.8.2")).values[ledger_path(11)].value
    client = KazooClient(zookeeper_server.address)
    client.start()
    try:
        client.create(f"{root}{parent}/in-session:1", b"{}", ephemeral=True, makepath=True)
        client.create(f"{root}{parent}/for-ever:1", b"{}")
        client.create(f"{root}{ledger_path(11)}", metadata, makepath=True)
        with open_store(f"zk://{zookeeper_server.address}{root}") as store:
            findings = list(checkup(store, None, (), CheckOptions(min_age=0)).findings())
        paths = [each.path for each in findings if each.code == "registration-persistent"]
        assert paths == [f"{parent}/for-ever:1"]
    finally:
        client.stop()
        client.close()
