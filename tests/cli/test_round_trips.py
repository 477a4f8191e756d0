"""snapshot -> restore -> snapshot: byte for byte the same, on every store; and while somebody writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.left_out import why_left_out
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot_writer import SnapshotWriter
from tests.cli.values import Run
from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import RestartableServer, skip_or_fail

SERVERS: dict[str, Callable[[Path], RestartableServer]] = {
    "zk": zookeeper.ZookeeperServer,
    "etcd": etcd.EtcdServer,
    "oxia": oxia.OxiaServer,
}
WHY_NOT: dict[str, Callable[[], str | None]] = {
    "zk": zookeeper.why_not,
    "etcd": etcd.why_not,
    "oxia": oxia.why_not,
}
SAME = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]


@pytest.fixture(params=["rocksdb", "dir", *SERVERS])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store of each kind, which no other test uses: it is compared whole."""
    if request.param in SERVERS:
        skip_or_fail(WHY_NOT[request.param]())
        with SERVERS[request.param](tmp_path / "server") as server:
            yield f"{request.param}://{server.address}"
        return
    if request.param == "dir":
        (tmp_path / "target").mkdir()
    yield f"{request.param}:{tmp_path / 'target'}"


def lasting(url: str) -> dict[str, bytes]:
    """Return what is part of a copy and no empty parent."""
    with open_store(url) as store:
        return {held.path: held.value for held in store.scan() if held.value and why_left_out(held) is None}


def strange(file: Path, capture: Path) -> str:
    """Return the URL of a snapshot of a cluster's values, and of some that are hard to carry."""
    writer = SnapshotWriter(file, {"counters": {"/ledgers/idgen": 400}})
    with open_store(f"rocksdb:{capture / 'rocksdb'}") as store:
        for held in store.scan():
            if why_left_out(held) is None:
                writer.add(held)
    values = {
        "every-byte": bytes(range(256)) * 3,
        "large": b"\x00\xff" * 300_000,
        "empty": b"",
        "n%C3%A4me+with+%252F+ü 日本": b"name",
        "above": b"a value above others",
        "above/below": b"",
        "above/below/far": b"1",
        "above-": b"beside",
    }
    for name, value in values.items():
        writer.add(Versioned(f"/admin/strange/{name}", value, 7, 1, 2))
    writer.finish({})
    return f"snapshot:{file}"


def test_there_and_back(target: str, run: Run, tmp_path: Path, capture: Callable[[str], Path]) -> None:
    """What a snapshot of the copy has is what the first one has, also gone into yet another store."""
    first = strange(tmp_path / "first.ndjson", capture("pulsar-4.2.4"))
    words = ["--allow-unreadable", "--yes", "-o", "json"]
    ran = run("restore", first, "--store", target, *words)
    assert ran.returncode == 0, ran.stderr
    with open_store(target) as store:
        # BookKeeper makes these only together with a new cluster.
        registries = ("/ledgers/available", "/ledgers/available/readonly")
        found = [held and held.value for held in store.read_many(registries)]
        assert found == ([b"", b""] if store.needs_parents else [None, None])
    second = tmp_path / "second.ndjson.zst"
    taken = run("snapshot", second, "--store", target, "-o", "json")
    assert taken.returncode == 0, taken.stderr
    assert lasting(f"snapshot:{second}") == lasting(first)
    assert len(lasting(first)) > 300
    compared = run("diff", first, f"snapshot:{second}", *SAME)
    assert (compared.returncode, compared.stdout) == (0, b"")
    again = f"rocksdb:{tmp_path / 'again'}"
    ran = run("restore", f"snapshot:{second}", "--store", again, *words)
    assert ran.returncode == 0, ran.stderr
    third = tmp_path / "third.ndjson"
    assert run("snapshot", third, "--store", again).returncode == 0
    assert lasting(f"snapshot:{third}") == lasting(first)
    # The counter came along, and from the copy of the copy.
    with open_store(again) as store:
        # A directory counts nothing: then only what the values name is known, which the run says.
        floor = 400 if "not say its counter" not in ran.stderr.decode() else 1
        assert ("dir:" in target) == (floor == 1)
        assert (store.next_sequence("/ledgers/idgen") or 0) >= floor


