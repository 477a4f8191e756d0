"""One store of two: what every store does, on either side, and what only two can get wrong."""

from __future__ import annotations

import pytest

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.routed import RoutedStore, with_ledgers
from tests.contracts.store import Opener, StoreContract


class TestRoutedStore(StoreContract):
    @pytest.fixture(params=["/r", "/ledgers/r", "/ledgers", "/ledgersr"])
    def root(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def open_store(self) -> Opener:
        values = MemoryStore().values, MemoryStore().values

        def opened(*, read_only: bool = False, timeout: float = 20) -> Store:
            stores = [MemoryStore(read_only=read_only, max_value_size=1000) for _ in values]
            for store, held in zip(stores, values, strict=True):
                store.values = held
            return RoutedStore(*stores)

        return opened


@pytest.fixture
def both() -> RoutedStore:
    """`/a` and `/ledgers/1` in the first, where the latter is hidden; `/ledgers/2` and `/b` in the second."""
    main, ledgers = MemoryStore(), MemoryStore()
    for store, path in ((main, "/a"), (main, "/ledgers/1"), (ledgers, "/ledgers/2"), (ledgers, "/b")):
        store.put(path, path.encode(), ABSENT)
    return RoutedStore(main, ledgers)


def test_the_path_says_which_store_is_asked(both: RoutedStore) -> None:
    assert [held.path for held in both.scan()] == ["/a", "/ledgers/2"]
    assert [held.path for held in both.scan(after="/a")] == ["/ledgers/2"]
    assert not list(both.scan(after="/ledgers/2"))
    assert both.children_many(["/", "/ledgers", "/a"]) == [["a", "ledgers"], ["2"], []]
    for hidden in ("/ledgers/1", "/b"):
        with pytest.raises(NotFoundError):
            both.read(hidden)
    paths = ["/ledgers/2", "/a", "/b", "/ledgers/1"]
    found = both.read_many(paths)
    assert [held and held.path for held in found] == ["/ledgers/2", "/a", None, None]
    assert both.put_many([("/ledgers/3", b"", ABSENT), ("/a", b"", ABSENT), ("/c", b"", ABSENT)]) == [
        0,
        None,
        0,
    ]
    assert both.ledgers.children("/ledgers") == ["2", "3"]
    assert both.main.children("/") == ["a", "c", "ledgers"]


def test_a_root_without_ledgers(both: RoutedStore) -> None:
    """What the first store has there is not seen, so neither is its name."""
    assert RoutedStore(both.main, MemoryStore()).children("/") == ["a"]


def test_urls(tmp_path: object) -> None:
    url = with_ledgers("zk://u:secret@a:1/x?timeout=5", "etcd://v:hidden@b:2")
    assert redact(url) == "zk://***@a:1/x?timeout=5#ledgers=etcd://***@b:2"
    with pytest.raises(UsageError):
        with_ledgers(url, "etcd://c")
    with pytest.raises(UsageError, match="no store 'nothing:'"):
        registry.open_store(f"dir:{tmp_path}#ledgers=nothing:x")
    for missing in (f"dir:{tmp_path}#ledgers=dir:{tmp_path}/no", f"dir:{tmp_path}/no#ledgers=dir:{tmp_path}"):
        with pytest.raises(NotFoundError):
            registry.open_store(missing)
    with registry.open_store(f"dir:{tmp_path}#ledgers=dir:{tmp_path}", read_only=False) as store:
        # Each side is seen only where it is asked.
        store.put("/ledgers/1", b"", ABSENT)
        assert [held.path for held in store.scan()] == ["/ledgers/1"]
        with registry.open_store(store.url) as again:
            assert again.children("/") == ["ledgers"]
