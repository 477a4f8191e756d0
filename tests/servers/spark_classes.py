"""An archive of the classes that Spark's Java loads: with it Spark starts in half the time.

    python -m tests.servers.spark_classes

It is made once a virtual environment. Java maps its classes, already verified, instead of reading them from
jars (JEP 350); where the archive is not there or does not fit, Java reads the jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.datasources import register
from pulsar_meta.jobs.spark.session import spark_session
from tests.servers import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN_SECONDS: Final = 120.0


def archive() -> Path:
    """Return where the archive lies for the Java that is there."""
    command = os.path.realpath(java.executable() or "java")
    return Path(sys.prefix) / f"spark-classes-{zlib.crc32(command.encode()):08x}.jsa"


def options() -> tuple[str, ...]:
    """Return the options of Java for a Spark that lives for seconds."""
    found = archive()
    return (*java.BRIEF, f"-XX:SharedArchiveFile={found}") if found.exists() else java.BRIEF


def make() -> None:
    """Make the archive: of what a session, a few jobs and a query load, when its Java ends by itself."""
    unfinished = archive().with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*java.BRIEF, f"-XX:ArchiveClassesAtExit={unfinished}"))
    with spark_session(SparkSettings("local[1]")) as session:
        work(session)
        end_java(session)
        late = time.monotonic() + WRITTEN_SECONDS
        while not unfinished.exists() and time.monotonic() < late:
            time.sleep(0.1)
    unfinished.rename(archive())


def work(session: SparkSession) -> None:
    """Have Spark load what most of the tests use."""
    assert session.sparkContext.parallelize([1, 2], 2).map(lambda value: value).sum() == 3
    rows = session.createDataFrame([(1, "a", b"b"), (2, "c", None)], "number long, text string, data binary")
    assert rows.where("number > 1 and data is null").groupBy("text").count().orderBy("text").collect()
    register(session)
    with tempfile.TemporaryDirectory() as nothing:
        cursors = session.read.format("pulsar_cursors").option("store", f"dir:{nothing}").load()
        assert cursors.where("topic = 'a'").count() == 0


def end_java(session: SparkSession) -> None:
    """Stop Spark and have its Java exit, which is when it writes the archive."""
    exits = session.sparkContext._jvm
    assert exits is not None
    session.stop()
    # It ends before it answers.
    with suppress(Exception):
        exits.java.lang.System.exit(0)


def main() -> None:
    """Make the archive where there is none; say why where it cannot be made."""
    if java.why_not() or archive().exists():
        return
    print("archiving the classes of Spark (once, 20 seconds)", flush=True)
    try:
        make()
    except Exception as error:  # noqa: BLE001
        print(f"no archive, Spark starts as fast as it does without: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
