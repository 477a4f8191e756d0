"""One store made of two: both sides keep the contract of stores, and paths reach the right side."""

from __future__ import annotations

import pytest

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import RoutedStore, with_ledgers
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
            for store, shared in zip(stores, values, strict=True):
                store.values = shared
            return RoutedStore(*stores)

        return opened


@pytest.fixture
def routed() -> RoutedStore:
    """A main store with `/a` and hidden `/ledgers/1`; a ledger store with `/ledgers/2` and hidden `/b`."""
    main, ledgers = MemoryStore(), MemoryStore()
    for store, path in ((main, "/a"), (main, "/ledgers/1"), (ledgers, "/ledgers/2"), (ledgers, "/b")):
        store.put(path, path.encode(), ABSENT)
    return RoutedStore(main, ledgers)


def test_the_path_says_which_store_is_asked(routed: RoutedStore) -> None:
    assert [value.path for value in routed.scan()] == ["/a", "/ledgers/2"]
    assert [value.path for value in routed.scan(after="/a")] == ["/ledgers/2"]
    assert not list(routed.scan(after="/ledgers/2"))
    assert routed.children_many(["/", "/ledgers", "/a"]) == [["a", "ledgers"], ["2"], []]
    for hidden in ("/ledgers/1", "/b"):
        with pytest.raises(NotFoundError):
            routed.read(hidden)
    paths = ["/ledgers/2", "/a", "/b", "/ledgers/1"]
    values = routed.read_many(paths)
    assert [value and value.path for value in values] == ["/ledgers/2", "/a", None, None]
    assert routed.put_many([("/ledgers/3", b"", ABSENT), ("/a", b"", ABSENT), ("/c", b"", ABSENT)]) == [
        0,
        None,
        0,
    ]
    assert routed.ledgers.children("/ledgers") == ["2", "3"]
    assert routed.main.children("/") == ["a", "c", "ledgers"]


def test_the_main_stores_ledgers_are_hidden_from_the_root(routed: RoutedStore) -> None:
    assert RoutedStore(routed.main, MemoryStore()).children("/") == ["a"]


def test_urls_with_a_ledger_store(tmp_path: object) -> None:
    url = with_ledgers("zk://u:secret@a:1/x?timeout=5", "etcd://v:hidden@b:2")
    assert redact(url) == "zk://***@a:1/x?timeout=5#ledgers=etcd://***@b:2"
    with pytest.raises(UsageError):
        with_ledgers(url, "etcd://c")
    with pytest.raises(UsageError, match="unknown store 'nothing:x'"):
        registry.open_store(f"dir:{tmp_path}#ledgers=nothing:x")
    for missing in (f"dir:{tmp_path}#ledgers=dir:{tmp_path}/no", f"dir:{tmp_path}/no#ledgers=dir:{tmp_path}"):
        with pytest.raises(NotFoundError):
            registry.open_store(missing)
    with registry.open_store(f"dir:{tmp_path}#ledgers=dir:{tmp_path}", read_only=False) as store:
        # Each side shows only the paths that are routed to it.
        store.put("/ledgers/1", b"", ABSENT)
        assert [value.path for value in store.scan()] == ["/ledgers/1"]
        with registry.open_store(store.url) as again:
            assert again.children("/") == ["ledgers"]
