"""The one place where a Spark session is made and ended.

Workers run on the Python that runs the command. Unless told to be verbose, what Spark's Java says goes to
a file that is thrown away at the end; what went wrong is told from the error.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import PulsarMetaError, UnreachableError
from pulsar_meta.jobs.java import why_no_java
from pulsar_meta.jobs.spark.gateway import java_of_ours, leaving_on_signals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LOG_READ: Final = 1 << 20
MASTER_SECONDS: Final = 10.0
_python_error_re = re.compile(r"(?!java\.|org\.|py4j\.)(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?::|$)")
_java_error_re = re.compile(r"^.*?(?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception)(?:: |$)")
QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}


@contextmanager
def spark_session(
    *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[SparkSession]:
    """Give a session, and stop it at the end; one that is active already is used and left alone.

    UnreachableError where there is no Java that will do or no Spark to be had; a job that fails inside
    becomes a PulsarMetaError with the line that says why.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        with told_in_one_line():
            yield active
        return
    with leaving_on_signals():
        session = start_session(master or LOCAL, dict(conf or {}), verbose=verbose)
        try:
            with told_in_one_line():
                yield session
        except (KeyboardInterrupt, SystemExit):
            # Nothing more is asked of a Java that may be busy: it is ended at exit, within seconds.
            raise
        except BaseException:
            stop(session)
            raise
        stop(session)


def stop(session: SparkSession) -> None:
    """Stop a session, whatever state it is in."""
    with suppress(Exception):
        session.stop()


def start_session(master: str, conf: dict[str, str], *, verbose: bool) -> SparkSession:
    """Start Spark and return its session; UnreachableError where it does not start."""
    from pyspark.sql import SparkSession

    missing = why_no_java()
    if missing:
        raise UnreachableError(f"Spark needs Java: {missing}")
    find_master(master)
    # PySpark asks the environment for its workers' Python; the setting is read by spark-submit only.
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = ({} if verbose else QUIET) | conf
    if master.startswith("local"):
        # A local session talks to itself only, whatever the machine's name resolves to.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"} | settings
    settings = {"spark.master": master, "spark.app.name": "pulsar-meta"} | settings
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as log:
        try:
            with java_of_ours(settings, None if verbose else log):
                session: SparkSession = builder.getOrCreate()
        except Exception as error:
            raise UnreachableError(f"Spark does not start: {_reason(error, log)}") from error
    return session


def find_master(master: str) -> None:
    """Raise UnreachableError where none of the hosts in `spark://host:port[,…]` takes a connection.

    Spark itself tries for minutes and then tells something else.
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
def told_in_one_line() -> Iterator[None]:
    """Turn the error of a failed job into one line: that of the cause, not Java's stack."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise PulsarMetaError(f"the Spark job failed: {_cause(str(error))}") from error


def _reason(error: Exception, log: Any) -> str:
    log.seek(0)
    said = log.read(LOG_READ).decode(errors="replace")
    return _cause(said) if "Exception" in said else _cause(str(error))


def _cause(text: str) -> str:
    """Return the line of an error that names its cause: the last of Python's, else the first of Java's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("at ", "...", "File "))]
    of_python = [line for line in said if _python_error_re.match(line)]
    if of_python:
        return of_python[-1]
    of_java = [line for line in said if _java_error_re.search(line)]
    if of_java:
        return _java_error_re.sub("", of_java[0], count=1).strip()
    return said[-1] if said else "no reason given"
