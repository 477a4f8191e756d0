"""`seek` as scripts call it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.program import as_text, pulsar_meta, pulsar_meta_here

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_environment(capture: Callable[[str], Path]) -> dict[str, str]:
    """Return an environment that selects a capture's store and disks."""
    folder = capture("pulsar-4.2.4")
    return {
        **os.environ,
        "PULSAR_META_STORE": f"snapshot:{folder / 'metadata.ndjson'}",
        "PULSAR_META_ENTRIES": f"bookie-disk:{folder / 'bookie0'}",
        "PULSAR_META_CONFIG": os.devnull,
    }


@pytest.fixture
def run(run_environment: dict[str, str], tmp_path: Path) -> Run:
    """Return a function that runs the command on a capture, in an empty directory."""

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        words, env, stdin = ("seek", *arguments), run_environment | more, b"orders\t0\n"
        if "spark" in arguments:
            return as_text(pulsar_meta(*words, env=env, stdin=stdin, folder=tmp_path))
        return as_text(pulsar_meta_here(*words, env=env, stdin=stdin, folder=tmp_path))

    return call


def test_plain_output_has_one_line_per_answer(run: Run) -> None:
    done = run("orders", "--index", "1234", "--index", "0", "--index", "99999")
    assert (done.returncode, done.stdout, done.stderr) == (
        3,
        "21:25:2\n18:0:-1\n-\n",
        "persistent://public/default/orders: nothing found for index 99999: after-last: it is after the last"
        " entry\nchecked: 3 questions, 16 entries\n",
    )
    assert run("orders", "--index", "1234").returncode == 0


def test_json_and_ndjson_have_all_fields(run: Run, tmp_path: Path) -> None:
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
    assert [answer["topic"][-1] for answer in answers] == list("012012")
    assert [answer["status"] for answer in answers] == ["found"] * 3 + ["after-last"] * 3
    run("orders", "--index", "1", "--output", "here.txt")
    assert (tmp_path / "here.txt").read_text() == "18:1:0\n"


def test_questions_can_come_from_a_file_or_stdin(run: Run, tmp_path: Path) -> None:
    questions = 'orders\t4499\nwe ird:näme\t0\n{"topic": "orders", "time": 1795240940195}\nnowhere\t1\n'
    (tmp_path / "asked").write_text(questions)
    done = run("--index-file", "asked", "--format", "{topic} {ledger_id}:{entry_id}")
    assert done.stdout.splitlines() == [
        "persistent://public/default/orders 242:5",
        "persistent://public/default/we ird:näme 37:0",
        "persistent://public/default/orders 18:2",
        "-",
    ]
    assert done.returncode == 3
    assert run("--index-file", "-").stdout == "18:0:-1\n"


def test_questions_can_come_from_a_parquet_file(run: Run, tmp_path: Path) -> None:
    second = datetime.fromtimestamp(1795240940.195, UTC)
    table = pa.table(
        {
            "comment": ["", "", ""],
            "topic": ["orders", "orders", "we ird:näme"],
            # As pandas writes integers beside a gap.
            "index": pa.array([1234, None, 0], pa.float64()),
            "time": pa.array([None, second, None], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "asked.parquet")
    done = run("--index-file", "asked.parquet")
    assert (done.returncode, done.stdout) == (0, "21:25:2\n18:2:0\n37:0:0\n")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["orders"]}, "asked: expected the columns topic and index or time"),
        ({"topic": ["orders", "orders"], "index": [1, None]}, 'asked, row 2: expected "index" or "time"'),
        ({"index": [1]}, 'asked, row 1: expected a "topic"'),
        ({"topic": ["orders"], "index": [1.5]}, "asked: not a Parquet file of questions: Float value 1.5"),
    ],
)
def test_a_parquet_file_without_questions_is_an_error(
    run: Run, tmp_path: Path, columns: dict[str, list[Any]], message: str
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "asked")
    done = run("--index-file", "asked")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_cut_parquet_file_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "asked").write_bytes(b"PAR1 cut")
    done = run("--index-file", "asked")
    assert done.returncode == 2
    assert done.stderr.startswith("pulsar-meta: asked: not a Parquet file of questions: ")


def test_a_time_and_an_expiry_are_sought(run: Run) -> None:
    assert run("orders", "--time", "2026-11-21T06:02:20.195Z").stdout == "18:2:0\n"
    (answer,) = json.loads(run("orders", "--expired", "1s", "-o", "json").stdout)
    assert (answer["ledger_id"], answer["entry_id"], answer["oldest_expired"]) == (242, 5, True)


def test_csv_has_every_field_in_a_column(run: Run) -> None:
    heading, row = run("orders", "--index", "1234", "-o", "csv").stdout.splitlines()
    assert dict(zip(heading.split(","), row.split(","), strict=True))["ledger_id"] == "21"


def test_a_table_shows_positions_and_readable_times(run: Run) -> None:
    arguments = ("orders", "--index", "1234", "--index", "99999")
    heading, _, *rows = run(*arguments, "-o", "table").stdout.splitlines()
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


