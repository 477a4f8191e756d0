"""The ledger id generator is only moved up, above every known id, on each store that has one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.repair.generator import repair_generator
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment, pulsar_meta_here
from tests.servers import etcd, oxia, zookeeper
from tests.stores.conftest import writable_copy


@pytest.fixture
def zk(zookeeper_server: zookeeper.ZookeeperServer) -> str:
    return f"zk://{zookeeper_server.address}"


@pytest.fixture
def etcd_url(etcd_server: etcd.EtcdServer) -> str:
    return f"etcd://{etcd_server.address}"


@pytest.fixture
def oxia_url(oxia_server: oxia.OxiaServer) -> str:
    return f"oxia://{oxia_server.address}"


@pytest.fixture
def rocksdb(capture: Callable[[str], Path], tmp_path: Path) -> str:
    return f"rocksdb:{writable_copy(capture('pulsar-4.2.4') / 'rocksdb', tmp_path / 'metadata')}"


SERVER_URLS = [pytest.param(name, marks=pytest.mark.server) for name in ("zk", "etcd_url", "oxia_url")]


@pytest.mark.parametrize("name", [*SERVER_URLS, "rocksdb"])
def test_the_next_id_is_above_all_known_ids(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url: str = request.getfixturevalue(name)
    env = environment(tmp_path / "state", PULSAR_META_STORE=url)
    with open_store(url, read_only=False) as store:
        highest = (store.next_sequence(IDGEN) or 0) + 40
        path = ledger_path(highest)
        version = store.put(path, b"", ABSENT)

    def run(*words: str) -> dict[str, int]:
        done = pulsar_meta_here("repair", "generator", *words, "-o", "json", env=env)
        assert done.returncode == 0, done.stderr
        counters: dict[str, int] = json.loads(done.stdout).get("counters", {})
        return counters

    def next_id() -> int:
        with open_store(url) as store:
            return store.next_sequence(IDGEN) or 0

    before = next_id()
    assert run("--dry-run") == {IDGEN: highest + 1}
    assert next_id() == before
    assert run("--yes")[IDGEN] > highest
    assert next_id() > highest
    assert run("--yes") == {}
    assert run("--yes", "--at-least", str(highest + 5))[IDGEN] >= highest + 5
    assert next_id() >= highest + 5
    with open_store(url, read_only=False) as store:
        store.delete(path, version)


def test_a_store_without_a_generator_is_refused() -> None:
    with pytest.raises(UsageError, match="has no counter of ledger ids"):
        repair_generator(MemoryStore(), None, lambda error: None)
