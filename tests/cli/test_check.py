"""The command `check`: its formats, its exit codes, and its report of unchecked parts."""

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
def damaged(folder: Path, tmp_path: Path) -> list[object]:
    """The store without the metadata of a ledger of the topic `plain`."""
    lines = (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    remaining = [line for line in lines if json.loads(line)["path"] != ledger_path(25)]
    (tmp_path / "damaged.ndjson").write_text("".join(remaining), encoding="utf-8")
    return ["--store", f"snapshot:{tmp_path}/damaged.ndjson"]


def test_a_healthy_store_has_a_summary_of_the_checks(folder: Path, healthy: list[object]) -> None:
    done = run(*healthy, "--severity", "error")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith(" old)\n")
    assert "checked: 200 ledgers, 45 topics, 83 cursors, 8 schemas; not checked: entries (no" in done.stderr
    assert "changes since 2026-11-21T06:06:34.799Z (this is a copy, " in done.stderr
    assert "--entries" not in run(*healthy, "--entries", f"bookie-disk:{folder}").stderr


def test_a_finding_in_every_format(damaged: list[object]) -> None:
    done = run(*damaged, "-o", "json", "--severity", "error")
    assert done.returncode == 1
    [finding] = json.loads(done.stdout)
    assert finding.pop("message").startswith("BookKeeper has no metadata of it: its 50 entries can't be read")
    evidence = finding["evidence"]
    assert (evidence.pop("for"), evidence.pop("against")) == (
        [{"source": "list", "says": "the topic's list names it"}],
        [],
    )
    assert finding == {
        "code": "ledger-without-metadata",
        "severity": "error",
        "topic": PLAIN,
        "ledger_id": 25,
        "path": "/managed-ledgers/public/default/persistent/plain",
        "evidence": {"entries": 50, "size": 14119, "on_bookies": None},
        "repair": "pulsar-meta repair ledger-metadata 25",
        "page": "findings/#ledger-without-metadata",
    }
    hidden, seen = map(json.loads, done.stderr.splitlines())
    assert (hidden["level"], hidden["message"]) == ("note", "hidden by --severity: 3 warnings, 1 note")
    assert seen["not_checked"]["entries"] == "no --entries"
    lines = run(*damaged, "-o", "ndjson").stdout.splitlines()
    assert {json.loads(line)["severity"] for line in lines} == {"error", "warning", "note"}
    rows = list(csv.DictReader(io.StringIO(run(*damaged, "-o", "csv", "--only", "ledgers").stdout)))
    assert [(row["code"], row["ledger_id"]) for row in rows] == [("ledger-without-metadata", "25")]
    plain = run(*damaged, "--only", "ledger-without-metadata").stdout.split("\t")
    assert plain[:5] == ["error", "ledger-without-metadata", PLAIN, "-", "25"]
    assert "ledger-without-metadata" in run(*damaged, "-o", "table").stdout


def test_topics_and_codes_can_be_selected(damaged: list[object], healthy: list[object]) -> None:
    assert run(*damaged, "plain").returncode == 1
    assert run(*damaged, "public/default", "--severity", "error").returncode == 1
    assert run(*damaged, "public/zero", "orders").returncode == 0
    assert "checked: 6 ledgers, 1 topic, " in (summary := run(*damaged, "orders").stderr)
    assert "ledgers and topics that no record refers to (no --all), orphans, bookies (you" in summary
    assert "checked: 199 ledgers, " in (summary := run(*damaged, "orders", "--all").stderr)
    assert "no --all" not in summary
    assert run(*damaged, "--except", "ledgers").returncode == 0
    assert run(*damaged, "--only", "cursors,records").returncode == 0
    assert run(*healthy, "--for-version", "4.2.4", "--only", "record-unreadable").returncode == 1
    assert run(*healthy, "--for-version", "4.0.7", "--only", "record-unreadable").stdout == ""


def test_a_record_that_a_tested_release_cannot_load_is_a_warning_without_a_release(
    healthy: list[object],
) -> None:
    lines = run(*healthy, "--only", "record-unreadable", "-o", "ndjson").stdout.splitlines()
    findings = [json.loads(line) for line in lines]
    assert {finding["severity"] for finding in findings} == {"warning"}
    assert all("4.2.4 and 5.0.0-M1 can't load it" in finding["message"] for finding in findings)
    assert all("--for-version" in finding["message"] for finding in findings)
    assert all("compress-cursors" in finding["repair"] for finding in findings)
    named = run(*healthy, "--only", "record-unreadable", "--for-version", "4.2.4", "-o", "ndjson").stdout
    assert {json.loads(line)["severity"] for line in named.splitlines()} == {"error"}


def test_limits_for_acknowledgements_come_from_broker_conf(healthy: list[object], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("managedLedgerMaxUnackedRangesToPersist=5\n", encoding="utf-8")
    words = (*healthy, "--only", "cursor-ack-limit")
    assert run(*words).stdout == ""
    done = run(*words, "--from-conf", str(conf), "-o", "ndjson")
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert {finding["evidence"]["limit"] for finding in findings} == {5}
    reached = {finding["severity"] for finding in findings if finding["evidence"]["used"] >= 5}
    near = {finding["severity"] for finding in findings if finding["evidence"]["used"] < 5}
    assert (reached, near) == ({"error"}, {"warning"})


def test_strict_counts_warnings(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "metadata.ndjson").read_text(encoding="utf-8").splitlines(keepends=True)
    remaining = [line for line in lines if json.loads(line)["path"] != ledger_path(338)]
    (tmp_path / "last.ndjson").write_text("".join(remaining), encoding="utf-8")
    store = ["--store", f"snapshot:{tmp_path}/last.ndjson", "--except", "record-unreadable"]
    assert run(*store).returncode == 0
    assert run(*store, "--strict").returncode == 1
    # Findings that are not shown still count, and a note tells that they are hidden.
    hidden = run(*store, "--strict", "--severity", "error")
    assert (hidden.returncode, hidden.stdout) == (1, "")
    assert "hidden by --severity: 1 warning, " in hidden.stderr
    # The bookie has no entry of the ledger, so it was empty and nothing is lost.
    assert run(*store, "--strict", "--entries", f"bookie-disk:{folder}").returncode == 0


def test_an_age_can_be_zero(healthy: list[object]) -> None:
    assert (
        run(*healthy, "orders", "--min-age", "0s").stdout == run(*healthy, "orders", "--min-age", "0").stdout
    )
    assert run(*healthy, "orders", "--min-age", "0s").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothere"], 3, "no topic persistent://public/default/nothere"),
        (["other/here"], 3, "nothing matches other/here"),
        # A name that exists does not hide one that does not.
        (["orders", "nothere"], 3, "no topic persistent://public/default/nothere"),
        (["orders", "other/here"], 3, "nothing matches other/here"),
        (["orders", "nothere*"], 3, "nothing matches nothere*"),
        (["plain", "--engine", "spark"], 2, "--engine spark checks a whole store: remove the topics"),
        (["--only", "nonsense"], 2, "'nonsense' is not a code or a group"),
        (["--min-age", "soon"], 2, "invalid duration 'soon'"),
        (["--for-version", "new"], 2, "invalid Pulsar version"),
        (["--entries", "bookie-disk:/nowhere"], 3, "no such directory"),
        (["--entries", "bookie:"], 6, "bookie"),
    ],
)
def test_invalid_arguments_are_explained(
    healthy: list[object], arguments: list[str], code: int, text: str
) -> None:
    done = run(*healthy, *arguments)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_before_upgrade_gives_a_verdict(healthy: list[object]) -> None:
    done = run(*healthy, "--before-upgrade", "4.2.4", "-o", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["verdict"], document["version"], document["from"]) == (
        1,
        "not-safe",
        "4.2.4",
        [],
    )
    [reason] = document["reasons"]
    assert reason["reason"] == "compressed-cursor-with-properties"
    assert (reason["count"], len(reason["places"])) == (3, 3)
    assert json.loads(done.stderr)["not_checked"]["entries"] == "no --entries"
    plain = run(*healthy, "--before-upgrade", "4.2.9")
    assert plain.returncode == 3
    assert plain.stdout.startswith(
        "unknown\tverdict\t-\tIt is not known if this cluster can be upgraded to 4.2.9"
    )
    assert run(*healthy, "--before-upgrade", "new").returncode == 2
    assert run(*healthy, "plain", "--before-upgrade", "4.2.4").returncode == 2
