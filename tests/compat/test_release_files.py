"""This release undoes, resumes, applies and reads files that the first release wrote."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.stores.registry import open_store
from tests.cli.program import environment, pulsar_meta_here

FILES = Path(__file__).parents[2] / "fixtures" / "release-0.1"
ORDERS = "/managed-ledgers/public/default/persistent/orders"
RUNS = ("compress", "set-property", "rm", "put")


def values_in(name: str) -> dict[str, bytes]:
    lines = [json.loads(line) for line in (FILES / name).read_text().splitlines()]
    return {line["path"]: base64.b64decode(line["value"]) for line in lines}


class Place:
    """A directory with the old release's files and a `dir:` store, in which the program runs."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        shutil.copytree(FILES, self.root)
        self.env = environment(root / "state")

    def fill_store(self, name: str) -> None:
        for path, value in values_in(name).items():
            folder = self.root / f"store{path}"
            folder.mkdir(parents=True)
            (folder / ".value").write_bytes(value)

    def run(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[bytes]:
        done = pulsar_meta_here(*words, env=self.env, folder=self.root)
        assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
        return done

    def summary(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json").stdout)

    def values(self) -> dict[str, bytes]:
        with open_store(f"dir:{self.root / 'store'}") as store:
            return {value.path: value.value for value in store.scan("/")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("run", RUNS)
def test_an_old_runs_changes_are_undone(place: Place, run: str) -> None:
    place.fill_store(f"after-{run}.ndjson")
    changed = {
        path
        for path, value in (values_in("before.ndjson") | values_in(f"after-{run}.ndjson")).items()
        if values_in("before.ndjson").get(path) != values_in(f"after-{run}.ndjson").get(path)
    }
    done = place.summary("undo", f"undo-{run}.ndjson", "--yes", "--store", "dir:store")
    assert done["rewritten"] == len(changed) > 0
    assert done["skipped"] == done["conflicts"] == 0
    assert place.values() == values_in("before.ndjson")


def test_an_old_killed_run_is_undone(place: Place) -> None:
    place.fill_store("after-half.ndjson")
    assert place.values() != values_in("before.ndjson")
    done = place.summary("undo", "undo-half.ndjson", "--yes", "--store", "dir:store")
    assert done["rewritten"] == 3
    assert place.values() == values_in("before.ndjson")


# The kill may have hit after the last answer, before it, within it, or within a record.
@pytest.mark.parametrize("cut", [0, 1, 2, 20, 60, 400])
def test_an_old_killed_run_is_resumed_and_then_undone(place: Place, cut: int) -> None:
    place.fill_store("after-half.ndjson")
    undo_file = place.root / "undo-half.ndjson"
    lines = undo_file.read_bytes().splitlines(keepends=True)
    os.truncate(undo_file, undo_file.stat().st_size - min(cut, len(lines[-1])))
    words = ("compress-cursors", "--compression", "zstd", "--threshold", "0", "--yes")
    bold = ("--allow-loaded", "--allow-unreadable", "--store", "dir:store")
    done = place.summary(*words, *bold, "--resume", "--undo-file", "undo-half.ndjson")
    assert done["rewritten"] == 5
    assert place.values() == values_in("after-compress.ndjson")
    place.run("undo", "undo-half.ndjson", "--yes", "--store", "dir:store")
    assert place.values() == values_in("before.ndjson")


def test_an_old_plan_is_applied(place: Place) -> None:
    place.fill_store("before.ndjson")
    lines = [json.loads(line) for line in (FILES / "plan.ndjson").read_text().splitlines()[1:]]
    planned = {line["path"] for line in lines if line["action"] == "rewrite"}
    place.run("compress-cursors", "--plan", "plan.ndjson", "--yes", "--store", "dir:store")
    current, before, after = place.values(), values_in("before.ndjson"), values_in("after-compress.ndjson")
    assert planned
    assert {path for path in before if current[path] != before[path]} == planned
    assert {path: current[path] for path in planned} == {path: after[path] for path in planned}


def test_an_old_snapshot_and_old_documents_are_read(place: Place) -> None:
    words = ("--store", "snapshot:before.ndjson", "-o", "json", "--show-passwords")
    documents = json.loads(place.run("decode", *words).stdout)
    old_documents = json.loads((FILES / "documents.json").read_text())
    # `encode` compresses again, so the size may differ. The meaning may not.
    names = ("path", "version", "kind", "value", "meaning")
    assert [[document[name] for name in names] for document in documents] == [
        [document[name] for name in names] for document in old_documents
    ]
    place.run("encode", "documents.json", "--output", "again.ndjson")
    assert (place.root / "again.ndjson").read_bytes() == (FILES / "before.ndjson").read_bytes()


def test_old_frames_are_read(place: Place) -> None:
    source = ("--entries", "frames:frames")
    entries = json.loads(place.run("dump-entries", *source, "-o", "json").stdout)
    positions = [json.loads(line) for line in (FILES / "frames.idx").read_text().splitlines()]
    assert [(entry["ledger_id"], entry["entry_id"]) for entry in entries] == [
        (position["ledger"], position["entry"]) for position in positions
    ]
    assert {entry["frame_checksum"] for entry in entries} == {"ok"}
    place.run("dump-entries", *source, "-o", "raw", "--output", "again")
    for name in ("frames", "frames.idx"):
        assert (place.root / name.replace("frames", "again")).read_bytes() == (FILES / name).read_bytes()


def test_old_profiles_still_work(place: Place) -> None:
    place.fill_store("before.ndjson")
    place.env |= {"PULSAR_META_CONFIG": str(place.root / "config.toml")}
    assert b"local-policies" in place.run("ls", "/admin").stdout.split()
    assert (
        place.run("get", ORDERS, "--profile", "copy", "-o", "raw").stdout
        == values_in("before.ndjson")[ORDERS]
    )
    for profile in ("copy", "one-source"):
        lines = place.run("dump-entries", "--profile", profile, "-o", "ndjson").stdout.splitlines()
        assert len(lines) == 12
