from __future__ import annotations

import pytest

from pulsar_meta.stores import registry
from pulsar_meta.stores.base import Store
from tests.contracts.store import Opener, ServerContract, StoreContract
from tests.servers.zookeeper import ZookeeperServer


class ZookeeperFixtures:
    @pytest.fixture
    def server(self, zookeeper_server: ZookeeperServer) -> ZookeeperServer:
        return zookeeper_server

    @pytest.fixture
    def open_store(self, server: ZookeeperServer) -> Opener:
        def opened(*, read_only: bool = False) -> Store:
            return registry.open_store(f"zk://{server.address}?timeout=1", read_only=read_only)

        return opened


class TestZookeeperStore(ZookeeperFixtures, StoreContract):
    real_parents = True
    keeps_parents = True


class TestZookeeperServer(ZookeeperFixtures, ServerContract):
    pass
