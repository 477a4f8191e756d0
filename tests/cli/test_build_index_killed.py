"""`build-index` is killed by SIGKILL, resumed with --resume and undone, on a real ZooKeeper."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.program import MAIN, environment, pulsar_meta, wait_until
from tests.servers import zookeeper
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.server

FOLDER = "/managed-ledgers/public/default/persistent"
TOPICS = 60
KILLED_AFTER = 15


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    """Start a ZooKeeper and return its URL."""
    skip_or_fail("zookeeper", zookeeper.why_not())
    with zookeeper.ZookeeperServer(tmp_path / "zookeeper") as running:
        yield f"zk://{running.address}"


def test_a_killed_run_is_resumed_and_undone(
    capture: Callable[[str], Path], store_url: str, tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4")
    with open_store(f"rocksdb:{folder / 'rocksdb'}") as captured:
        before = captured.read(f"{FOLDER}/txn").value
    with open_store(store_url, read_only=False) as store:
        for number in range(TOPICS):
            store.put(f"{FOLDER}/copy-{number}", before, ABSENT)
    env = environment(
        tmp_path, PULSAR_META_STORE=store_url, PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}"
    )
    undo_file = tmp_path / "undo"
    words = ("build-index", "--all", "--yes", "--undo-file", str(undo_file), "--concurrency", "1")

    with subprocess.Popen(
        [*MAIN, *words, "--rate", "20"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as killed:
        wait_until(lambda: len(indexed(store_url)) >= KILLED_AFTER)
        killed.kill()
    first_part = indexed(store_url)
    assert KILLED_AFTER <= len(first_part) < TOPICS

    repeated = pulsar_meta(*words, env=env)
    assert (repeated.returncode, b"exists" in repeated.stderr) == (2, True)
    resumed = pulsar_meta(*words, "--resume", env=env)
    assert (resumed.returncode, resumed.stderr.count(b"Traceback")) == (0, 0), resumed.stderr
    complete = indexed(store_url)
    assert len(complete) == TOPICS
    # The resumed run does not write records again that the killed run had written.
    assert {path: complete[path] for path in first_part} == first_part

    undone = pulsar_meta("undo", undo_file, "--yes", env=env)
    assert undone.returncode == 0, undone.stderr
    with open_store(store_url) as store:
        assert [stored.value for stored in store.scan(FOLDER) if stored.value] == [before] * TOPICS


def indexed(store_url: str) -> dict[str, object]:
    """Return the versions of the records whose ledger with entries has the first index 0."""
    with open_store(store_url) as store:
        return {
            stored.path: stored.version
            for stored in store.scan(FOLDER)
            if stored.value and first_indexes(stored.value).get(43) == "0"
        }


def first_indexes(value: bytes) -> dict[int, str]:
    return {
        ledger.ledgerId: property.value
        for ledger in decode_managed_ledger(value).ledgerInfo
        for property in ledger.properties
        if property.key == "first-index"
    }
