"""`pulsar-meta seek` as scripts call it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import as_text, pulsar_meta, pulsar_meta_here

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_environment(capture: Callable[[str], Path]) -> dict[str, str]:
    """Return an environment that names a capture's store and disks."""
    folder = capture("pulsar-4.2.4")
    return {
        **os.environ,
        "PULSAR_META_STORE": f"snapshot:{folder / 'metadata.ndjson'}",
        "PULSAR_META_ENTRIES": f"bookie-disk:{folder / 'bookie0'}",
        "PULSAR_META_CONFIG": os.devnull,
    }


@pytest.fixture
def run(run_environment: dict[str, str], tmp_path: Path) -> Run:
    """Return a function that runs the command on a capture in an empty directory."""

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        words, env, given = ("seek", *arguments), run_environment | more, b"orders\t0\n"
        if "spark" in arguments:
            return as_text(pulsar_meta(*words, env=env, stdin=given, folder=tmp_path))
        return as_text(pulsar_meta_here(*words, env=env, stdin=given, folder=tmp_path))

    return call


def test_a_line_an_answer_in_a_pipe(run: Run) -> None:
    done = run("orders", "--index", "1234", "--index", "0", "--index", "99999")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "21:25:2\n18:0:-1\n-\n",
        "checked: 3 questions, 12 entries\n",
    )
    assert run("orders", "--index", "1234").returncode == 0


def test_json_and_ndjson(run: Run, tmp_path: Path) -> None:
    (answer,) = json.loads(run("orders", "--index", "1234", "-o", "json").stdout)
    reads = answer.pop("entries_read")
    assert 0 < reads < 12
    assert answer == {
        "topic": "persistent://public/default/orders", "index": 1234, "status": "found", "ledger_id": 21,
        "entry_id": 25, "batch_index": 2, "first_index": 1232, "last_index": 1248,
        "broker_timestamp": 1795240940609,
    }  # fmt: skip
    lines = run("parted", "--index", "20", "--index", "100000", "-o", "ndjson").stdout.splitlines()
    answers = [json.loads(line) for line in lines]
    assert [one["topic"][-1] for one in answers] == list("012012")
    assert [one["status"] for one in answers] == ["found"] * 3 + ["after-last"] * 3
    run("orders", "--index", "1", "--output", "here.txt")
    assert (tmp_path / "here.txt").read_text() == "18:1:0\n"


def test_a_file_of_questions_and_stdin(run: Run, tmp_path: Path) -> None:
    asked = 'orders\t4499\nwe ird:näme\t0\n{"topic": "orders", "time": 1795240940195}\nnowhere\t1\n'
    (tmp_path / "asked").write_text(asked)
    done = run("--index-file", "asked", "--format", "{topic} {ledger_id}:{entry_id}")
    assert done.stdout.splitlines() == [
        "persistent://public/default/orders 242:5",
        "persistent://public/default/we ird:näme 37:0",
        "persistent://public/default/orders 18:2",
        "-",
    ]
    assert done.returncode == 3
    assert run("--index-file", "-").stdout == "18:0:-1\n"


def test_time_and_expired(run: Run) -> None:
    assert run("orders", "--time", "2026-11-21T06:02:20.195Z").stdout == "18:2:0\n"
    (answer,) = json.loads(run("orders", "--expired", "1s", "-o", "json").stdout)
    assert (answer["ledger_id"], answer["entry_id"], answer["oldest_expired"]) == (242, 5, True)


def test_csv_has_every_field_in_a_column(run: Run) -> None:
    heading, row = run("orders", "--index", "1234", "-o", "csv").stdout.splitlines()
    assert dict(zip(heading.split(","), row.split(","), strict=True))["ledger_id"] == "21"


def test_a_table_shows_what_there_is_for_eyes(run: Run) -> None:
    asked = ("orders", "--index", "1234", "--index", "99999")
    heading, _, *rows = run(*asked, "-o", "table").stdout.splitlines()
    assert heading.split("  ")[0] == "topic"
    words = ["index", "status", "position", "indexes", "broker", "time", "entries", "read"]
    assert heading.split()[1:] == words
    assert "21:25:2" in rows[0]
    assert "2026-11-21T06:02:20." in rows[0]
    assert "after-last" in rows[1]
    by_time = run("orders", "--time", "1795241017000", "--clock", "publish", "-o", "table").stdout
    assert "2026-11-21T06:03:37.000Z" in by_time
    assert "publish time" in by_time
    assert "INDEX " not in by_time


