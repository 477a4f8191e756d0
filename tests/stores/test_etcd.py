from __future__ import annotations

import pytest

from pulsar_meta.stores import registry
from pulsar_meta.stores.base import Store
from tests.contracts.store import Opener, ServerContract, StoreContract
from tests.servers.etcd import EtcdServer


class EtcdFixtures:
    @pytest.fixture
    def server(self, etcd_server: EtcdServer) -> EtcdServer:
        return etcd_server

    @pytest.fixture
    def open_store(self, server: EtcdServer) -> Opener:
        def opened(*, read_only: bool = False) -> Store:
            return registry.open_store(f"etcd://{server.address}?timeout=1", read_only=read_only)

        return opened


class TestEtcdStore(EtcdFixtures, StoreContract):
    pass


class TestEtcdServer(EtcdFixtures, ServerContract):
    pass
