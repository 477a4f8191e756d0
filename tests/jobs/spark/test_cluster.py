"""Seek and messages as rows on a standalone Spark, where a master and two workers share the work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.seek_truth import read_truth
from tests.servers.standalone_spark import both_worked, settings

pytestmark = [pytest.mark.spark, pytest.mark.interop]
PROGRAM = str(Path(sys.executable).parent / "pulsar-meta")
ROOT = Path(__file__).parents[3]
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


def seek_as_locally(cluster: str, folder: Path, conf: dict[str, str], tmp_path: Path) -> None:
    """Seek an index in a namespace on the cluster and compare the answers with those of one process."""
    places = [
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
    ]
    words = [PROGRAM, "seek", "--namespace", "public/default", "--index", "5", "-o", "ndjson", *places]
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
