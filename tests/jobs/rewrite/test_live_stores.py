"""Plan, rewrite and undo on real servers and on a database that a killed broker left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_cursor
from pulsar_meta.codecs.names import split_managed_ledger_path
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.cli.program import environment, pulsar_meta_here
from tests.cli.values import clear_store
from tests.servers import etcd, oxia, zookeeper

pytestmark = pytest.mark.server
COPIED = ("/managed-ledgers/", "/ledgers/INSTANCEID")


@pytest.fixture
def zookeeper_url(zookeeper_server: zookeeper.ZookeeperServer) -> str:
    return f"zk://{zookeeper_server.address}?timeout=30"


@pytest.fixture
def etcd_url(etcd_server: etcd.EtcdServer) -> str:
    return f"etcd://{etcd_server.address}?timeout=30"


@pytest.fixture
def oxia_url(oxia_server: oxia.OxiaServer) -> str:
    return f"oxia://{oxia_server.address}?timeout=30"


def values(url: str) -> dict[str, bytes]:
    with open_store(url) as store:
        return {value.path: value.value for value in store.scan("/managed-ledgers")}


@pytest.mark.parametrize("name", ["zookeeper_url", "etcd_url", "oxia_url"])
def test_compression_and_undo_restore_every_byte(
    name: str, request: pytest.FixtureRequest, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    url = clear_store(request.getfixturevalue(name))
    env = environment(tmp_path, PULSAR_META_STORE=url)
    with (
        SnapshotStore(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as snapshot,
        open_store(url, read_only=False) as store,
    ):
        copied = (value for value in snapshot.scan("/") if value.path.startswith(COPIED))
        assert None not in store.put_many([(value.path, value.value, ABSENT) for value in copied])
    before = values(url)

    def run(*words: str, code: int = 0) -> Any:
        done = pulsar_meta_here(*words, "-o", "json", env=env)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    reverted = run("compress-cursors", "--compression", "none", "--yes", "--allow-loaded")
    assert reverted["rewritten"] == 37
    plain = values(url)
    for path, data in plain.items():
        place = split_managed_ledger_path(path)
        if place is not None and place[1] is not None:
            assert data[:2] != b"Gx"
            assert decode_cursor(data) == decode_cursor(before[path])
        else:
            assert data == before[path]
    packed = run("compress-cursors", "--compression", "zstd", "--threshold", "50", "--yes")
    assert packed["rewritten"] > 20
    assert packed["kept_for"]["properties"] >= 3
    changed = run("set-property", "--yes", "orders", "18,22", "n=1")
    # The undo file names its store.
    del env["PULSAR_META_STORE"]
    assert run("undo", "--yes", changed["undo_file"])["rewritten"] == 1
    env["PULSAR_META_STORE"] = url
    assert run("undo", "--yes", packed["undo_file"])["rewritten"] == packed["rewritten"]
    assert values(url) == plain
    # Values that were compressed meanwhile and undone have another version now.
    first = run("undo", "--yes", reverted["undo_file"], code=7)
    assert first["conflicts"] > 0
    second = run("undo", "--yes", reverted["undo_file"], "--any-version", code=7)
    assert first["rewritten"] + second["rewritten"] == 34
    assert run("undo", "--yes", reverted["undo_file"], "--allow-unreadable")["rewritten"] == 3
    assert values(url) == before


def test_a_value_over_the_limit_needs_value_limit(zookeeper_url: str, tmp_path: Path) -> None:
    env = environment(tmp_path, PULSAR_META_STORE=zookeeper_url)
    big = bytes(1_100_000)
    refused = pulsar_meta_here("put", "--yes", "/big", "--create", env=env, stdin=big)
    assert refused.returncode == 7
    assert b"--value-limit" in refused.stderr
    # The test server keeps its default limit, so it drops the connection.
    sent = pulsar_meta_here(
        "put", "--yes", "/big", "--create", "--value-limit", "1200000", env=env, stdin=big
    )
    assert sent.returncode == 6


def test_owners_in_the_database_of_a_killed_broker_do_not_count(
    capture: Callable[[str], Path], tmp_path: Path
) -> None:
    source, copy = capture("pulsar-4.2.4-killed") / "rocksdb", tmp_path / "rocksdb"
    copy.mkdir()
    for file in source.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    names, before = sorted(file.name for file in copy.iterdir()), values(f"rocksdb:{copy}")
    env = environment(tmp_path / "state", PULSAR_META_STORE=f"rocksdb:{copy}")
    done = pulsar_meta_here("compress-cursors", "--compression", "none", "--yes", "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rewritten"] > 30
    assert b"saved a checkpoint of the database before the write: " in done.stderr
    undone = pulsar_meta_here("undo", "--yes", summary["undo_file"], "--allow-unreadable", env=env)
    assert undone.returncode == 0, undone.stderr
    assert values(f"rocksdb:{copy}") == before
    assert {name for name in names if not name.endswith((".sst", ".log", ".dbtmp"))} <= {
        file.name for file in copy.iterdir()
    } | {name for name in names if name.startswith(("MANIFEST", "OPTIONS"))}
