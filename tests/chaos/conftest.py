"""Fixtures for crash runs."""

from __future__ import annotations

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos.sizes import Tell
from tests.servers.zookeeper import ZookeeperServer


@pytest.fixture
def server(zookeeper_server: ZookeeperServer, root: str) -> str:
    """The URL of an empty path on a real ZooKeeper."""
    with open_store(f"zk://{zookeeper_server.address}", read_only=False) as store:
        store.put(root, b"", ABSENT)
    return f"zk://{zookeeper_server.address}{root}?timeout=30"


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """A function that prints progress at once, in spite of pytest's capturing."""

    def print_now(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return print_now
