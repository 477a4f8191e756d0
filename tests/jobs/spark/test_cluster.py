"""Seek and messages as rows on a standalone Spark, where a master and two workers share the work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.seek_truth import read_truth
from tests.servers.standalone_spark import both_worked, settings

pytestmark = [pytest.mark.spark, pytest.mark.interop]
PROGRAM = str(Path(sys.executable).parent / "pulsar-meta")
SUBMIT = str(Path(sys.executable).parent / "spark-submit")
ROOT = Path(__file__).parents[3]
# The script that docs/spark.md shows for spark-submit.
SCRIPT = re.compile(r"cat > find\.py <<'END'\n(.+?)\n +END", re.DOTALL)
PLAIN = [f"persistent://public/default/{name}" for name in ("orders", "plain", "codec-lz4", "chunked")]
COUNT = """
import json, sys
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.session import spark_session

with spark_session(SparkSettings(sys.argv[1], json.loads(sys.argv[2]))) as spark:
    register(spark)
    messages = spark.read.format("pulsar_messages").options(**json.loads(sys.argv[3])).load()
    readable = messages.where("error is null and length(payload) >= 0")
    print(json.dumps([list(row) for row in readable.groupBy("topic").count().collect()]))
"""


@pytest.fixture
def pex(tmp_path: Path) -> Path:
    """Build the file of `make pex`, uncompressed because that is faster."""
    wheels, file = tmp_path / "wheels", tmp_path / "pulsar-meta.pex"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=400)
    left_out = ["--exclude", "pyspark", "--exclude", "py4j", "--no-compress"]
    words = [*map(str, wheels.iterdir()), "--venv-repository", sys.prefix, *left_out]
    words += ["--script", "pulsar-meta", "--output-file", str(file)]
    subprocess.run([sys.executable, "-m", "pex", *words], check=True, capture_output=True, timeout=900)
    return file


def test_both_workers_take_part(cluster: str, capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    conf = settings()
    seek_as_locally(cluster, folder, conf, tmp_path)
    counted = count_messages(cluster, folder, conf, tmp_path)
    truth = read_truth(folder)
    assert {topic: counted[topic] for topic in PLAIN} == {
        topic: len(truth[topic]["messages"]) for topic in PLAIN
    }
    both_worked(tmp_path, 2)


def test_both_workers_take_part_with_a_pex_without_pyspark(
    cluster: str, capture: Callable[[str], Path], pex: Path, tmp_path: Path
) -> None:
    unpacked = tmp_path / "unpacked"
    conf = settings() | {
        "spark.files": str(pex),
        "spark.pyspark.python": f"./{pex.name}",
        "spark.executorEnv.PEX_INTERPRETER": "1",
        "spark.executorEnv.PEX_INHERIT_PATH": "fallback",
        "spark.executorEnv.PEX_ROOT": str(unpacked),
    }
    seek_as_locally(cluster, capture("pulsar-4.2.4"), conf, tmp_path)
    both_worked(tmp_path, 1)
    assert list(unpacked.glob("installed_wheels/*/*/pulsar_meta-*"))
    assert not list(unpacked.glob("installed_wheels/*/*/pyspark-*"))


def test_spark_submit_runs_the_script_of_the_docs(
    cluster: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4")
    questions, answers = tmp_path / "questions.parquet", tmp_path / "answers.parquet"
    pq.write_table(pa.table({"topic": ["orders"] * 900, "index": range(900)}), questions)
    script = SCRIPT.search((ROOT / "docs/spark.md").read_text())[1]  # type: ignore[index]
    for written, here in {
        "/data/questions.parquet": questions,
        "/data/answers.parquet": answers,
        "zk://zk1:2181": f"snapshot:{folder / 'metadata.ndjson'}",
        "bookie:": f"bookie-disk:{folder / 'bookie0'}",
    }.items():
        assert written in script
        script = script.replace(written, str(here))
    (tmp_path / "find.py").write_text(textwrap.dedent(script))
    options = [text for pair in settings().items() for text in ("--conf", "=".join(pair))]
    submit = [
        SUBMIT,
        "--master",
        cluster,
        *options,
        "--conf",
        f"spark.pyspark.python={sys.executable}",
        "find.py",
    ]
    done = subprocess.run(
        submit, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
        env=os.environ | {"PYSPARK_DRIVER_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    both_worked(tmp_path, 1)
    local = tmp_path / "local.parquet"
    words = [
        "seek",
        "--index-file",
        str(questions),
        "--engine",
        "local",
        "-o",
        "parquet",
        "--output",
        str(local),
    ]
    subprocess.run([PROGRAM, *words, *places_of(folder)], check=True, capture_output=True)
    assert positions(answers) == positions(local)
    assert len(positions(local)) == 900


def test_an_executor_that_is_killed_does_not_change_the_answers(
    cluster: str, capture: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = capture("pulsar-4.2.4")
    words = [
        PROGRAM,
        "seek",
        "--namespace",
        "public/default",
        "--index",
        "5",
        "-o",
        "ndjson",
        *places_of(folder),
    ]
    locally = subprocess.run([*words, "--engine", "local"], capture_output=True, text=True, check=False)
    options = [text for pair in settings().items() for text in ("--conf", "=".join(pair))]
    spark = [*words, "--engine", "spark", "--master", cluster, *options]
    with subprocess.Popen(
        spark, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as run:
        killed = kill_at_work(tmp_path / "worker0", run)
        stdout, stderr = run.communicate(timeout=400)
    assert not finished_task(killed)
    assert run.returncode == locally.returncode == 3, stderr
    assert without_price(stdout) == without_price(locally.stdout)


def kill_at_work(worker: Path, run: subprocess.Popen[str]) -> Path:
    """Kill the executor of a worker while its first task runs. Returns the directory of the executor."""
    late = time.monotonic() + 200
    while run.poll() is None and time.monotonic() < late:
        for log in worker.glob("app-*/*/stderr"):
            if "Running task" in log.read_text():
                for process in Path("/proc").glob("[0-9]*/cwd"):
                    with suppress(OSError):
                        if process.readlink() == log.parent:
                            os.kill(int(process.parent.name), signal.SIGKILL)
                return log.parent
        time.sleep(0.02)
    raise AssertionError(f"no task began: {run.communicate()}")


def finished_task(executor: Path) -> bool:
    return "Finished task" in (executor / "stderr").read_text()


def positions(answers: Path) -> dict[int, tuple[int, int, int]]:
    """Return where each index is, from a Parquet file or a directory of such files."""
    names = ["index", "ledger_id", "entry_id", "batch_index"]
    rows = ds.dataset(answers, format="parquet").to_table(columns=names).to_pylist()
    return {row["index"]: (row["ledger_id"], row["entry_id"], row["batch_index"]) for row in rows}


def places_of(folder: Path) -> list[str]:
    return [
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
    ]


def seek_as_locally(cluster: str, folder: Path, conf: dict[str, str], tmp_path: Path) -> None:
    """Seek an index in a namespace on the cluster and compare the answers with those of one process."""
    words = [
        PROGRAM,
        "seek",
        "--namespace",
        "public/default",
        "--index",
        "5",
        "-o",
        "ndjson",
        *places_of(folder),
    ]
    options = [text for pair in conf.items() for text in ("--conf", "=".join(pair))]
    by_spark = subprocess.run(
        [*words, "--engine", "spark", "--master", cluster, *options],
        capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path,
    )  # fmt: skip
    looked_at = json.loads(by_spark.stderr)
    assert looked_at["checked"]["questions"] == len(by_spark.stdout.splitlines())
    assert looked_at["not_checked"] == {}
    locally = subprocess.run([*words, "--engine", "local"], capture_output=True, text=True, check=False)
    assert by_spark.returncode == locally.returncode == 3
    assert without_price(by_spark.stdout) == without_price(locally.stdout)
    assert [json.loads(line)["status"] for line in by_spark.stdout.splitlines()].count("found") > 20


def count_messages(cluster: str, folder: Path, conf: dict[str, str], tmp_path: Path) -> dict[str, int]:
    """Count the messages of each topic in a separate session, with tasks of 300 entries."""
    options = {
        "store": f"snapshot:{folder / 'metadata.ndjson'}", "entries": f"bookie-disk:{folder / 'bookie0'}",
        "topics": " ".join(PLAIN), "entriesPerPartition": "300",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", COUNT, cluster, json.dumps(conf), json.dumps(options)],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def without_price(lines: str) -> list[str]:
    return [line.partition('"entries_read"')[0] for line in lines.splitlines()]
