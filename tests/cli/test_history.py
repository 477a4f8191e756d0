"""`history`: a cursor's record as it was written one time after the other, from ZooKeeper's own files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.cli.values import Run
from tests.servers import zookeeper
from tests.servers.restartable import skip_or_fail
from tests.servers.zookeeper import ZookeeperServer

CURSOR = "/managed-ledgers/public/default/persistent/orders/batch-idx"


@pytest.fixture
def history(capture: Callable[[str], Path], tmp_path: Path) -> str:
    """The URL of files in which a cursor's record was written as the capture's broker wrote it."""
    missing = zookeeper.why_not()
    if missing is not None:
        skip_or_fail(missing)
    folder = capture("pulsar-4.2.4")
    names = ["metadata-after-step-2", "metadata-after-step-3-killed", "metadata"]
    version = ABSENT
    with ZookeeperServer(tmp_path) as server, open_store(f"zk://{server.address}", read_only=False) as live:
        for name in names:
            with open_store(f"snapshot:{folder / name}.ndjson") as held:
                version = live.put(CURSOR, held.read(CURSOR).value, version)
    return f"zk-files:{tmp_path / 'data'}"


def test_fields_go_from_what_to_what(history: str, run: Run) -> None:
    words = ("history", "cursor", "public/default/orders", "batch-idx", "--store", history)
    ran = run(*words, "-o", "json")
    assert ran.returncode == 0
    changes = json.loads(ran.stdout)
    assert [change["change"] for change in changes] == ["created", "changed", "changed"]
    fields = {one["field"] for one in changes[-1]["differences"]}
    assert "value.cursorsLedgerId" in fields
    lines = run(*words).stdout.decode().splitlines()
    assert len(lines) == 3
    assert "cursorsLedgerId" in lines[-1]


def test_what_never_was_is_not_found(history: str, run: Run) -> None:
    ran = run("history", "/nowhere", "--store", history)
    assert (ran.returncode, ran.stdout) == (3, b"")
    assert b"nothing was ever at /nowhere" in ran.stderr


def test_a_store_without_history_says_so(capture: Callable[[str], Path], run: Run) -> None:
    snapshot = capture("pulsar-4.2.4") / "metadata.ndjson"
    ran = run("history", CURSOR, "--store", f"snapshot:{snapshot}")
    assert ran.returncode == 2
    assert b"keeps no history" in ran.stderr
