"""The one place where a Spark session is made and ended.

Workers run on the Python that runs the command. Unless the settings are verbose, what Spark's Java prints
goes to a file that is deleted at the end; the error's text says what went wrong.
"""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import PulsarMetaError, UnreachableError
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.java import java_home_for_spark, why_no_spark
from pulsar_meta.jobs.spark.gateway import leaving_on_signals, start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_READ: Final = 1 << 20
MASTER_SECONDS: Final = 10.0
# How long executors of a cluster are waited for, and how long none may come until these are all.
EXECUTORS_SECONDS: Final = 30.0
QUIET_SECONDS: Final = 1.0
DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_python_error_re = re.compile(r"(?!java\.|org\.|py4j\.)(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?::|$)")
_java_error_re = re.compile(r"^.*?(?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)(?:: |$)")
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


@contextmanager
def spark_session(settings: SparkSettings) -> Iterator[SparkSession]:
    """Give a session, and stop it at the end; one that is active already is used and left alone.

    UnreachableError where there is no Java that will do or no Spark to be had; a job that fails inside
    becomes a PulsarMetaError with the line that says why.
    """
    active = active_session()
    if active is not None:
        with failing_in_one_line():
            yield active
        return
    with leaving_on_signals():
        session = start_session(settings)
        try:
            with failing_in_one_line():
                yield session
        except (KeyboardInterrupt, SystemExit):
            # Nothing more is asked of a Java that may be busy: it is ended at exit, within seconds.
            raise
        except BaseException:
            stop(session)
            raise
        stop(session)


def active_session() -> SparkSession | None:
    """Return the session that is active already, None where there is none or no pyspark."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def stop(session: SparkSession) -> None:
    """Stop a session, whatever state it is in."""
    with suppress(Exception):
        session.stop()


def start_session(settings: SparkSettings) -> SparkSession:
    """Start Spark and return its session; UnreachableError where it does not start."""
    missing = why_no_spark()
    if missing:
        raise UnreachableError(f"Spark cannot run: {missing}")
    find_master(settings.master)
    # PySpark asks the environment for its workers' Python; the setting is read by spark-submit only.
    os.environ["PYSPARK_PYTHON"] = settings.conf.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryFile() as log, _java_home():
        try:
            session = _connect(_configuration(settings), None if settings.verbose else log)
        except Exception as error:
            raise UnreachableError(f"Spark does not start: {_reason(error, log)}") from error
    _await_executors(session)
    return session


def _await_executors(session: SparkSession) -> None:
    """Wait until no more executors come: a cluster's cores are not known before, and work is cut by them.

    Where they come and go as there is work, or none comes, there is nothing to wait for.
    """
    context: Any = session.sparkContext
    if context.master.startswith("local") or context.getConf().get(DYNAMIC, "false") == "true":
        return
    late = time.monotonic() + EXECUTORS_SECONDS
    known, since = 0, time.monotonic()
    while time.monotonic() < min(late, since + QUIET_SECONDS if known else late):
        time.sleep(QUIET_SECONDS / 10)
        # The driver is among them.
        executors = context._jsc.sc().getExecutorMemoryStatus().size() - 1
        if executors != known:
            known, since = executors, time.monotonic()


@contextmanager
def _java_home() -> Iterator[None]:
    """Set JAVA_HOME while Spark starts, where its Java is one that Spark would not find."""
    with tempfile.TemporaryDirectory(prefix="pulsar-meta-java-") as directory:
        home = java_home_for_spark(Path(directory))
        if home is not None:
            os.environ["JAVA_HOME"] = str(home)
        try:
            yield
        finally:
            if home is not None:
                del os.environ["JAVA_HOME"]


def _configuration(settings: SparkSettings) -> dict[str, str]:
    base = {"spark.master": settings.master, "spark.app.name": "pulsar-meta"}
    if settings.master.startswith("local"):
        # A local session talks to itself only, whatever the machine's name resolves to.
        base |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return base | ({} if settings.verbose else QUIET) | dict(settings.conf)


def _connect(configuration: dict[str, str], log: IO[bytes] | None) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=start_java(configuration, log))
    builder: Any = SparkSession.builder
    session: SparkSession = builder.config(map=configuration).getOrCreate()
    return session


def find_master(master: str) -> None:
    """Raise UnreachableError where none of the hosts in `spark://host:port[,…]` takes a connection.

    Spark itself tries for minutes and then reports something else.
    """
    if not master.startswith("spark://"):
        return
    failure: OSError | ValueError | None = None
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=MASTER_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            failure = error
    raise UnreachableError(f"no Spark master answers: {failure}", source=master)


@contextmanager
def failing_in_one_line() -> Iterator[None]:
    """Turn the error of a failed job into one line: that of the cause, not Java's stack."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise PulsarMetaError(f"the Spark job failed: {_cause(str(error))}") from error


def _reason(error: Exception, log: IO[bytes]) -> str:
    log.seek(0)
    logged = log.read(LOG_READ).decode(errors="replace")
    return _cause(logged) if "Exception" in logged else _cause(str(error))


def _cause(text: str) -> str:
    """Return the line of an error that names its cause: the last of Python's, else the first of Java's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "...", "File "))]
    of_python = [line for line in lines if _python_error_re.match(line)]
    if of_python:
        return of_python[-1]
    of_java = [line for line in lines if _java_error_re.search(line)]
    if of_java:
        return _java_error_re.sub("", of_java[0], count=1).strip()
    return lines[-1] if lines else "no reason given"
