"""Commands on shadow topics use the ledgers of the source, and tell if the source is missing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.program import as_text, environment, pulsar_meta_here
from tests.seek_truth import compare_capture, read_truth

Run = Callable[..., "CompletedProcess[str]"]
DEFAULT = "persistent://public/default"
DELETED = f"{DEFAULT}/of-deleted"


@pytest.fixture
def folder(capture: Callable[[str], Path]) -> Path:
    return capture("pulsar-4.2.4-shadows")


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    """Return a function that runs the program on a copy of the capture's store and on its bookie."""
    shutil.copytree(folder / "rocksdb", tmp_path / "rocksdb")
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"rocksdb:{tmp_path / 'rocksdb'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )
    return lambda *arguments: as_text(pulsar_meta_here(*arguments, env=env))


def entries_of(topic_truth: dict[str, Any]) -> int:
    return len({(message["l"], message["e"]) for message in topic_truth["messages"]})


@pytest.mark.parametrize("name", ["shadow", "of-short", "of-shadow", "of-terminated", "of-parted"])
def test_the_entries_of_a_shadow_are_those_that_the_broker_reads(run: Run, folder: Path, name: str) -> None:
    truth = read_truth(folder)
    shadows = [each for topic, each in truth.items() if topic.removeprefix(f"{DEFAULT}/").startswith(name)]
    count = sum(map(entries_of, shadows))
    for command in ("dump-entries", "verify-entries", "check-index"):
        done = run(command, name, "-o", "json")
        summary = json.loads(done.stderr.splitlines()[-1])
        assert (done.returncode, summary["not_checked"]) == (0, {}), command
        assert summary["checked"]["entries"] == count, command


def test_seek_agrees_with_the_broker(folder: Path) -> None:
    table = compare_capture(folder)
    assert table.wrong == []
    assert table.indexes == table.indexes_right > 1000


def test_seek_finds_messages_after_the_shadows_snapshot(run: Run, folder: Path) -> None:
    last = read_truth(folder)[f"{DEFAULT}/shadow"]["messages"][-1]
    done = run("seek", "shadow", "--index", str(last["ix"]))
    assert (done.returncode, done.stdout) == (0, f"{last['l']}:{last['e']}:{last['b']}\n")


@pytest.mark.parametrize("command", ["dump-entries", "verify-entries", "check-index"])
def test_a_shadow_without_source_is_read_from_its_snapshot(run: Run, command: str) -> None:
    done = run(command, "of-deleted", "-o", "json")
    error, summary = map(json.loads, done.stderr.splitlines())
    assert (done.returncode, error["error"], error["source"]) == (3, "not-found", DELETED)
    assert f"its source {DEFAULT}/deleted does not exist" in error["message"]
    assert list(summary["not_checked"]) == [DELETED]
    assert summary["checked"]["entries"] > 0


def test_seek_works_on_the_snapshot_of_a_shadow_without_source(run: Run) -> None:
    done = run("seek", "of-deleted", "--index", "3", "-o", "json")
    (answer,) = json.loads(done.stdout)
    assert (done.returncode, answer["status"]) == (0, "found")
    assert "snapshot" in answer
    summary = json.loads(done.stderr.splitlines()[-1])
    assert list(summary["not_checked"]) == [DELETED]
    assert run("seek", "of-deleted", "--index", "5000").returncode == 3
    assert run("seek", "of-deleted", "--expired", "1").returncode == 3


def test_properties_are_those_of_the_source(run: Run) -> None:
    own, source = (json.loads(run("properties", name, "-o", "json").stdout) for name in ("shadow", "source"))
    assert own == [row | {"topic": f"{DEFAULT}/shadow", "shadow_of": f"{DEFAULT}/source"} for row in source]
    table = run("properties", "shadow", "-o", "table").stdout
    assert "shadow of" in table.lower()
    assert f"{DEFAULT}/source" in table
    without_source = run("properties", "of-deleted")
    assert (
        without_source.returncode,
        "only the ledgers in the shadow topic's own record" in without_source.stderr,
    ) == (
        3,
        True,
    )


def test_check_index_names_the_source(run: Run) -> None:
    documents = json.loads(run("check-index", "shadow", "-o", "json").stdout)
    assert {document["shadow_of"] for document in documents} == {f"{DEFAULT}/source"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["build-index", "shadow"],
        ["build-index", "of-parted"],
        ["set-property", "shadow", "7", "a=b"],
        ["unset-property", "of-parted-partition-1", "6", "a"],
        ["build-index", "of-deleted"],
    ],
)
def test_properties_of_a_shadow_cannot_be_written(run: Run, arguments: list[str]) -> None:
    done = run(*arguments, "--yes", "--allow-loaded")
    assert (done.returncode, done.stdout) == (7, "")
    assert "a shadow topic" in done.stderr
    assert "\n" not in done.stderr.strip()


def test_build_index_skips_the_shadows_of_a_namespace(run: Run) -> None:
    done = run("build-index", "public/default", "--yes", "--allow-loaded", "-o", "json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["skipped_for"]) == (0, {"shadow": 8})
    assert "8 shadow topics skipped" in done.stderr
    checked = json.loads(run("check-index", "shadow", "of-shadow", "-o", "json").stdout)
    # The source of `of-shadow` is itself a shadow, which has only its own list of ledgers.
    assert {row["property"] for row in checked if row["topic"].endswith("/shadow")} == {"right"}


def test_check_finds_only_the_faults_of_shadows(run: Run) -> None:
    done = run("check", "--all", "--severity", "warning", "-o", "ndjson")
    topics_by_code = {
        finding["code"]: finding["topic"] for finding in map(json.loads, done.stdout.splitlines())
    }
    assert done.returncode == 1
    assert topics_by_code == {
        "shadow-without-source": DELETED,
        "shadow-lists-deleted-ledgers": f"{DEFAULT}/of-trimmed",
    }
    assert len(done.stdout.splitlines()) == 2
