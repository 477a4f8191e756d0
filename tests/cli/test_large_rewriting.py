"""`compress-cursors` on so many cursors that a separate process decides, on a real ZooKeeper."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import is_enveloped
from pulsar_meta.jobs.rewrite.worker import ALONE
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.chaos.actors import TOPIC, cursor
from tests.cli.program import MAIN, environment, pulsar_meta, wait_until
from tests.servers import zookeeper
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.server

CURSORS = ALONE + 600
WORDS = ("compress-cursors", "--compression", "zstd", "--threshold", "64", "--yes")


@cache
def cursors() -> dict[str, bytes]:
    """Return the cursors by path."""
    return {f"{TOPIC}/{number}": cursor(number) for number in range(CURSORS)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[zookeeper.ZookeeperServer]:
    """A ZooKeeper with many cursors."""
    skip_or_fail("zookeeper", zookeeper.why_not())
    with zookeeper.ZookeeperServer(tmp_path / "zookeeper") as running:
        with open_store(f"zk://{running.address}", read_only=False) as store:
            done = store.put_many([(path, value, ABSENT) for path, value in cursors().items()])
            assert None not in done
        yield running


def values_in(server: zookeeper.ZookeeperServer) -> dict[str, bytes]:
    with open_store(f"zk://{server.address}") as store:
        return {value.path: value.value for value in store.scan(TOPIC) if value.value}


@pytest.mark.nightly
def test_many_cursors_are_compressed_and_undone(server: zookeeper.ZookeeperServer, tmp_path: Path) -> None:
    url = f"zk://{server.address}"
    env = environment(tmp_path, PULSAR_META_STORE=url)
    done = pulsar_meta(*WORDS, "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rewritten"] == CURSORS
    with open_store(url) as store:
        assert sum(is_enveloped(value.value) for value in store.scan(TOPIC)) == CURSORS
    assert pulsar_meta("undo", summary["undo_file"], "--yes", env=env).returncode == 0
    assert values_in(server) == cursors()


@pytest.mark.parametrize("more", [(), pytest.param(("--dry-run",), marks=pytest.mark.nightly)])
def test_a_run_whose_server_is_killed_ends_with_6(
    server: zookeeper.ZookeeperServer, tmp_path: Path, more: tuple[str, ...]
) -> None:
    env = environment(tmp_path, PULSAR_META_STORE=f"zk://{server.address}?timeout=2")
    command = [*MAIN, *WORDS, "--undo-file", str(tmp_path / "undo"), "--rate", "400", *more]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe) as running:
        if more:
            # A dry run reads as fast as it can, so the test slows it down by not reading its output.
            assert running.stdout is not None
            running.stdout.readline()
        else:
            wait_until(lambda: (tmp_path / "undo").exists())
        server.kill()
        messages = running.communicate(timeout=60)[1]
    if not more:
        assert running.returncode == 6, messages
        assert b"--resume" in messages
    assert running.returncode in (0, 6), messages
    assert b"Traceback" not in messages
    assert b"Fatal" not in messages


def test_an_interrupted_run_is_resumed_as_it_says_and_undone(
    server: zookeeper.ZookeeperServer, tmp_path: Path
) -> None:
    env = environment(tmp_path, PULSAR_META_STORE=f"zk://{server.address}")
    command = [*MAIN, *WORDS, "--undo-file", str(tmp_path / "undo"), "--rate", "400"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wait_until(lambda: (tmp_path / "undo").exists())
        running.send_signal(signal.SIGINT)
        messages = running.communicate(timeout=60)[1]
    assert (running.returncode, b"--resume" in messages) == (130, True), messages
    resumed = pulsar_meta(*WORDS, "--undo-file", tmp_path / "undo", "--resume", env=env)
    assert resumed.returncode == 0, resumed.stderr
    with open_store(f"zk://{server.address}") as store:
        assert sum(is_enveloped(value.value) for value in store.scan(TOPIC)) == CURSORS
    assert pulsar_meta("undo", tmp_path / "undo", "--yes", env=env).returncode == 0
    assert values_in(server) == cursors()
