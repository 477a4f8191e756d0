from __future__ import annotations

import pytest

from pulsar_meta.stores.base import Store
from pulsar_meta.stores.memory import MemoryStore
from tests.contracts.store import Opener, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def root(self) -> str:
        return "/r"

    @pytest.fixture(params=[None, 1000])
    def open_store(self, request: pytest.FixtureRequest) -> Opener:
        values = MemoryStore().values

        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            store = MemoryStore(read_only=read_only, max_value_size=request.param)
            store.values = values
            return store

        return opened