@pytest.mark.parametrize("target", ["zk"], indirect=True)
def test_names_that_zookeeper_refuses(target: str, run: Run, tmp_path: Path) -> None:
    """One such name in a store of another kind is named, and ends no run."""
    names = {"key 🔑": False, "private \ue000": False, "control \x07": False, "plain ü日本": True}
    writer = SnapshotWriter(tmp_path / "names", {})
    for name in names:
        writer.add(Versioned(f"/admin/{name}", b"x", 0))
    writer.finish({})
    words = ["restore", f"snapshot:{tmp_path / 'names'}", "--store", target, "-o", "json"]
    for more in ("--dry-run", "--yes"):
        ran = run(*words, more)
        assert ran.returncode == 1, ran.stderr
        assert json.loads(ran.stdout)["skipped_for"] == {"no-path": 3}
    assert lasting(target).keys() == {f"/admin/{name}" for name, taken in names.items() if taken}


# A server of Oxia 0.14 loses its place in its log where two clients write at once.
@pytest.mark.parametrize("target", ["zk", "etcd", "dir"], indirect=True)
def test_a_writer_during_a_snapshot(target: str, run: Run, tmp_path: Path) -> None:
    """What stood still is there as it was; of the rest a state that there was, and it is counted."""
    still = {f"/still/{at % 7}/{at:04d}": b"%d" % at for at in range(1500)}
    moving = [f"/moving/{at}" for at in range(40)]
    with open_store(target, read_only=False) as store:
        versions = {path: store.put(path, value, ABSENT) for path, value in still.items()}
        versions |= {path: store.put(path, b"0", ABSENT) for path in moving}
    written: dict[str, set[bytes]] = {path: {b"0"} for path in moving}
    stop = threading.Event()

    def write() -> None:
        with open_store(target, read_only=False) as store:
            count = 0
            while not stop.wait(0.001):
                count += 1
                path, value = moving[count % len(moving)], b"%d" % count
                written[path].add(value)
                versions[path] = store.put(path, value, versions[path])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        ran = run("snapshot", tmp_path / "all.ndjson", "--store", target, "-o", "json")
    finally:
        stop.set()
        writer.join()
    assert ran.returncode == 0, ran.stderr
    with open_store(f"snapshot:{tmp_path / 'all.ndjson'}") as copy:
        found = {held.path: held.value for held in copy.scan()}
    assert {path: found.get(path) for path in still} == still
    assert all(found[path] in written[path] for path in moving)
    changed = json.loads(ran.stdout).get("changed_meanwhile")
    # etcd is written as of one revision.
    assert (changed is None) if target.startswith("etcd:") else changed > 0


@pytest.mark.parametrize("target", ["zk", "etcd"], indirect=True)
def test_a_live_source_that_moves_on(target: str, run: Run, tmp_path: Path) -> None:
    """A source that is written while it is restored: a second run with --overwrite brings the rest over."""
    with open_store(target, read_only=False) as store:
        versions = {f"/admin/{at:04d}": store.put(f"/admin/{at:04d}", b"0", ABSENT) for at in range(800)}
    into = f"rocksdb:{tmp_path / 'into'}"
    stop = threading.Event()

    def write() -> None:
        with open_store(target, read_only=False) as store:
            paths = sorted(versions)
            for count in range(5000):
                if stop.wait(0.001):
                    return
                path = paths[count * 37 % len(paths)]
                versions[path] = store.put(path, b"%d" % count, versions[path])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert run("restore", target, "--store", into, "--yes").returncode == 0
    finally:
        stop.set()
        writer.join()
    compared = run("diff", target, into, *SAME, "-o", "json")
    assert compared.returncode in (0, 1)
    behind = {one["path"] for one in json.loads(compared.stdout or b"[]")}
    second = run("restore", target, "--store", into, "--overwrite", "--yes", "-o", "json")
    assert second.returncode == 0
    assert json.loads(second.stdout)["rewritten"] == len(behind)
    assert run("diff", target, into, *SAME).returncode == 0
