from __future__ import annotations

import pytest

from pulsar_meta.stores import registry
from pulsar_meta.stores.base import Store
from tests.contracts.store import Opener, ServerContract, StoreContract
from tests.servers.oxia import OxiaServer


class OxiaFixtures:
    @pytest.fixture
    def server(self, oxia_server: OxiaServer) -> OxiaServer:
        return oxia_server

    @pytest.fixture
    def open_store(self, server: OxiaServer) -> Opener:
        def opened(*, read_only: bool = False) -> Store:
            return registry.open_store(f"oxia://{server.address}?timeout=1", read_only=read_only)

        return opened


class TestOxiaStore(OxiaFixtures, StoreContract):
    real_parents = True
    keeps_parents = True


class TestOxiaServer(OxiaFixtures, ServerContract):
    pass
