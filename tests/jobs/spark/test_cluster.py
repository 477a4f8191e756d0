"""Seek, and messages as rows, on a standalone Spark: a master and two workers, each with its part."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pulsar_meta.jobs.java import java_command
from pulsar_meta.jobs.spark.session import find_master
from tests.seek_truth import read_truth
from tests.servers.java import BRIEF

pytestmark = pytest.mark.spark
PROGRAM = str(Path(sys.executable).parent / "pulsar-meta")
HOST = "127.0.0.1"
SMALL = ["-Xmx256m", *BRIEF]
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


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        return int(taken.getsockname()[1])


@contextmanager
def daemon(name: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of Spark's servers out of PySpark's own jars, in a process group that ends with the block."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"}
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [java_command() or "java", *SMALL, "-cp", f"{home / 'jars'}/*", f"org.apache.spark.deploy.{name}",
             "--host", HOST, "--webui-port", "0", *arguments],
            stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(log: Path, sign: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until a server's log has `sign`."""
    late = time.monotonic() + 90
    while sign not in log.read_text():
        assert server.poll() is None, log.read_text()
        assert time.monotonic() < late, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a master whose two workers, each with a core, write below `tmp_path`."""
    port = free_port()
    master = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        server = stack.enter_context(daemon("master.Master", tmp_path / "master", "--port", str(port)))
        wait_for(tmp_path / "master/log", "New state: ALIVE", server)
        find_master(master)
        folders = [tmp_path / "worker0", tmp_path / "worker1"]
        workers = [
            stack.enter_context(
                daemon(
                    "worker.Worker",
                    folder,
                    "--cores",
                    "1",
                    "--memory",
                    "1g",
                    "--work-dir",
                    str(folder),
                    master,
                )
            )
            for folder in folders
        ]
        for folder, worker in zip(folders, workers, strict=True):
            wait_for(folder / "log", "Successfully registered with master", worker)
        yield master


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
        "spark.executor.extraJavaOptions": " ".join(BRIEF),
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    options = [text for pair in conf.items() for text in ("--conf", "=".join(pair))]
    by_spark = subprocess.run(
        [*asked, "--engine", "spark", "--master", cluster, *options],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
    )  # fmt: skip
    looked_at = json.loads(by_spark.stderr)
    assert looked_at["checked"]["questions"] == len(by_spark.stdout.splitlines())
    assert looked_at["not_checked"] == {}
    locally = subprocess.run([*asked, "--engine", "local"], capture_output=True, text=True, check=False)
    assert by_spark.returncode == locally.returncode == 3
    assert without_price(by_spark.stdout) == without_price(locally.stdout)
    assert [json.loads(line)["status"] for line in by_spark.stdout.splitlines()].count("found") > 20
    counted = count_messages(cluster, folder, conf, tmp_path)
    told = read_truth(folder)
    assert {topic: counted[topic] for topic in PLAIN} == {
        topic: len(told[topic]["messages"]) for topic in PLAIN
    }
    for worker in ("worker0", "worker1"):
        logs = list((tmp_path / worker).glob("app-*/*/stderr"))
        assert len(logs) == 2
        assert all("Finished task" in log.read_text() for log in logs)


def count_messages(cluster: str, folder: Path, conf: dict[str, str], tmp_path: Path) -> dict[str, int]:
    """Return how many messages a session of one's own sees of each topic, in tasks of 300 entries."""
    options = {
        "store": f"snapshot:{folder / 'metadata.ndjson'}", "entries": f"bookie-disk:{folder / 'bookie0'}",
        "topics": "public/default", "entriesPerPartition": "300",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", COUNT, cluster, json.dumps(conf), json.dumps(options)],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def without_price(lines: str) -> list[str]:
    return [line.partition('"entries_read"')[0] for line in lines.splitlines()]