def test_a_missing_or_wrong_question_file_is_an_error(run: Run, tmp_path: Path) -> None:
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
def test_invalid_arguments_are_one_line_usage_errors(run: Run, arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_an_unknown_cursor_is_not_found(run: Run) -> None:
    done = run("orders", "--index", "1", "--cursor", "nobody")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1


def test_a_broken_record_ends_with_4(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "store/managed-ledgers/public/default/persistent/broken/.value"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xff")
    done = run("broken", "--index", "1", "--store", f"dir:{tmp_path / 'store'}", "-o", "ndjson")
    assert done.returncode == 4
    assert json.loads(done.stdout)["status"] == "unreadable"


def test_a_namespace_gets_one_answer_per_topic(run: Run) -> None:
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


def test_clusters_can_be_given_by_profile_and_by_url(
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
    arguments = [
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
    done = run(*arguments, **config)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert [name for name, _ in lines] == ["east", "east", "west", "west"]
    assert lines[:2] == [["east", "21:25:2"], ["east", "-"]]
    answers = json.loads(run(*arguments, "-o", "json", **config).stdout)
    assert [answer["cluster"] for answer in answers] == ["east", "east", "west", "west"]
    own = run(*arguments[:5], PULSAR_META_STORE=f"snapshot:{other / 'metadata.ndjson'}",
              PULSAR_META_ENTRIES=f"bookie-disk:{other / 'bookie0'}")  # fmt: skip
    assert [line for _, line in lines[2:]] == own.stdout.splitlines()
    assert run(*arguments, "-o", "csv", **config).stdout.startswith("cluster,topic,index,")
    assert "cluster" in run(*arguments, "-o", "table", **config).stdout


def test_parquet_is_written_completely_or_not_at_all(run: Run, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    arguments = ["orders", "--index", "1234", "--index", "99999"]
    assert run(*arguments, "-o", "parquet", "--output", "found.parquet").returncode == 3
    rows = pq.read_table(tmp_path / "found.parquet").to_pylist()
    answers = json.loads(run(*arguments, "-o", "json").stdout)
    assert [{name: cell for name, cell in row.items() if cell is not None} for row in rows] == answers
    failed = run("orders", "--index", str(2**63), "-o", "parquet", "--output", "big.parquet")
    assert failed.returncode == 2
    assert [file.name for file in tmp_path.iterdir()] == ["found.parquet"]


@pytest.mark.parametrize("engine", ["local", "auto"])
def test_only_spark_needs_java(run: Run, engine: str, tmp_path: Path) -> None:
    done = run("orders", "--index", "0", "--engine", engine, JAVA_HOME=str(tmp_path / "none"))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "18:0:-1\n",
        "checked: 1 question, 1 entry\n",
    )
    with_spark = run("orders", "--index", "0", "--engine", "spark", JAVA_HOME=str(tmp_path / "none"))
    assert (with_spark.returncode, with_spark.stdout) == (6, "")
    assert "openjdk-17" in with_spark.stderr
    assert len(with_spark.stderr.splitlines()) == 1


def test_a_master_without_java_falls_back_with_a_note(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "0", "--master", "local[1]", JAVA_HOME=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "18:0:-1\n")
    assert done.stderr.startswith("running without Spark")
    assert done.stderr.splitlines()[1:] == ["checked: 1 question, 1 entry"]


def test_an_old_java_is_refused(run: Run, tmp_path: Path) -> None:
    java = tmp_path / "old/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    done = run("orders", "--index", "0", "--engine", "spark", JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 6
    assert "is Java 8" in done.stderr


@pytest.mark.spark
def test_spark_prints_nothing_and_leaves_no_files(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "1234", "--index", "99999", "--engine", "spark", "--master", "local[1]")
    assert (done.returncode, done.stdout) == (3, "21:25:2\n-\n")
    assert re.fullmatch(
        "persistent://public/default/orders: nothing found for index 99999: after-last: it is after the last"
        r" entry\nchecked: 2 questions, \d+ entries\n",
        done.stderr,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_spark_that_cannot_start_is_a_one_line_error(run: Run) -> None:
    done = run("orders", "--index", "1", "--engine", "spark", "--master", "nonsense://x")
    assert (done.returncode, done.stdout) == (6, "")
    assert len(done.stderr.splitlines()) == 1
    assert "Spark does not start: Master must" in done.stderr


@pytest.mark.java
@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "spark://nobody.invalid:7077", "spark://x"])
def test_an_unreachable_master_is_reported_at_once(run: Run, master: str) -> None:
    done = run("orders", "--index", "1", "--engine", "spark", "--master", master)
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr.startswith(f"pulsar-meta: {master}: no Spark master answers")


def test_a_template_formats_values_on_one_line(run: Run, tmp_path: Path) -> None:
    done = run("orders", "--index", "1234", "--format", "{status:>6s}|{ledger_id:05d}| at: 12345")
    assert (done.returncode, done.stdout) == (0, " found|00021| at: 12345\n")
    broken = run("a\nb\\", "--index", "1", "--format", "{topic}")
    assert (broken.returncode, broken.stdout) == (3, "persistent://public/default/a\\nb\\\\\n")


def test_a_name_that_is_not_utf8_is_a_usage_error(run: Run) -> None:
    done = run("\udcff", "--index", "1")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_ranges_are_kept_in_a_file_and_used_again(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "ranges.parquet"
    words = ("orders", "--index", "1234", "-o", "json", "--save-ranges", str(file))
    first, second = run(*words), run(*words)
    assert first.returncode == second.returncode == 0
    ((before,), (after,)) = json.loads(first.stdout), json.loads(second.stdout)
    assert after | {"entries_read": 0} == before | {"entries_read": 0}
    assert after["entries_read"] < before["entries_read"]
    file.write_text("something")
    assert run(*words).returncode == 4
