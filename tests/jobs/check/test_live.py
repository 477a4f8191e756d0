"""The doctor on a real server: what it finds there is what it finds in a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Severity
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.damage import healthy_store
from tests.servers.zookeeper import ZookeeperServer


def test_a_zookeeper(capture: Callable[[str], Path], zookeeper_server: ZookeeperServer, root: str) -> None:
    values = healthy_store(capture("pulsar-2.8.2")).values
    url = f"zk://{zookeeper_server.address}{root}"
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as whole:
        whole.put(root, b"", ABSENT)
    with open_store(url, read_only=False) as store:
        for path in sorted(values):
            if path != "/" and path not in ("/ledgers/idgen",):
                store.put(path, values[path].value, ABSENT)
        first = list(checkup(store, None, (), CheckOptions()).findings())
        assert [one for one in first if one.severity is Severity.ERROR] == []
        path = ledger_path(11)
        store.delete(path, store.read(path).version)
        [found] = [
            finding for finding in checkup(store, None, (), CheckOptions()).findings() if finding not in first
        ]
    assert (found.code, found.ledger_id) == ("ledger-without-metadata", 11)
    assert found.topic == "persistent://public/default/plain"
