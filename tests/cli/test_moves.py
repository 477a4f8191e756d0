"""Stores moved from server to server and shown to be the same, in the steps of docs/migration.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.left_out import EPHEMERAL, why_left_out
from pulsar_meta.stores.registry import open_store
from tests.cli.values import Run
from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import RestartableServer, skip_or_fail
from tests.stores.conftest import writable_copy

SERVERS: dict[str, Callable[[Path], RestartableServer]] = {
    "zk": zookeeper.ZookeeperServer,
    "etcd": etcd.EtcdServer,
    "oxia": oxia.OxiaServer,
}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Empty servers of each kind, which no other test uses: whole stores are compared."""
    for why_not in (zookeeper.why_not, etcd.why_not, oxia.why_not):
        skip_or_fail(why_not())
    with ExitStack() as stack:
        running = {
            kind: stack.enter_context(server(tmp_path / f"{kind}-server")) for kind, server in SERVERS.items()
        }
        yield {kind: f"{kind}://{server.address}" for kind, server in running.items()}


def test_from_store_to_store(
    stores: dict[str, str], run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    """Each copy is taken from the one before; all have the same values byte for byte.

    ZooKeeper's sum is its own, since it alone has nodes where bookies register.
    """
    copy = writable_copy(capture("pulsar-4.2.4") / "rocksdb", tmp_path / "metadata")
    with open_store(f"rocksdb:{copy}", read_only=False) as store:
        # What stays out of the first copy would be in no other.
        for held in [held for held in store.scan() if why_left_out(held) not in (None, EPHEMERAL)]:
            store.delete(held.path, held.version)
    source, sums = f"rocksdb:{copy}", []

    def snapshot(name: str) -> Path:
        file = tmp_path / f"before-{name}.ndjson.zst"
        taken = run("snapshot", str(file), "--store", source, "-o", "json")
        assert taken.returncode == 0, taken.stderr
        sums.append(json.loads(taken.stdout)["sum_lasting"])
        return file

    for kind in ("zk", "oxia", "etcd"):
        file = snapshot(kind)
        words = ["restore", f"snapshot:{file}", "--store", stores[kind], "--yes", "--allow-unreadable"]
        ran = run(*words, "-o", "json")
        assert ran.returncode == 0, ran.stderr
        again = json.loads(run(*words, "-o", "json").stdout)
        assert (again["rewritten"], again.get("counters", {})) == (0, {})
        ignored = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]
        compared = run("diff", f"snapshot:{file}", stores[kind], *ignored)
        assert compared.returncode == 0, compared.stdout
        source = stores[kind]
    for left, right in (("zk", "oxia"), ("zk", "etcd")):
        compared = run("diff", stores[left], stores[right], "--ignore", "brokers", "--bytes")
        assert (compared.returncode, compared.stdout) == (0, b"")
    snapshot("nothing")
    # The first has no nodes of counters, the second those of bookies.
    assert len(set(sums[2:])) == 1


def test_back_into_rocksdb(run: Run, tmp_path: Path, capture: Callable[[str], Path]) -> None:
    """A value that was changed since is there as it was, and nothing else differs."""
    database = capture("pulsar-4.2.4") / "rocksdb"
    copy = writable_copy(database, tmp_path / "metadata")
    with open_store(f"rocksdb:{copy}", read_only=False) as store:
        policies = store.read("/admin/policies/public/default")
        store.put(policies.path, b"{}", policies.version)
        held = next(held for held in store.scan("/managed-ledgers") if held.value)
        store.delete(held.path, held.version)
    words = ["restore", f"rocksdb:{database}", "--store", f"rocksdb:{copy}", "--yes", "--allow-unreadable"]
    assert run(*words).returncode == 1
    assert run(*words, "--overwrite").returncode == 0
    assert run("diff", f"rocksdb:{database}", f"rocksdb:{copy}", "--bytes").returncode == 0
