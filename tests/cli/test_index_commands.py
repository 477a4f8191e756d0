"""`check-index` and `build-index` as scripts call them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.cli.commands import properties
from pulsar_meta.jobs import spill
from tests.cli.program import environment, pulsar_meta_here

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(capture: Callable[[str], Path], tmp_path: Path) -> Run:
    """Return a function that runs the program on a copy of a capture's store and on its bookie."""
    folder = capture("pulsar-4.2.4")
    shutil.copytree(folder / "rocksdb", tmp_path / "rocksdb")
    env = environment(
        tmp_path,
        PULSAR_META_STORE=f"rocksdb:{tmp_path / 'rocksdb'}",
        PULSAR_META_ENTRIES=f"bookie-disk:{folder / 'bookie0'}",
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = pulsar_meta_here(*arguments, env=env)
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    return call


def test_check_index_reports_faults_by_ledger(run: Run) -> None:
    done = run("check-index", "orders", "-o", "json")
    ledgers = {row["ledger_id"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 1
    assert json.loads(done.stderr) == {
        "checked": {"topics": 1, "ledgers": 6, "entries": 163},
        "not_checked": {},
    }
    assert [ledger for ledger, row in ledgers.items() if not row["ok"]] == [22]
    assert (ledgers[22]["property"], ledgers[22]["property_values"]) == ("false", ["2000"])
    assert (ledgers[18]["property"], ledgers[18]["first_index"], ledgers[18]["last_index"]) == (
        "right",
        0,
        785,
    )
    faulty = run("check-index", "public/default", "--faulty", "-o", "ndjson")
    lines = [json.loads(line) for line in faulty.stdout.splitlines()]
    assert {line["topic"].rpartition("/")[2] for line in lines} == {"late-index", "orders", "plain-old"}
    assert lines[0]["faults"][0] == {"fault": "no-index", "entry_id": 0}


def test_check_index_ends_with_0_if_the_topics_are_right(run: Run) -> None:
    done = run("check-index", "txn", "terminated")
    assert (done.returncode, done.stderr) == (0, "checked: 2 topics, 3 ledgers, 32 entries\n")
    assert done.stdout.splitlines()[0].startswith("persistent://public/default/txn\t43\tok\t25\t0\t89\t0")


def test_many_topics_are_checked_in_blocks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = run("check-index", "--all", "-o", "ndjson")
    assert len(at_once.stdout.splitlines()) > 50
    monkeypatch.setattr(spill, "SPOOL_BLOCK", 3)
    monkeypatch.setattr(properties, "LEDGERS_AT_ONCE", 4)
    in_blocks = run("check-index", "--all", "-o", "ndjson")
    assert (in_blocks.returncode, in_blocks.stdout, in_blocks.stderr) == (1, at_once.stdout, at_once.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["check-index"], 2, "--all"),
        (["check-index", "orders", "--all"], 2, "--all"),
        (["check-index", "nowhere"], 3, "no topic persistent://public/default/nowhere"),
        (["check-index", "orders", "--engine", "spark", "--conf", "novalue"], 2, "KEY=VALUE"),
        (["check-index", "orders", "--entries", "bookie-disk:/nowhere"], 3, "no such directory"),
        (["build-index", "--all"], 2, "--yes"),
        (["build-index", "nowhere", "--yes"], 3, "no topic nowhere"),
    ],
)
def test_wrong_arguments_are_one_line_errors(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_build_index_writes_once_and_can_be_undone(run: Run) -> None:
    before = run("properties", "orders", "-o", "json").stdout
    plan = run("build-index", "orders", "--dry-run")
    lines = [json.loads(line) for line in plan.stdout.splitlines()]
    assert plan.returncode == 0
    assert [line["action"] for line in lines if "action" in line] == ["rewrite"]
    assert run("properties", "orders", "-o", "json").stdout == before
    written = run("build-index", "orders", "--yes", "--allow-loaded", "-o", "json")
    summary = json.loads(written.stdout)
    assert (written.returncode, summary["rewritten"]) == (0, 1)
    properties = {
        row["ledger_id"]: row["properties"]
        for row in json.loads(run("properties", "orders", "-o", "json").stdout)
    }
    # Existing properties stay, even the false one. The empty last ledger gets none.
    assert {ledger: values.get("first-index") for ledger, values in properties.items()} == {
        18: "0", 21: "786", 22: "2000", 23: "2430", 242: "2500", 334: None,
    }  # fmt: skip
    repeated = json.loads(run("build-index", "orders", "--yes", "--allow-loaded", "-o", "json").stdout)
    assert repeated["rewritten"] == 0
    sought = run("seek", "orders", "--index", "2500", "-o", "json")
    assert json.loads(sought.stdout)[0]["ledger_id"] == 242
    assert run("undo", summary["undo_file"], "--yes", "--allow-loaded").returncode == 0
    assert run("properties", "orders", "-o", "json").stdout == before


def test_build_index_repairs_properties_that_check_index_calls_false(run: Run) -> None:
    before = run("properties", "orders", "-o", "json").stdout
    run("build-index", "orders", "--yes", "--allow-loaded")
    repaired = run("build-index", "orders", "--repair", "--yes", "--allow-loaded", "-o", "json")
    summary = json.loads(repaired.stdout)
    assert (repaired.returncode, summary["rewritten"]) == (0, 1)
    checked = json.loads(run("check-index", "orders", "-o", "json").stdout)
    assert {row["property"] for row in checked if row["entries"]} == {"right"}
    repeated = json.loads(
        run("build-index", "orders", "--repair", "--yes", "--allow-loaded", "-o", "json").stdout
    )
    assert (repeated["rewritten"], repeated["kept"]) == (0, 1)
    run("undo", summary["undo_file"], "--yes", "--allow-loaded")
    assert before != run("properties", "orders", "-o", "json").stdout


def test_build_index_notes_ledgers_without_indexes_or_entries(run: Run, tmp_path: Path) -> None:
    without_index = run("build-index", "plain-old", "--yes", "--allow-loaded")
    assert without_index.returncode == 0
    assert "3 ledgers without the property: the first entry has no index" in without_index.stderr
    (tmp_path / "some.frames").write_bytes(b"\0\0\0\0")
    frames = ("--entries", f"frames:{tmp_path / 'some.frames'}")
    unseen = run("build-index", "orders", "--repair", "--dry-run", *frames)
    assert unseen.returncode == 1
    assert "with a property that was not checked: no source has the first entry" in unseen.stderr
    missing = run("build-index", "orders", "--dry-run", "--entries", f"frames:{tmp_path / 'some.frames'}")
    assert "no source has the first entry" in missing.stderr
    assert missing.returncode == 1


def test_a_partitioned_topic_has_the_ledgers_of_its_partitions(run: Run) -> None:
    lines = [json.loads(line) for line in run("properties", "parted", "-o", "ndjson").stdout.splitlines()]
    assert {line["topic"] for line in lines} == {
        f"persistent://public/default/parted-partition-{number}" for number in range(3)
    }
    assert run("set-property", "parted", "39", "a=b", "--yes").returncode == 0
    (row,) = json.loads(run("properties", "parted", "--ledger", "39", "-o", "json").stdout)
    assert row["properties"] == {"a": "b"}
    assert row["topic"].endswith("-partition-1")
    spread = run("set-property", "parted", "38,39", "a=b", "--yes")
    assert (spread.returncode, spread.stderr.count("\n")) == (3, 1)
    assert run("properties", "parted", "--ledger", "18").returncode == 3
    assert "persistent://public/default/parted-partition-1\t39\ta=b\n" in run("properties", "parted").stdout


def test_a_missing_partition_is_an_error_and_the_others_are_shown(run: Run) -> None:
    removed = "/managed-ledgers/public/default/persistent/parted-partition-0"
    name = "persistent://public/default/parted-partition-0"
    assert run("rm", removed, "--yes", "--confirm", name).returncode == 0
    for words in (["properties", "parted"], ["tree", "topic", "parted"], ["get", "topic", "parted"]):
        done = run(*words, "-o", "ndjson")
        faults = [line for line in done.stderr.splitlines() if '"error"' in line]
        assert (done.returncode, len(faults)) == (3, 1), done.stderr
        assert "parted-partition-0" in faults[0]
        assert "parted-partition-1" in done.stdout
        assert "parted-partition-2" in done.stdout
    assert run("ls", "topic", "parted").returncode == 3
    assert run("set-property", "parted", "39", "a=b", "--yes").returncode == 0
    assert run("set-property", "parted", "18", "a=b", "--yes").returncode == 3


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["check-index", "txn"], 0),
        (["seek", "orders", "--index", "5"], 0),
        (["build-index", "orders", "--dry-run"], 0),
    ],
)
def test_a_disk_without_its_index_is_noted(
    run: Run, capture: Callable[[str], Path], tmp_path: Path, command: list[str], code: int
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder, ignore=shutil.ignore_patterns("locations"))
    done = run(*command, "--entries", f"bookie-disk:{folder}")
    assert done.returncode == code
    assert done.stderr.count("scanning the entry logs, because their index") == 1


