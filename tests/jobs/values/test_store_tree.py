"""A tree read in parts has the same order as a sorted one, and its first rows are shown at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_meta.jobs.values.store_tree import walk
from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb_writer import create_database
from tests.servers.etcd import EtcdServer

PATHS = (
    "/managed-ledgers/a/b/persistent/t",
    "/managed-ledgers/a/b/persistent/t-1",
    "/managed-ledgers/a/b/persistent/t-1/sub",
    "/managed-ledgers/a/b/persistent/t/sub",
    "/managed-ledgers/a-b/c/persistent/x",
    "/managed-ledgers/a.b",
    "/managed-ledgers/\xe4/c",
    "/managed-ledgers/a",
    "/ledgers/00/0000/L0001",
    "/ledgers/00/0001/L0001",
    "/ledgers/LAYOUT",
    "/ledgers-more/00",
    "/topics/a/b/c",
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Create a database with values at the paths and return its URL."""
    place = tmp_path_factory.mktemp("tree") / "db"
    create_database(place, "rocksdb:")
    with open_store(f"rocksdb:{place}", read_only=False) as store:
        fill(store)
    return f"rocksdb:{place}"


def fill(store: Store) -> None:
    """Write a value at each path."""
    store.put_many([(path, path.encode(), ABSENT) for path in PATHS])


@pytest.mark.parametrize("top", ["/", "/managed-ledgers", "/managed-ledgers/a", "/ledgers/00/0000/L0001"])
def test_parts_have_the_order_of_the_whole_tree(database: str, top: str) -> None:
    """The paths have names that begin like others, and parents with and without values."""
    expected = MemoryStore()
    fill(expected)
    with open_store(database) as store:
        assert store.is_indexed
        assert list(walk(store, top)) == list(walk(expected, top))


def test_parts_of_etcd_have_the_order_of_the_whole_tree(etcd_server: EtcdServer, root: str) -> None:
    in_memory = MemoryStore()
    writes = [(f"{root}{path}", path.encode(), ABSENT) for path in PATHS]
    in_memory.put_many(writes)
    with open_store(f"etcd://{etcd_server.address}", read_only=False) as store:
        store.put_many(writes)
        expected = [{**node, "version": 0} for node in walk(in_memory, root)]
        assert [{**node, "version": 0} for node in walk(store, root)] == expected


def test_the_first_rows_wait_for_no_scan(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper levels are shown before any value below them is read."""
    with open_store(database) as store:
        scanned = []
        scan = type(store).scan

        def recording(self: Store, prefix: str = "/", *, after: str | None = None) -> Iterator[object]:
            scanned.append(prefix)
            return scan(self, prefix, after=after)

        monkeypatch.setattr(type(store), "scan", recording)
        nodes = walk(store, "/")
        assert (next(nodes)["path"], scanned) == ("/", [])
        list(nodes)
        assert "/" not in scanned
        assert "/managed-ledgers/a/b" in scanned
