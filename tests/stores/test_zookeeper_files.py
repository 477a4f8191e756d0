"""`zk-files:` compared with a real ZooKeeper after each of many random operations."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UsageError
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.zookeeper_files import ZookeeperFilesStore
from tests.servers import zookeeper
from tests.servers.restartable import skip_or_fail
from tests.servers.zookeeper import ZookeeperServer

Tree = dict[str, Versioned]
# Snapshots every few transactions, logs of 64 KB, and nodes with a TTL.
OPTIONS = (
    "-Dzookeeper.snapCount=40",
    "-Dzookeeper.preAllocSize=64",
    "-Dzookeeper.extendedTypesEnabled=true",
)


@pytest.fixture(autouse=True)
def needs_java() -> None:
    skip_or_fail("zookeeper", zookeeper.why_not())


@contextmanager
def client_of(server: ZookeeperServer) -> Iterator[Any]:
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{server.port}", timeout=10)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def work(client: Any, rng: random.Random, count: int) -> Iterator[int]:
    """Run `count` random operations and yield the zxid of each that changed something."""
    from kazoo.exceptions import KazooException

    for step in range(count):
        path = "/" + "/".join(rng.choice("abc") for _ in range(rng.randint(1, 3)))
        data = rng.randbytes(rng.randint(0, 60))
        try:
            match rng.randint(0, 7):
                case 0 | 1:
                    client.create(path, data, makepath=rng.random() < 0.5)
                case 2:
                    client.create(f"{path}-eph", data, ephemeral=True, sequence=rng.random() < 0.5)
                case 3 | 4:
                    client.set(path, data)
                case 5:
                    client.delete(path)
                case 6:
                    client.set_acls(path, client.get_acls(path)[0])
                case _:
                    multi = client.transaction()
                    multi.create(f"{path}-multi{step}", data)
                    multi.set_data(path, data)
                    multi.commit()
        except KazooException:
            continue
        yield int(client.last_zxid)


def tree_of(url: str) -> Tree:
    with open_store(url) as store:
        return {value.path: value for value in store.scan("/")}


def live_tree(store: Any) -> Tree:
    return {value.path: value for value in store.scan("/")}


@pytest.mark.parametrize(
    ("packing", "steps"),
    [
        ("checked", 200),
        ("gz", 120),
        ("snappy", 120),
        pytest.param("checked", 4000, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.server
def test_the_tree_at_every_zxid_equals_the_servers(packing: str, steps: int, tmp_path: Path) -> None:
    options = (*OPTIONS, f"-Dzookeeper.snapshot.compression.method={packing}")
    moments: dict[int, Tree] = {}
    rng = random.Random(packing)
    with ZookeeperServer(tmp_path, java_options=options) as server:
        with open_store(f"zk://{server.address}") as live, client_of(server) as client:
            for zxid in work(client, rng, steps):
                moments[zxid] = live_tree(live)
        running = tree_of(f"zk-files:{tmp_path / 'data'}")
        with open_store(f"zk://{server.address}") as live:
            assert running == live_tree(live)
    data = tmp_path / "data"
    assert len(list((data / "version-2").glob("snapshot.*"))) > 2
    assert len(moments) > steps // 3
    nodes = sum(map(len, moments.values()))
    print(f"{packing}: {len(moments)} moments of {steps} steps, {nodes} nodes compared")
    for zxid, tree in moments.items():
        assert tree_of(f"zk-files:{data}?zxid={zxid:#x}") == tree, f"{zxid:#x}"


def _by_zxid(data: Path, pattern: str) -> list[Path]:
    return sorted((data / "version-2").glob(pattern), key=lambda path: int(path.name.split(".")[1], 16))


@pytest.mark.server
def test_a_killed_servers_files_and_a_torn_log_are_read(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path, java_options=OPTIONS) as server:
        with client_of(server) as client:
            assert list(work(client, random.Random(7), 150))
        server.kill()
        copy = shutil.copytree(tmp_path / "data", tmp_path / "copy")
        server.start()
        with open_store(f"zk://{server.address}") as live:
            after = live_tree(live)
    mine = tree_of(f"zk-files:{copy}")
    assert {path: value for path, value in mine.items() if not value.ephemeral} == after
    with open_store(f"zk-files:{copy}") as store:
        assert isinstance(store, ZookeeperFilesStore)
        zxids = [transaction.zxid for transaction in store.transactions()]
    before = tree_of(f"zk-files:{copy}?zxid={zxids[-2]}")
    # ZooKeeper writes snapshots while it serves requests, so the newest may include the torn record's change.
    for snapshot in _by_zxid(copy, "snapshot.*")[1:]:
        snapshot.unlink()
    last = _by_zxid(copy, "log.*")[-1]
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-5])
    assert tree_of(f"zk-files:{copy}") == before


@pytest.mark.server
def test_a_time_selects_the_last_transaction_before_it(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path, java_options=OPTIONS) as server, client_of(server) as client:
        assert list(work(client, random.Random(11), 100))
    data = tmp_path / "data"
    with open_store(f"zk-files:{data}") as store:
        assert isinstance(store, ZookeeperFilesStore)
        transactions = list(store.transactions())
    times = [transaction.time for transaction in transactions]
    middle = times[len(times) // 2]
    last = max(at for at, time in enumerate(times) if time <= middle)
    expected = tree_of(f"zk-files:{data}?zxid={transactions[last].zxid}")
    assert tree_of(f"zk-files:{data}?at={middle}") == expected
    iso = datetime.fromtimestamp(middle / 1000, UTC).isoformat()
    assert tree_of(f"zk-files:{data}?at={iso}") == expected
    assert tree_of(f"zk-files:{data}?at={times[-1] + 10_000}") == tree_of(f"zk-files:{data}")
    with pytest.raises(NotFoundError, match="begin at"):
        tree_of(f"zk-files:{data}?at={times[0] - 1}")


@pytest.mark.server
def test_history_has_every_change_and_its_writer(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path, java_options=OPTIONS) as server, client_of(server) as client:
        client.create("/loadbalance/brokers/b1:8080", b"", ephemeral=True, makepath=True)
        client.create("/v", b"one")
        for step in range(60):
            client.create(f"/other{step}", b"")
        client.set("/v", b"two")
        client.delete("/v")
        client.create("/v", b"three", ephemeral=True)
    with open_store(f"zk-files:{tmp_path / 'data'}") as store:
        changes = list(store.history("/v"))
    assert [None if change.value is None else change.value.value for change in changes] == [
        b"one",
        b"two",
        None,
        b"three",
        None,
    ]
    assert [change.writer for change in changes] == ["broker b1:8080"] * 5
    assert not any(change.first for change in changes)
    assert [change.transaction for change in changes] == sorted(change.transaction for change in changes)


@pytest.mark.server
def test_history_begins_with_the_oldest_known_value(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path, java_options=OPTIONS) as server, client_of(server) as client:
        client.create("/v", b"old")
        for step in range(200):
            client.create(f"/other{step}", b"")
        client.set("/v", b"new")
    files = sorted(
        (tmp_path / "data" / "version-2").iterdir(), key=lambda path: int(path.name.split(".")[1], 16)
    )
    snapshots = [path for path in files if path.name.startswith("snapshot")][2:]
    for path in files:
        if path.name.startswith("snapshot") and path not in snapshots:
            path.unlink()
    logs = [path for path in files if path.name.startswith("log")]
    first = int(snapshots[0].name.split(".")[1], 16)
    for path, after in pairwise(logs):
        if int(after.name.split(".")[1], 16) <= first + 1:
            path.unlink()
    with open_store(f"zk-files:{tmp_path / 'data'}") as store:
        changes = list(store.history("/v"))
    assert [(change.first, change.value and change.value.value) for change in changes] == [
        (True, b"old"),
        (False, b"new"),
    ]


@pytest.mark.server
def test_a_gap_in_the_logs_is_always_an_error(tmp_path: Path) -> None:
    with ZookeeperServer(tmp_path, java_options=OPTIONS) as server, client_of(server) as client:
        zxids = list(work(client, random.Random(3), 200))
    logs = sorted((tmp_path / "data" / "version-2").glob("log.*"), key=lambda path: int(path.name[4:], 16))
    snapshots = list((tmp_path / "data" / "version-2").glob("snapshot.*"))
    assert len(logs) > 3
    for path in snapshots:
        if int(path.name.split(".")[1], 16) > int(logs[1].name[4:], 16):
            path.unlink()
    logs[2].unlink()
    with pytest.raises(DecodeError, match="are missing"):
        tree_of(f"zk-files:{tmp_path / 'data'}")
    assert tree_of(f"zk-files:{tmp_path / 'data'}?zxid={zxids[3]}")


def test_invalid_urls_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_store(f"zk-files:{tmp_path / 'nowhere'}")
    with pytest.raises(NotFoundError):
        open_store(f"zk-files:{tmp_path}")
    (tmp_path / "log.1").write_bytes(b"ZKLG\0\0\0\2" + bytes(8))
    with pytest.raises(UsageError):
        open_store(f"zk-files:{tmp_path}?at=1&zxid=2")
    with pytest.raises(UsageError):
        open_store(f"zk-files:{tmp_path}?at=yesterday")
    with pytest.raises(GuardError):
        open_store(f"zk-files:{tmp_path}", read_only=False)
    (tmp_path / "log.1").write_bytes(b"garbage" * 9)
    with pytest.raises(DecodeError):
        tree_of(f"zk-files:{tmp_path}")
