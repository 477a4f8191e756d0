from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import GuardError
from pulsar_meta.stores.base import ABSENT, Store
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


def test_nothing_is_written_if_one_write_of_a_group_cannot_be_sent() -> None:
    store = MemoryStore(max_value_size=1000)
    with pytest.raises(GuardError, match="/b: the value has 1001 bytes, the server accepts 1000"):
        store.put_many([("/a", b"x", ABSENT), ("/b", bytes(1001), ABSENT)])
    assert store.values == {}
