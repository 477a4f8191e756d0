from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import GuardError
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from tests.contracts.store import Opener, StoreContract
from tests.stores.conftest import writable_copy


class TestRocksdbStore(StoreContract):
    counts = True

    @pytest.fixture
    def database(self, tmp_path: Path, capture: Callable[[str], Path]) -> Path:
        return writable_copy(capture("pulsar-4.2.4") / "rocksdb", tmp_path / "metadata")

    @pytest.fixture
    def open_store(self, database: Path) -> Opener:
        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            return registry.open_store(f"rocksdb:{database}", read_only=read_only)

        return opened

    def test_only_one_of_two_clients_wins(self, open_store: Opener, store: Store, root: str) -> None:
        """A database has a single writer, so the second client is refused."""
        with pytest.raises(GuardError, match="already has the database open for writing"):
            open_store()
        store.put(f"{root}/a", b"mine", ABSENT)
        assert store.read(f"{root}/a").value == b"mine"
