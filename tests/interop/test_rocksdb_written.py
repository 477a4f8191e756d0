"""Databases that we wrote into, opened by the RocksDB and the metadata store of the Pulsar that made them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.servers.jvm import Jvm
from tests.stores.conftest import writable_copy

pytestmark = pytest.mark.interop

ORACLE = "tests.interop.oracle.rocksdb:read_and_go_on"
# 2.11 is the first whose standalone has this store; 4.0.7 has the RocksDB of 3.0.7 and 4.2.4.
VERSIONS = ("2.11.0", "3.0.7", "4.2.4", "5.0.0-M1")


@pytest.fixture(scope="module", params=VERSIONS)
def pulsar(request: pytest.FixtureRequest) -> Iterator[tuple[str, Jvm]]:
    """Pulsar's classes of each version, in a JVM of its own."""
    version = str(request.param)
    with Jvm(version, heap="512m") as jvm:
        yield version, jvm


def go_on(jvm: Jvm, database: Path, **given: dict[str, bytes]) -> dict[str, Any]:
    answer = jvm.call(ORACLE, str(database), given.get("create", {}), given.get("update", {}))
    assert isinstance(answer, dict)
    return answer


def test_pulsar_reads_what_we_wrote_and_goes_on(pulsar: tuple[str, Jvm], tmp_path: Path) -> None:
    _, jvm = pulsar
    database = tmp_path / "made-by-pulsar"
    made = {f"/managed-ledgers/t/n/persistent/{at:04d}": bytes([at % 256]) * (at * 7) for at in range(400)}
    assert set(go_on(jvm, database, create=made)["created"].values()) == {0}
    expected = write_some(database)
    said = go_on(jvm, database, create={"/theirs": b"new"}, update={"/ours/1": b"theirs"})
    assert said["values"] == expected
    assert said["created"] == {"/theirs": 0}
    assert said["updated"] == {"/ours/1": 1}
    with open_store(f"rocksdb:{database}") as store:
        assert store.read("/theirs").value == b"new"
        assert (store.read("/ours/1").value, store.read("/ours/1").version) == (b"theirs", 1)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "2.11.0"])
def test_databases_of_real_standalones(version: str, tmp_path: Path, capture: Callable[[str], Path]) -> None:
    database = writable_copy(capture(f"pulsar-{version}") / "rocksdb", tmp_path / "metadata")
    write_some(database)
    # Once more, since the second opening finds tables of ours.
    expected = write_some(database)
    with Jvm(version, heap="512m") as jvm:
        assert go_on(jvm, database)["values"] == expected


def write_some(database: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Update, create and delete; return every value that a broker has to see then, ephemeral ones not."""
    with open_store(f"rocksdb:{database}", read_only=False) as store:
        held = [record for record in store.scan("/managed-ledgers") if not record.ephemeral]
        for one in held[:60]:
            store.put(one.path, one.value + b"+", one.version)
        store.delete(held[70].path, held[70].version)
        at = len(store.children("/ours")) + 1
        store.put(f"/ours/{at}", b"ours", ABSENT)
        store.put(f"/empty/{at}", b"", ABSENT)
    with open_store(f"rocksdb:{database}") as store:
        return {
            record.path: (record.value, record.version, record.created or 0, record.modified or 0)
            for record in store.scan()
            if not record.ephemeral
        }
