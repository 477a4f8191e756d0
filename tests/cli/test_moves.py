"""Stores are moved from server to server with the steps of docs/migration.md, and stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.places import EPHEMERAL, why_left_out
from pulsar_meta.stores.registry import open_store
from tests.cli.values import Run
from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import RestartableServer, skip_or_fail
from tests.stores.conftest import writable_copy

pytestmark = pytest.mark.server

SERVERS: dict[str, Callable[[Path], RestartableServer]] = {
    "zk": zookeeper.ZookeeperServer,
    "etcd": etcd.EtcdServer,
    "oxia": oxia.OxiaServer,
}


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Empty servers of each kind for this test alone, because it compares complete stores."""
    for program, server in (("zookeeper", zookeeper), ("etcd", etcd), ("oxia", oxia)):
        skip_or_fail(program, server.why_not())
    with ExitStack() as stack:
        running = {
            kind: stack.enter_context(server(tmp_path / f"{kind}-server")) for kind, server in SERVERS.items()
        }
        yield {kind: f"{kind}://{server.address}" for kind, server in running.items()}


def test_copies_of_copies_have_the_same_values(
    stores: dict[str, str], run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    """Each copy is made from the previous one, and all have the same bytes.

    ZooKeeper's sum differs because only ZooKeeper has nodes where bookies register.
    """
    copy = writable_copy(capture("pulsar-4.2.4") / "rocksdb", tmp_path / "metadata")
    with open_store(f"rocksdb:{copy}", read_only=False) as store:
        # Values that the first copy leaves out would be missing in all copies.
        for value in [value for value in store.scan() if why_left_out(value) not in (None, EPHEMERAL)]:
            store.delete(value.path, value.version)
    source, sums = f"rocksdb:{copy}", []

    def snapshot(name: str) -> Path:
        file = tmp_path / f"before-{name}.ndjson.zst"
        made = run("snapshot", str(file), "--store", source, "-o", "json")
        assert made.returncode == 0, made.stderr
        sums.append(json.loads(made.stdout)["sum_lasting"])
        return file

    for kind in ("zk", "oxia", "etcd"):
        file = snapshot(kind)
        words = ["restore", f"snapshot:{file}", "--store", stores[kind], "--yes", "--allow-unreadable"]
        ran = run(*words, "-o", "json")
        assert ran.returncode == 0, ran.stderr
        repeated = json.loads(run(*words, "-o", "json").stdout)
        assert (repeated["rewritten"], repeated.get("counters", {})) == (0, {})
        ignored = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]
        compared = run("diff", f"snapshot:{file}", stores[kind], *ignored)
        assert compared.returncode == 0, compared.stdout
        source = stores[kind]
    for left, right in (("zk", "oxia"), ("zk", "etcd")):
        compared = run("diff", stores[left], stores[right], "--ignore", "brokers", "--bytes")
        assert (compared.returncode, compared.stdout) == (0, b"")
    snapshot("nothing")
    # The first sum lacks the counters' nodes, and the second has the bookies' nodes.
    assert len(set(sums[2:])) == 1


def test_restoring_with_overwrite_reverts_changes(
    run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    database = capture("pulsar-4.2.4") / "rocksdb"
    copy = writable_copy(database, tmp_path / "metadata")
    with open_store(f"rocksdb:{copy}", read_only=False) as store:
        policies = store.read("/admin/policies/public/default")
        store.put(policies.path, b"{}", policies.version)
        deleted = next(value for value in store.scan("/managed-ledgers") if value.value)
        store.delete(deleted.path, deleted.version)
    words = ["restore", f"rocksdb:{database}", "--store", f"rocksdb:{copy}", "--yes", "--allow-unreadable"]
    assert run(*words).returncode == 1
    assert run(*words, "--overwrite").returncode == 0
    assert run("diff", f"rocksdb:{database}", f"rocksdb:{copy}", "--bytes").returncode == 0
