"""Archives of the classes that the Java of Spark and ZooKeeper loads, which halve the time of their start.

    python -m tests.servers.class_archives

They are made once per virtual environment. Java maps the verified classes from them instead of reading jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.servers import java
from tests.servers.zookeeper import ZookeeperServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN_SECONDS: Final = 120.0


def of_spark(unfinished: Path) -> None:
    """Archive the classes that a session, a few jobs and a query load. Java writes them when it exits."""
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*java.BRIEF, f"-XX:ArchiveClassesAtExit={unfinished}"))
    with spark_session(SparkSettings("local[1]")) as session:
        work(session)
        end_java(session)
        late = time.monotonic() + WRITTEN_SECONDS
        while not unfinished.exists() and time.monotonic() < late:
            time.sleep(0.1)


def work(session: SparkSession) -> None:
    """Make Spark load the classes that most tests use."""
    assert session.sparkContext.parallelize([1, 2], 2).map(lambda value: value).sum() == 3
    rows = session.createDataFrame([(1, "a", b"b"), (2, "c", None)], "number long, text string, data binary")
    assert rows.where("number > 1 and data is null").groupBy("text").count().orderBy("text").collect()
    register(session)
    with tempfile.TemporaryDirectory() as nothing:
        cursors = session.read.format("pulsar_cursors").option("store", f"dir:{nothing}").load()
        assert cursors.where("topic = 'a'").count() == 0


def end_java(session: SparkSession) -> None:
    """Stop Spark and let its Java exit, which writes the archive."""
    exits = session.sparkContext._jvm
    assert exits is not None
    session.stop()
    # Java exits before it answers.
    with suppress(Exception):
        exits.java.lang.System.exit(0)


def of_zookeeper(unfinished: Path) -> None:
    """Archive the classes that a server loads for writes and reads. Java writes the archive when it exits."""
    with tempfile.TemporaryDirectory() as folder:
        server = ZookeeperServer(Path(folder), java_options=(f"-XX:ArchiveClassesAtExit={unfinished}",))
        with server:
            with open_store(f"zk://{server.address}", read_only=False) as store:
                store.put("/a/b", b"x", ABSENT)
                assert b"x" in [record.value for record in store.scan("/a")]
                store.delete("/a/b", store.read("/a/b").version)
            server.stop()


MAKERS: Final = {"spark": of_spark, "zookeeper": of_zookeeper}


def make(name: str) -> None:
    """Make one archive. It gets its name when it is complete."""
    unfinished = java.archive(name).with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    MAKERS[name](unfinished)
    unfinished.rename(java.archive(name))


def main() -> None:
    """Make the missing archives, and report why one can't be made."""
    if java.why_not():
        return
    for name in MAKERS:
        if java.archive(name).exists():
            continue
        print(f"archiving the classes of {name} (once)", flush=True)
        try:
            make(name)
        except Exception as error:  # noqa: BLE001
            print(f"no archive, {name} starts as fast as it does without: {error!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
