"""Progress that is seen while a long test runs."""

from __future__ import annotations

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos.sizes import Tell
from tests.servers.zookeeper import ZookeeperServer


@pytest.fixture
def server(zookeeper_server: ZookeeperServer, root: str) -> str:
    """The URL of a real ZooKeeper that has nothing yet."""
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as store:
        store.put(root, b"", ABSENT)
    return f"zk://{zookeeper_server.address}{root}?timeout=30"


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Return a function that prints a line at once, past pytest's capturing."""

    def stated(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return stated
