"""snapshot -> restore -> snapshot keeps every byte on every store, also with a concurrent writer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.jobs.values.places import why_left_out
from pulsar_meta.stores.base import ABSENT, Versioned
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot_writer import SnapshotWriter
from tests.cli.program import confirmation
from tests.cli.values import Run
from tests.servers import etcd, oxia, zookeeper
from tests.servers.restartable import RestartableServer, skip_or_fail

# Some tests choose the servers by indirect parameters, which replace the fixture's marks.
pytestmark = pytest.mark.server

SERVERS: dict[str, Callable[[Path], RestartableServer]] = {
    "zk": zookeeper.ZookeeperServer,
    "etcd": etcd.EtcdServer,
    "oxia": oxia.OxiaServer,
}
NEEDED: dict[str, tuple[str, Callable[[], str | None]]] = {
    "zk": ("zookeeper", zookeeper.why_not),
    "etcd": ("etcd", etcd.why_not),
    "oxia": ("oxia", oxia.why_not),
}
SAME = ["--ignore", "brokers", "--ignore", "parents", "--bytes"]


@pytest.fixture(
    params=["rocksdb", "dir", *(pytest.param(name, marks=pytest.mark.server) for name in SERVERS)]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty store of each kind for this test alone, because it compares the complete store."""
    if request.param in SERVERS:
        program, why_not = NEEDED[request.param]
        skip_or_fail(program, why_not())
        with SERVERS[request.param](tmp_path / "server") as server:
            yield f"{request.param}://{server.address}"
        return
    if request.param == "dir":
        (tmp_path / "target").mkdir()
    yield f"{request.param}:{tmp_path / 'target'}"


def lasting(url: str) -> dict[str, bytes]:
    """Return the values that belong to a copy, without empty parents."""
    with open_store(url) as store:
        return {
            value.path: value.value for value in store.scan() if value.value and why_left_out(value) is None
        }


def strange(file: Path, capture: Path) -> str:
    """Write a snapshot of a cluster's values and of some unusual values; return its URL."""
    writer = SnapshotWriter(file, {"counters": {"/ledgers/idgen": 400}})
    with open_store(f"rocksdb:{capture / 'rocksdb'}") as store:
        for stored in store.scan():
            if why_left_out(stored) is None:
                writer.add(stored)
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


def test_a_snapshot_of_a_restored_store_equals_the_first(
    target: str, run: Run, tmp_path: Path, capture: Callable[[str], Path]
) -> None:
    """The second snapshot is also restored to another store, and its snapshot compared."""
    first = strange(tmp_path / "first.ndjson", capture("pulsar-4.2.4"))
    words = ["--allow-unreadable", "--yes", "-o", "json"]
    ran = run("restore", first, "--store", target, *words)
    assert ran.returncode == 0, ran.stderr
    with open_store(target) as store:
        # BookKeeper creates these nodes only together with a new cluster.
        registries = ("/ledgers/available", "/ledgers/available/readonly")
        registered = [value and value.value for value in store.read_many(registries)]
        assert registered == ([b"", b""] if store.needs_parents else [None, None])
    second = tmp_path / "second.ndjson.zst"
    made = run("snapshot", second, "--store", target, "-o", "json")
    assert made.returncode == 0, made.stderr
    assert lasting(f"snapshot:{second}") == lasting(first)
    assert len(lasting(first)) > 300
    compared = run("diff", first, f"snapshot:{second}", *SAME)
    assert (compared.returncode, compared.stdout) == (0, b"")
    copy_of_copy = f"rocksdb:{tmp_path / 'copy_of_copy'}"
    ran = run("restore", f"snapshot:{second}", "--store", copy_of_copy, *words)
    assert ran.returncode == 0, ran.stderr
    third = tmp_path / "third.ndjson"
    assert run("snapshot", third, "--store", copy_of_copy).returncode == 0
    assert lasting(f"snapshot:{third}") == lasting(first)
    # The counter is copied too, even to the copy of the copy.
    with open_store(copy_of_copy) as store:
        # A directory has no counters. The restore then starts after the ids in the values, and reports this.
        minimum = 400 if "the source has no counter" not in ran.stderr.decode() else 1
        assert ("dir:" in target) == (minimum == 1)
        assert (store.next_sequence("/ledgers/idgen") or 0) >= minimum


@pytest.mark.parametrize("target", ["zk"], indirect=True)
def test_names_that_zookeeper_refuses_are_skipped(target: str, run: Run, tmp_path: Path) -> None:
    """A name that the target refuses is reported and does not end the run."""
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
    assert lasting(target).keys() == {f"/admin/{name}" for name, accepted in names.items() if accepted}


# Oxia 0.14 loses its place in its log if two clients write at the same time.
@pytest.mark.parametrize("target", ["zk", "etcd", "dir"], indirect=True)
def test_a_snapshot_with_a_concurrent_writer_has_only_real_states(
    target: str, run: Run, tmp_path: Path
) -> None:
    """Unchanged values are copied exactly, changed values have one of their states and are counted."""
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
        values = {value.path: value.value for value in copy.scan()}
    assert {path: values.get(path) for path in still} == still
    assert all(values[path] in written[path] for path in moving)
    changed = json.loads(ran.stdout).get("changed_meanwhile")
    # A snapshot of etcd is taken at a single revision.
    assert (changed is None) if target.startswith("etcd:") else changed > 0


@pytest.mark.parametrize("target", ["zk", "etcd"], indirect=True)
def test_a_second_restore_copies_the_changes_of_a_live_source(target: str, run: Run, tmp_path: Path) -> None:
    """The source changes during the first run, and the second run uses --overwrite."""
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
    changed = {difference["path"] for difference in json.loads(compared.stdout or b"[]")}
    words = ("restore", target, "--store", into, "--overwrite", "--yes", "-o", "json")
    second = run(*words)
    if more := confirmation(second):
        second = run(*words, *more)
    assert second.returncode == 0
    assert json.loads(second.stdout)["rewritten"] == len(changed)
    assert run("diff", target, into, *SAME).returncode == 0
