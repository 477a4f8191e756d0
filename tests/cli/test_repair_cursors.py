"""`repair cursor`, `compaction`, `schema` and `offload` as users and scripts run them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.stores.base import ABSENT, Store
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.snapshot import SnapshotStore
from tests.cli.program import as_text, environment, pulsar_meta_here

TOPIC = "persistent://public/default/acked"
CURSOR = "/managed-ledgers/public/default/persistent/acked/some"


class Run:
    """The store of a killed broker in a directory, and the program run on it."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.url, self._environment = f"dir:{scratch / 'store'}", environment(scratch)
        self.entries = ("--entries", f"bookie-disk:{folder / 'bookie0'}")
        (scratch / "store").mkdir()
        with SnapshotStore(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot, self.opened() as store:
            for value in snapshot.scan("/"):
                if value.value and not value.ephemeral:
                    store.put(value.path, value.value, ABSENT)

    def opened(self) -> Store:
        return open_store(self.url, read_only=False)

    def __call__(self, *words: str) -> tuple[int, str, str]:
        done = as_text(pulsar_meta_here(*words, "--store", self.url, env=self._environment))
        return done.returncode, done.stdout, done.stderr

    def value(self, path: str) -> bytes:
        with self.opened() as store:
            return bytes(store.read(path).value)


@pytest.fixture
def run(capture: Callable[[str], Path], tmp_path: Path) -> Run:
    return Run(capture("pulsar-4.2.4-batch-acks-killed-long-arrays"), tmp_path)


def test_a_cursor_is_repaired_from_its_ledger_and_undone(run: Run) -> None:
    with run.opened() as store:
        store.put(CURSOR, b"garbage", store.read(CURSOR).version)
    code, findings, _ = run("check", TOPIC, *run.entries, "-o", "ndjson")
    [finding] = [
        finding for finding in map(json.loads, findings.splitlines()) if finding["severity"] == "error"
    ]
    assert (code, finding["code"]) == (1, "record-undecodable")
    code, out, messages = run("repair", "cursor", TOPIC, "some")
    assert (code, out) == (2, "")
    assert messages.startswith("pulsar-meta: its record can't be read")
    assert messages.count("\n") == 1
    # The finding names a complete command, with store and entries.
    assert f"pulsar-meta repair cursor {TOPIC} some" in finding["repair"]
    code, out, messages = run(*shlex.split(finding["repair"])[1:], "--yes", "-o", "json")
    assert code == 0, messages
    assert "39 entries are left" in messages
    assert run("check", TOPIC, *run.entries, "--severity", "error")[0] == 0
    words = ("undo", json.loads(out)["undo_file"], "--yes", "--allow-unreadable")
    code, _, messages = run(*words)
    assert (code, "the subscription 'some' is lost, with its position" in messages) == (2, True)
    assert run(*words, "--confirm", TOPIC)[0] == 0
    assert run.value(CURSOR) == b"garbage"


def test_skipping_a_backlog_needs_confirm(run: Run) -> None:
    words = ("repair", "cursor", TOPIC, "some", "--latest", *run.entries, "--yes", "-o", "json")
    before = run.value(CURSOR)
    code, out, messages = run(*words)
    assert (code, out, run.value(CURSOR)) == (2, "", before)
    assert "refusing to write because data becomes unreachable" in messages.splitlines()[-1]
    assert f"add --confirm {TOPIC}" in messages.splitlines()[-1]
    assert run(*words, "--confirm", "acked")[0] == 2
    assert run(*words, "--confirm", TOPIC)[0] == 0
    assert run(*words[:4], "--earliest", "--latest")[0] == 2
    assert run(*words[:4], "--position", "1-2")[0] == 2
    code, _, messages = run("repair", "cursor", TOPIC, "nobody", "--earliest", "--yes")
    assert (code, messages.count("\n")) == (3, 1)


def test_verbs_without_anything_to_repair_end_as_documented(run: Run) -> None:
    assert run("repair", "compaction", TOPIC, "--yes")[0] == 0
    assert run("repair", "compaction", TOPIC, "--drop", "--ledger", "1")[0] == 2
    code, _, messages = run("repair", "schema", TOPIC, "--yes")
    assert (code, messages.count("\n")) == (3, 1)
    assert run("repair", "schema", TOPIC, "--schema", "/dev/null")[0] == 2
    assert run("repair", "offload", TOPIC, "--yes")[0] == 0
    assert run("repair", "offload", TOPIC, "seven")[0] == 2
    assert run("repair", "offload", TOPIC, "77777777", "--yes")[0] == 3
    assert run("repair", "cursor", "nowhere", "some", "--yes")[0] == 3
