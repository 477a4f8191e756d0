"""After a restore, the next ids of Pulsar's own generator are behind all that were ever given out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here
from tests.servers.etcd import EtcdServer
from tests.servers.jvm import Jvm
from tests.servers.oxia import OxiaServer
from tests.servers.zookeeper import ZookeeperServer
from tests.stores.conftest import writable_copy

pytestmark = pytest.mark.interop

NEXT = "tests.interop.oracle.ids:next_ids"
SERVERS = {
    "zk": (ZookeeperServer, "zk://{}", "zk:{}"),
    "etcd": (EtcdServer, "etcd://{}", "etcd:http://{}"),
    "oxia": (OxiaServer, "oxia://{}", "oxia://{}"),
}


class Target(NamedTuple):
    """A store without values, by the URL that we and the one that Pulsar takes."""

    ours: str
    theirs: str


@pytest.fixture(scope="module")
def pulsar() -> Iterator[Jvm]:
    with Jvm("4.2.4", heap="512m") as jvm:
        yield jvm


@pytest.fixture(params=["rocksdb", *SERVERS])
def target(
    request: pytest.FixtureRequest, tmp_path: Path, capture: Callable[[str], Path]
) -> Iterator[Target]:
    if request.param == "rocksdb":
        database = writable_copy(capture("pulsar-4.0.7") / "rocksdb", tmp_path / "metadata")
        url = f"rocksdb:{database}"
        with open_store(url, read_only=False) as store:
            for held in [held for held in store.scan() if not held.ephemeral]:
                store.delete(held.path, held.version)
        yield Target(url, url)
        return
    server, ours, theirs = SERVERS[request.param]
    with server(tmp_path / "server") as running:
        yield Target(ours.format(running.address), theirs.format(running.address))


def restore(file: Path, target: Target, tmp_path: Path) -> dict[str, int]:
    """Return the counters that the summary names."""
    words = ["restore", f"snapshot:{file}", "--store", target.ours, "--yes", "--allow-unreadable"]
    ran = pulsar_meta_here(*words, "-o", "json", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    counters = json.loads(ran.stdout).get("counters", {})
    assert isinstance(counters, dict)
    return counters


def test_the_next_ids(pulsar: Jvm, target: Target, tmp_path: Path, capture: Callable[[str], Path]) -> None:
    database, file = capture("pulsar-4.2.4") / "rocksdb", tmp_path / "all.ndjson"
    ran = pulsar_meta_here("snapshot", str(file), "--store", f"rocksdb:{database}", folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with open_store(f"rocksdb:{database}") as store:
        floor = store.next_sequence("/ledgers/idgen")
    assert floor is not None
    assert restore(file, target, tmp_path)["/ledgers/idgen"] >= floor
    given = pulsar.call(NEXT, target.theirs, 3)
    assert given["ledgers"][0] >= floor
    assert given["ledgers"] == sorted(set(given["ledgers"]))
    assert given["producers"][0] >= floor
    with open_store(target.ours) as store, pytest.raises(NotFoundError):
        store.read("/ledgers/idgen-long")
    # Once more: nothing goes back, or forward without need.
    assert "/ledgers/idgen" not in restore(file, target, tmp_path)
    assert pulsar.call(NEXT, target.theirs, 1)["ledgers"][0] > given["ledgers"][-1]


def test_the_next_ids_of_63_bits(pulsar: Jvm, target: Target, tmp_path: Path) -> None:
    bucket = "/ledgers/idgen-long/HOB-0000000002"
    lines: list[dict[str, object]] = [{"snapshot": 1, "counters": {"/ledgers/idgen": 5, bucket: 700}}]
    values = ["/ledgers/idgen-long", "/ledgers/idgen-long/HOB-0000000001", bucket, ledger_path(2 << 32 | 900)]
    lines += [{"path": path, "version": 0, "value": ""} for path in values]
    lines.append({"values": len(values)})
    file = tmp_path / "long.ndjson"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert restore(file, target, tmp_path)[bucket] >= 901
    given = pulsar.call(NEXT, target.theirs, 2)["ledgers"]
    assert given[0] >= 2 << 32 | 901
    assert given[1] == given[0] + 1
    assert given[0] >> 32 == 2


def test_a_target_that_is_further(pulsar: Jvm, target: Target, tmp_path: Path) -> None:
    with open_store(target.ours, read_only=False) as store:
        store.put(ledger_path(4000), b"", ABSENT)
    file = tmp_path / "few.ndjson"
    lines = (
        {"snapshot": 1, "counters": {"/ledgers/idgen": 12}},
        {"path": "/admin/policies/public", "version": 0, "value": ""},
        {"values": 1},
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert restore(file, target, tmp_path)["/ledgers/idgen"] >= 4001
    assert pulsar.call(NEXT, target.theirs, 1)["ledgers"][0] >= 4001
