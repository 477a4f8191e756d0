"""A standalone Spark with a master and two workers in the installed Java. Executors are processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pulsar_meta.jobs.spark.session import find_master
from tests.servers import java

HOST = "127.0.0.1"
WORKERS = ("worker0", "worker1")
CORES = 2


@contextmanager
def standalone_spark(folder: Path) -> Iterator[str]:
    """Start a master and two workers of two cores each that write to `folder`. Returns the master's URL.

    Spark's servers have their own ports. A session must have started Java.
    """
    from pyspark import SparkContext

    java = SparkContext._jvm
    assert java is not None
    conf, deploy = java.org.apache.spark.SparkConf(False), java.org.apache.spark.deploy
    started = [deploy.master.Master.startRpcEnvAndEndpoint(HOST, 0, 0, conf)._1()]
    master = f"spark://{started[0].address().hostPort()}"
    masters = java.org.apache.spark.util.Utils.parseStandaloneMasterUrls(master)
    nothing = java.scala.Option.empty()
    try:
        find_master(master)
        for number, name in enumerate(WORKERS):
            started.append(
                deploy.worker.Worker.startRpcEnvAndEndpoint(
                    HOST, 0, 0, CORES, 1024, masters, str(folder / name), java.scala.Some(number), conf,
                    nothing,
                )
            )  # fmt: skip
        yield master
    finally:
        for server in reversed(started):
            server.shutdown()
            server.awaitTermination()


def settings() -> dict[str, str]:
    """Return the settings that every job here needs: an address and little memory."""
    return {
        "spark.driver.host": HOST,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": " ".join(java.options("spark")),
    }


def both_worked(tmp_path: Path, jobs: int) -> None:
    """Check that both workers finished tasks of this many jobs."""
    for worker in WORKERS:
        logs = list((tmp_path / worker).glob("app-*/*/stderr"))
        assert len(logs) == jobs
        assert all("Finished task" in log.read_text() for log in logs)
