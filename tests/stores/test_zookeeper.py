from __future__ import annotations

import pytest

from pulsar_meta.jobs.rewrite.batches import GroupStore
from pulsar_meta.stores import registry
from pulsar_meta.stores.base import ABSENT, Store
from tests.contracts.store import Opener, ServerContract, StoreContract, put_all
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

    def test_groups_are_sent_at_once(self, store: Store, root: str) -> None:
        assert isinstance(store, GroupStore)
        versions = put_all(store, [f"{root}/{at}" for at in range(600)])
        stale = f"{root}/5"
        store.put(stale, b"moved", versions[stale])
        writes = [(path, b"new", version) for path, version in versions.items()]
        done = store.put_many([*writes, (f"{root}/nowhere", b"x", 3), (f"{root}/made/now", b"x", ABSENT)])
        assert [path for path, version in zip(versions, done, strict=False) if version is None] == [stale]
        assert done[-2:] == [None, 0]
        read = store.read_many([*versions, f"{root}/nowhere"])
        assert read[-1] is None
        assert [held and held.value for held in read[:-1]] == [
            b"moved" if path == stale else b"new" for path in versions
        ]
        assert [held and held.version for held in read[:-1]] == [
            1 if version is None else version for version in done[: len(versions)]
        ]


class TestZookeeperServer(ZookeeperFixtures, ServerContract):
    pass