def test_a_log_that_cannot_be_read_is_an_error(
    run: Run, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder)
    (folder / "current" / "80000000.log").write_bytes(b"")
    done = run("check-index", "orders", "--entries", f"bookie-disk:{folder}?index=scan")
    assert done.returncode == 4
    assert done.stderr.count("80000000.log") == 1
    assert len(done.stdout.splitlines()) == len(run("check-index", "orders").stdout.splitlines())


def properties_of(run: Run, *words: str) -> dict[tuple[str, int], dict[str, str]]:
    """Return the properties that `properties` shows, by topic and ledger."""
    rows = json.loads(run("properties", *words, "-o", "json").stdout)
    return {(row["topic"].rpartition("/")[2], row["ledger_id"]): row["properties"] for row in rows}


def test_properties_of_a_namespace_can_be_selected_by_key(run: Run) -> None:
    run("build-index", "txn", "terminated", "--yes", "--allow-loaded")
    run("set-property", "txn", "43", "owner=me", "--yes", "--allow-loaded")
    done = run("properties", "public/default", "--key", "first-index")
    lines = done.stdout.splitlines()
    assert "persistent://public/default/txn\t43\tfirst-index=0" in lines
    assert all("first-index=" in line and "owner" not in line for line in lines)
    assert done.stderr.startswith("checked: ")
    assert properties_of(run, "txn", "orders", "--key", "owner") == {("txn", 43): {"owner": "me"}}
    assert (
        len(properties_of(run, "--all"))
        > len(properties_of(run, "public/default", "--key", "first-index"))
        == 4
    )
    empty = run("properties", "txn", "--key", "no-such", "-o", "json")
    assert (empty.returncode, empty.stdout) == (0, "[]\n")
    assert json.loads(empty.stderr)["checked"] == {"topics": 1, "ledgers": 2}
    for words in ([], ["txn", "--all"]):
        assert run("properties", *words).returncode == 2
    missing = run("properties", "public/nowhere")
    assert (missing.returncode, missing.stdout) == (3, "")
    partial = run("properties", "nowhere", "txn", "-o", "json")
    assert (partial.returncode, len(json.loads(partial.stdout))) == (3, 2)


