from __future__ import annotations

import pytest

from pulsar_meta.codecs.errors import GuardError, UnreachableError
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.zookeeper import ZookeeperStore
from pulsar_meta.stores.zookeeper_client import OPERATIONS, split_writes
from tests.servers.zookeeper import ZookeeperServer


@pytest.fixture
def store(zookeeper_server: ZookeeperServer, root: str):  # type: ignore[no-untyped-def]
    with ZookeeperStore(f"zk://{zookeeper_server.address}?timeout=5", read_only=False) as opened:
        opened.put(f"{root}/first", b"", ABSENT)
        yield opened


def test_groups_stay_within_the_limits() -> None:
    writes = [(f"/p{number}", bytes(100), 0) for number in range(300)]
    groups = list(split_writes(writes, 10_000, 20))
    assert [write for group in groups for write in group] == writes
    assert all(len(group) <= OPERATIONS for group in groups)
    assert all(sum(20 + len(path) + len(value) for path, value, _ in group) < 10_000 for group in groups)
    assert (
        list(split_writes([("/big", bytes(20_000), 0)] * 2, 10_000, 0)) == [[("/big", bytes(20_000), 0)]] * 2
    )
    assert list(split_writes([], 10, 0)) == []


def test_a_group_skips_values_that_changed(store: ZookeeperStore, root: str) -> None:
    paths = [f"{root}/v{number:04}" for number in range(500)]
    created = store.put_many([(path, b"1", ABSENT) for path in paths])
    assert created == [0] * 500
    store.put(paths[70], b"another", 0)
    store.delete(paths[80], 0)
    done = store.put_many([(path, b"2", version or 0) for path, version in zip(paths, created, strict=True)])
    assert [number for number, version in enumerate(done) if version is None] == [70, 80]
    assert {version for version in done if version is not None} == {1}
    values = store.read_many(paths)
    assert values[80] is None
    remaining = [value for value in values if value is not None]
    assert {value.value for value in remaining if value.path != paths[70]} == {b"2"}
    assert store.read(paths[70]).value == b"another"
    assert store.put_many([(paths[1], b"x", ABSENT)]) == [None]
    assert store.read_many([]) == []
    assert store.put_many([]) == []


def test_values_that_fill_a_request_are_sent_alone(store: ZookeeperStore, root: str) -> None:
    big = bytes(700_000)
    paths = [f"{root}/big{number}" for number in range(3)]
    store.put_many([(path, b"", ABSENT) for path in paths])
    assert store.put_many([(path, big, 0) for path in paths]) == [1, 1, 1]
    with pytest.raises(GuardError):
        store.put_many([(paths[0], b"small", 1), (paths[1], bytes(2_000_000), 1)])
    assert store.read(paths[0]).value == big, "part of the group was sent"


def test_a_killed_server_is_unreachable(
    zookeeper_server: ZookeeperServer, store: ZookeeperStore, root: str
) -> None:
    paths = [f"{root}/v{number:04}" for number in range(200)]
    store.put_many([(path, b"1", ABSENT) for path in paths])
    zookeeper_server.kill()
    try:
        with pytest.raises(UnreachableError):
            store.put_many([(path, b"2", 0) for path in paths])
    finally:
        zookeeper_server.restart()