def test_questions_in_no_file(run: Run, tmp_path: Path) -> None:
    missing = run("--index-file", "no-such-file")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert missing.stderr == "pulsar-meta: no-such-file: no such file\n"
    directory = run("--index-file", str(tmp_path))
    assert directory.returncode == 6
    assert "Is a directory" in directory.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["orders"],
        ["--index", "1"],
        ["orders", "--index", "-1"],
        ["orders", "--index", "x"],
        ["orders", "--index", "1", "--format", "{nothing}"],
        ["orders", "--index", "1", "--format", "{topic.__class__}"],
        ["orders", "--index", "1", "--format", "{"],
        ["orders", "--index", "1", "--format", "{topic:05d}"],
        ["orders", "--index", "1", "--format", "{ledger_id:9999999999}"],
        ["orders", "--index", "1", "--format", "{ledger_id:{entry_id}}"],
        ["orders", "--index", "1", "--format", "{index}", "-o", "json"],
        ["orders", "--index", "1", "--after", "x"],
        ["orders", "--time", "soon"],
        ["orders", "--expired", "0"],
        ["kafka://a/b/c", "--index", "1"],
        ["orders", "--index", "1", "--namespace", "public/default"],
        ["--namespace", "public/default"],
        ["--namespace", "public", "--index", "1"],
        ["orders", "--index", "1", "--cluster", "no-such-profile"],
        ["orders", "--index", "1", "--cluster", "a=snapshot:x"],
        ["orders", "--index", "1", "--cluster", "a=snapshot:x frames:y", "--store", "snapshot:x"],
        ["orders", "--index", "1", "--cluster", "a=snapshot:x b:y", "--cluster", "a=snapshot:x b:y"],
        ["orders", "--index", "1", "-o", "parquet"],
        ["orders", "--index", str(2**63), "-o", "parquet", "--output", "big.parquet"],
        ["orders", "--index", "1", "--engine", "spark", "--conf", "x"],
        ["orders", "--index", "1", "-o", "raw"],
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_2(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_unknown_cursor_is_not_found(run: Run) -> None:
    done = run("orders", "--index", "1", "--cursor", "nobody")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_record_is_told_and_exits_4(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "store/managed-ledgers/public/default/persistent/broken/.value"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xff")
    done = run("broken", "--index", "1", "--store", f"dir:{tmp_path / 'store'}", "-o", "ndjson")
    assert done.returncode == 4
    assert json.loads(done.stdout)["status"] == "unreadable"


def test_a_namespace_is_an_answer_a_topic(run: Run) -> None:
    done = run("--namespace", "public/default", "--index", "5")
    lines = dict(line.split("\t") for line in done.stdout.splitlines())
    assert done.returncode == 3
    assert lines["persistent://public/default/orders"] == "18:1:4"
    assert lines["persistent://public/default/parted-partition-2"] == "40:1:0"
    assert lines["persistent://public/default/empty"] == "-"
    assert list(lines) == sorted(lines)
    named = run("--namespace", "public/default", "--index", "5", "--cursor", "audit")
    assert (named.returncode, named.stdout) == (3, "")
    assert "has a cursor 'audit'" in named.stderr
    assert run("--namespace", "public/none", "--index", "5").returncode == 3


def test_clusters_by_profile_and_by_hand(
    run: Run, run_environment: dict[str, str], capture: Callable[[str], Path], tmp_path: Path
) -> None:
    other = capture("pulsar-4.2.4-killed")
    (tmp_path / "config.toml").write_text(
        f"""[profiles.west]
store = "snapshot:{other / "metadata.ndjson"}"
entries = ["bookie-disk:{other / "bookie0"}"]
"""
    )
    here = f"{run_environment['PULSAR_META_STORE']} {run_environment['PULSAR_META_ENTRIES']}"
    asked = [
        "orders",
        "--index",
        "1234",
        "--index",
        "99999",
        "--cluster",
        f"east={here}",
        "--cluster",
        "west",
    ]
    config = {"PULSAR_META_CONFIG": str(tmp_path / "config.toml")}
    done = run(*asked, **config)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == ["east", "east", "west", "west"]
    assert lines[:2] == [["east", "21:25:2"], ["east", "-"]]
    answers = json.loads(run(*asked, "-o", "json", **config).stdout)
    assert [answer["cluster"] for answer in answers] == ["east", "east", "west", "west"]
    own = run(*asked[:5], PULSAR_META_STORE=f"snapshot:{other / 'metadata.ndjson'}",
              PULSAR_META_ENTRIES=f"bookie-disk:{other / 'bookie0'}")  # fmt: skip
    assert [line for _, line in lines[2:]] == own.stdout.splitlines()
    assert run(*asked, "-o", "csv", **config).stdout.startswith("cluster,topic,index,")
    assert "cluster" in run(*asked, "-o", "table", **config).stdout


def test_parquet_is_written_whole_or_not_at_all(run: Run, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    asked = ["orders", "--index", "1234", "--index", "99999"]
    assert run(*asked, "-o", "parquet", "--output", "found.parquet").returncode == 3
    rows = pq.read_table(tmp_path / "found.parquet").to_pylist()
    stated = json.loads(run(*asked, "-o", "json").stdout)
    assert [{name: cell for name, cell in row.items() if cell is not None} for row in rows] == stated
    failed = run("orders", "--index", str(2**63), "-o", "parquet", "--output", "big.parquet")
    assert failed.returncode == 2
    assert [found.name for found in tmp_path.iterdir()] == ["found.parquet"]


@pytest.mark.parametrize("engine", ["local", "auto"])
def test_without_java_everything_but_spark_works(run: Run, engine: str, tmp_path: Path) -> None:
    done = run("orders", "--index", "0", "--engine", engine, JAVA_HOME=str(tmp_path / "none"))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "18:0:-1\n",
        "checked: 1 question, 1 entry\n",
    )
    wanted = run("orders", "--index", "0", "--engine", "spark", JAVA_HOME=str(tmp_path / "none"))
    assert (wanted.returncode, wanted.stdout) == (6, "")
    assert "openjdk-17" in wanted.stderr
    assert len(wanted.stderr.splitlines()) == 1


def test_auto_with_a_master_and_no_java_says_so(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "0", "--master", "local[1]", JAVA_HOME=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "18:0:-1\n")
    assert done.stderr.startswith("running without Spark")
    assert done.stderr.splitlines()[1:] == ["checked: 1 question, 1 entry"]


def test_an_old_java_is_told(run: Run, tmp_path: Path) -> None:
    java = tmp_path / "old/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    done = run("orders", "--index", "0", "--engine", "spark", JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 6
    assert "is Java 8" in done.stderr


@pytest.mark.spark
def test_spark_is_quiet_and_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "1234", "--index", "99999", "--engine", "spark", "--master", "local[1]")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "21:25:2\n-\n",
        "checked: 2 questions, 11 entries\n",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_spark_that_cannot_start_is_one_line(run: Run) -> None:
    done = run("orders", "--index", "1", "--engine", "spark", "--master", "nonsense://x")
    assert (done.returncode, done.stdout) == (6, "")
    assert len(done.stderr.splitlines()) == 1
    assert "Spark does not start: Master must" in done.stderr


@pytest.mark.java
@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://nobody.invalid:7077", "spark://x"])
def test_a_master_that_is_not_there_is_told_at_once(run: Run, master: str) -> None:
    done = run("orders", "--index", "1", "--engine", "spark", "--master", master)
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith(f"pulsar-meta: {master}: no Spark master answers")


def test_a_template_formats_texts_and_numbers_and_keeps_to_a_line(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "1234", "--format", "{status:>6s}|{ledger_id:05d}| at: 12345")
    assert (done.returncode, done.stdout) == (0, " found|00021| at: 12345\n")
    broken = run("a\nb\\", "--index", "1", "--format", "{topic}")
    assert (broken.returncode, broken.stdout) == (3, "persistent://public/default/a\\nb\\\\\n")


def test_a_name_that_is_no_text_is_a_usage_error(run: Run) -> None:
    done = run("\udcff", "--index", "1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