def test_kafkas_base_offset_can_be_the_index_property(run: Run) -> None:
    key = ("--index-property", "kafka.base.offset")
    assert run("build-index", "orders", *key, "--yes", "--allow-loaded").returncode == 0
    shown = properties_of(run, "orders", "--key", "kafka.base.offset")
    assert shown["orders", 22] == {"kafka.base.offset": "1634"}
    assert {
        row["property"] for row in json.loads(run("check-index", "orders", *key, "-o", "json").stdout)
    } == {*("right", "absent")}
    assert (
        json.loads(run("seek", "orders", "--index", "1700", *key, "-o", "json").stdout)[0]["ledger_id"] == 22
    )


def test_unset_property_works_on_many_topics(run: Run, tmp_path: Path) -> None:
    run("build-index", "txn", "terminated", "--yes", "--allow-loaded")
    before = properties_of(run, "--all")
    words = ("unset-property", "first-index", "--topic", "t*", "--allow-loaded")
    plan = run(*words, "--dry-run", "-o", "ndjson")
    actions = [json.loads(line) for line in plan.stdout.splitlines()][1:]
    assert sum(line["action"] == "rewrite" for line in actions) == 2
    assert properties_of(run, "--all") == before
    without_yes = run(*words)
    assert (without_yes.returncode, without_yes.stdout) == (2, "")
    done = run(*words, "--yes", "-o", "json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["rewritten"]) == (0, 2)
    after = properties_of(run, "--all")
    assert {place for place in before if before[place] != after[place]} == {
        place for place in before if place[0] in ("txn", "terminated") and before[place]
    }
    assert ("orders", 18) in after
    assert after["orders", 18] == before["orders", 18]
    assert json.loads(run(*words, "--yes", "-o", "json").stdout)["rewritten"] == 0
    run("undo", summary["undo_file"], "--yes", "--allow-loaded")
    assert properties_of(run, "--all") == before


def test_unset_property_obeys_the_guards(run: Run, tmp_path: Path) -> None:
    (tmp_path / "flag").write_bytes(b'{"phase":"COPYING","targetUrl":"oxia://o"}')
    flag = "/pulsar/migration-coordinator/migration"
    run("put", flag, "--create", "--raw", "--yes", "--file", str(tmp_path / "flag"))
    before = properties_of(run, "--all")
    refused = run("unset-property", "first-index", "--all", "--yes", "-o", "json")
    assert (refused.returncode, refused.stdout) == (7, "")
    assert properties_of(run, "--all") == before
    passed = run("unset-property", "first-index", "--all", "--yes", "--allow-migration", "-o", "json")
    assert json.loads(passed.stdout)["rewritten"] == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["first-index"], 2, "TOPIC LEDGER KEY"),
        (["orders", "first-index"], 2, "TOPIC LEDGER KEY"),
        (["first-index", "--all", "--topic", "orders"], 2, "--all"),
        (["orders", "18", "first-index", "--resume"], 2, "--resume"),
        (["first-index", "--topic", "nowhere", "--yes"], 3, "no topic"),
        (["first-index", "--namespace", "default", "--yes"], 2, "tenant/namespace"),
        (["first-index", "--namespace", "public/nowhere", "--yes"], 3, "no namespace"),
        (["orders", "18", "first-index"], 2, "--yes"),
    ],
)
def test_wrong_arguments_of_unset_property_are_one_line_errors(
    run: Run, words: list[str], code: int, message: str
) -> None:
    done = run("unset-property", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
