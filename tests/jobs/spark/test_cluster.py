"""Seek, and messages as rows, on a standalone Spark: a master and two workers, each with its part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_meta.jobs.spark.session import find_master
from tests.seek_truth import read_truth
from tests.servers import spark_classes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.interop]
PROGRAM = str(Path(sys.executable).parent / "pulsar-meta")
HOST = "127.0.0.1"
PLAIN = [f"persistent://public/default/{name}" for name in ("orders", "plain", "codec-lz4", "chunked")]
COUNT = """
import json, sys
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.session import spark_session

with spark_session(SparkSettings(sys.argv[1], json.loads(sys.argv[2]))) as spark:
    register(spark)
    messages = spark.read.format("pulsar_messages").options(**json.loads(sys.argv[3])).load()
    whole = messages.where("error is null and length(payload) >= 0")
    print(json.dumps([list(row) for row in whole.groupBy("topic").count().collect()]))
"""


@pytest.fixture
def cluster(session: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a master whose two workers, each with a core, write below `tmp_path`.

    Spark's own servers on ports of their own, in the Java that is there; the executors are processes.
    """
    from pyspark import SparkContext

    java = SparkContext._jvm
    assert java is not None
    conf, deploy = java.org.apache.spark.SparkConf(False), java.org.apache.spark.deploy
    started = [deploy.master.Master.startRpcEnvAndEndpoint(HOST, 0, 0, conf)._1()]
    master = f"spark://{started[0].address().hostPort()}"
    nothing = java.scala.Option.empty()
    try:
        find_master(master)
        for number in range(2):
            folder = str(tmp_path / f"worker{number}")
            masters = java.org.apache.spark.util.Utils.parseStandaloneMasterUrls(master)
            started.append(
                deploy.worker.Worker.startRpcEnvAndEndpoint(
                    HOST, 0, 0, 1, 1024, masters, folder, java.scala.Some(number), conf, nothing
                )
            )
        yield master
    finally:
        for server in reversed(started):
            server.shutdown()
            server.awaitTermination()


def test_both_workers_answer(cluster: str, capture: Callable[[str], Path], tmp_path: Path) -> None:
    folder = capture("pulsar-4.2.4")
    places = [
        "--store",
        f"snapshot:{folder / 'metadata.ndjson'}",
        "--entries",
        f"bookie-disk:{folder / 'bookie0'}",
    ]
    asked = [PROGRAM, "seek", "--namespace", "public/default", "--index", "5", "-o", "ndjson", *places]
    conf = {
        "spark.driver.host": HOST,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(spark_classes.options()),
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    }
    options = [text for pair in conf.items() for text in ("--conf", "=".join(pair))]
    by_spark = subprocess.run(
        [*asked, "--engine", "spark", "--master", cluster, *options],
        capture_output=True, text=True, timeout=400, check=False, cwd=tmp_path,
    )  # fmt: skip
    looked_at = json.loads(by_spark.stderr)
    assert looked_at["checked"]["questions"] == len(by_spark.stdout.splitlines())
    assert looked_at["not_checked"] == {}
    locally = subprocess.run([*asked, "--engine", "local"], capture_output=True, text=True, check=False)
    assert by_spark.returncode == locally.returncode == 3
    assert without_price(by_spark.stdout) == without_price(locally.stdout)
    assert [json.loads(line)["status"] for line in by_spark.stdout.splitlines()].count("found") > 20
    counted = count_messages(cluster, folder, conf, tmp_path)
    stated = read_truth(folder)
    assert {topic: counted[topic] for topic in PLAIN} == {
        topic: len(stated[topic]["messages"]) for topic in PLAIN
    }
    for worker in ("worker0", "worker1"):
        logs = list((tmp_path / worker).glob("app-*/*/stderr"))
        assert len(logs) == 2
        assert all("Finished task" in log.read_text() for log in logs)


def count_messages(cluster: str, folder: Path, conf: dict[str, str], tmp_path: Path) -> dict[str, int]:
    """Return how many messages a session of one's own sees of each topic, in tasks of 300 entries."""
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
