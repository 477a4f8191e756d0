"""`repair` as a person or a script runs it: what is said, asked, written, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.cli.program import as_text, environment, pulsar_meta_here

PARTED = "/admin/partitioned-topics/public/default/persistent/parted"


@pytest.fixture
def store(capture: Callable[[str], Path], tmp_path: Path) -> str:
    """The URL of a store with what a stopped 4.2.4 left."""
    url = f"dir:{tmp_path / 'store'}"
    (tmp_path / "store").mkdir()
    with (
        SnapshotStore(f"snapshot:{capture('pulsar-4.2.4') / 'metadata.ndjson'}") as snapshot,
        open_store(url, read_only=False) as opened,
    ):
        for held in snapshot.scan("/"):
            if held.value and not held.ephemeral:
                opened.put(held.path, held.value, ABSENT)
    return url


def test_a_record_that_is_gone_comes_back_and_undo_takes_it_away(store: str, tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        done = as_text(pulsar_meta_here(*words, "--store", store, env=environment(tmp_path)))
        return done.returncode, done.stdout, done.stderr

    assert run("rm", PARTED, "--yes")[0] == 0
    assert run("repair", "partitions", "parted")[0] == 2
    code, plan, told = run("repair", "partitions", "parted", "--dry-run", "-o", "ndjson")
    assert (code, json.loads(plan.splitlines()[1])["effect"]) == (0, "create")
    assert "no record; 3 partitions have a record" in told
    code, summary, told = run("repair", "partitions", "parted", "--yes", "-o", "json")
    assert (code, json.loads(summary)["created"]) == (0, 1)
    assert json.loads(run("get", PARTED, "-o", "raw")[1]) == {"partitions": 3, "deleted": False}
    assert run("undo", json.loads(summary)["undo_file"], "--yes")[0] == 0
    assert run("get", PARTED)[0] == 3


def test_a_topic_without_partitions_is_not_found(store: str, tmp_path: Path) -> None:
    done = as_text(
        pulsar_meta_here(
            "repair", "partitions", "plain", "--yes", "--store", store, env=environment(tmp_path)
        )
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
