"""The command `check`: its forms, its exit codes, and what it says that it did not look at."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from pulsar_meta.codecs.names import ledger_path
from tests.cli.program import as_text, pulsar_meta_here

Capture = Callable[[str], Path]
PLAIN = "persistent://public/default/plain"


def run(*arguments: object) -> CompletedProcess[str]:
    return as_text(pulsar_meta_here("check", *arguments))


@pytest.fixture
def folder(capture: Capture) -> Path:
    return capture("pulsar-4.2.4")


@pytest.fixture
def healthy(folder: Path) -> list[object]:
    return ["--store", f"snapshot:{folder}/metadata.ndjson"]


@pytest.fixture
def wounded(folder: Path, tmp_path: Path) -> list[object]:
    """The store without the metadata of one ledger of the topic `plain`."""
    lines = (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["path"] != ledger_path(25)]
    (tmp_path / "wounded.ndjson").write_text("".join(kept), encoding="utf-8")
    return ["--store", f"snapshot:{tmp_path}/wounded.ndjson"]


def test_a_store_that_is_well_says_what_was_looked_at(folder: Path, healthy: list[object]) -> None:
    done = run(*healthy, "--severity", "warning")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith(" old)\n")
    assert "checked: 200 ledgers, 45 topics, 83 cursors, 8 schemas; not checked: entries (no" in done.stderr
    assert "what changed since 2026-11-21T06:06:34.799Z (this is a copy, " in done.stderr
    assert "--entries" not in run(*healthy, "--entries", f"bookie-disk:{folder}").stderr


def test_a_finding_in_every_form(wounded: list[object]) -> None:
    done = run(*wounded, "-o", "json", "--severity", "error")
    assert done.returncode == 1
    [finding] = json.loads(done.stdout)
    assert finding.pop("message").startswith(
        "BookKeeper has no metadata of it: its 50 entries cannot be read"
    )
    assert finding == {
        "code": "ledger-without-metadata",
        "severity": "error",
        "topic": PLAIN,
        "ledger_id": 25,
        "path": "/managed-ledgers/public/default/persistent/plain",
        "evidence": {"entries": 50, "size": 14119, "on_bookies": None},
        "repair": "pulsar-meta repair ledger-metadata 25",
    }
    hidden, seen = map(json.loads, done.stderr.splitlines())
    assert (hidden["level"], hidden["message"]) == ("note", "not shown by --severity: 4 notes")
    assert seen["not_checked"]["entries"] == "no --entries"
    lines = run(*wounded, "-o", "ndjson").stdout.splitlines()
    assert {json.loads(line)["severity"] for line in lines} == {"error", "note"}
    rows = list(csv.DictReader(io.StringIO(run(*wounded, "-o", "csv", "--only", "ledgers").stdout)))
    assert [(row["code"], row["ledger_id"]) for row in rows] == [("ledger-without-metadata", "25")]
    plain = run(*wounded, "--only", "ledger-without-metadata").stdout.split("\t")
    assert plain[:5] == ["error", "ledger-without-metadata", PLAIN, "-", "25"]
    assert "ledger-without-metadata" in run(*wounded, "-o", "table").stdout


def test_what_is_chosen(wounded: list[object], healthy: list[object]) -> None:
    assert run(*wounded, "plain").returncode == 1
    assert run(*wounded, "public/default", "--severity", "error").returncode == 1
    assert run(*wounded, "public/zero", "orders").returncode == 0
    assert "checked: 6 ledgers, 1 topic, " in (some := run(*wounded, "orders").stderr)
    assert "ledgers and topics that no record names (no --all), orphans, bookies (only" in some
    assert "checked: 199 ledgers, " in (all_of_them := run(*wounded, "orders", "--all").stderr)
    assert "no --all" not in all_of_them
    assert run(*wounded, "--except", "ledgers").returncode == 0
    assert run(*wounded, "--only", "cursors,records").returncode == 0
    assert run(*healthy, "--for-version", "4.2.4", "--only", "record-unreadable").returncode == 1
    assert run(*healthy, "--for-version", "4.0.7", "--only", "record-unreadable").stdout == ""


def test_strict_counts_warnings(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if json.loads(line)["path"] != ledger_path(338)]
    (tmp_path / "last.ndjson").write_text("".join(kept), encoding="utf-8")
    where = ["--store", f"snapshot:{tmp_path}/last.ndjson"]
    assert run(*where).returncode == 0
    assert run(*where, "--strict").returncode == 1
    # What is not shown is counted all the same, and said.
    hidden = run(*where, "--strict", "--severity", "error")
    assert (hidden.returncode, hidden.stdout) == (1, "")
    assert "not shown by --severity: 1 warning, " in hidden.stderr
    # The bookie has no entry of it: it was empty, and nothing is lost.
    assert run(*where, "--strict", "--entries", f"bookie-disk:{folder}").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothere"], 3, "no topic persistent://public/default/nothere"),
        (["nobody/here"], 3, "nothing named nobody/here"),
        (["plain", "--engine", "spark"], 2, "--engine spark is for all of a store: name no topics"),
        (["--only", "nonsense"], 2, "'nonsense' is no code and no group"),
        (["--min-age", "soon"], 2, "a duration is seconds"),
        (["--for-version", "new"], 2, "a Pulsar version is like"),
        (["--entries", "bookie-disk:/nowhere"], 3, "no such directory"),
        (["--entries", "bookie:"], 6, "bookie"),
    ],
)
def test_bad_input(healthy: list[object], arguments: list[str], code: int, text: str) -> None:
    done = run(*healthy, *arguments)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_before_an_upgrade(healthy: list[object]) -> None:
    done = run(*healthy, "--before-upgrade", "4.2.4", "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"], found["version"], found["from"]) == (
        1,
        "not-safe",
        "4.2.4",
        [],
    )
    [reason] = found["reasons"]
    assert reason["reason"] == "compressed-cursor-with-properties"
    assert (reason["count"], len(reason["places"])) == (3, 3)
    assert json.loads(done.stderr)["not_checked"]["entries"] == "no --entries"
    plain = run(*healthy, "--before-upgrade", "4.2.9")
    assert plain.returncode == 3
    assert plain.stdout.startswith("unknown\tverdict\t-\tto Pulsar 4.2.9")
    assert run(*healthy, "--before-upgrade", "new").returncode == 2
    assert run(*healthy, "plain", "--before-upgrade", "4.2.4").returncode == 2
