"""Start and stop Spark sessions, and the Java process that PySpark starts for them.

Workers run the same Python as the command. Unless the settings are verbose, the output of Spark's Java goes
to a file that is deleted at the end, and errors quote the line that matters.

Java ends when the command ends. If a signal interrupted PySpark while it starts Java, the new process would
be lost. So PySpark starts Java in a thread, where no signal is handled, and in its own process group. At
exit, Java is stopped within seconds. If the command is killed, Java's stdin is closed, so Java exits.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import PulsarMetaError, UnreachableError
from pulsar_meta.jobs.engine import SparkSettings, java_home_for_spark, why_no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


START_SECONDS: Final = 300.0
# How long to wait until Java has started before it is stopped, until it has cleaned up after its stdin was
# closed, and until it exits after SIGTERM.
INTERRUPTED_SECONDS: Final = 60.0
FAREWELL_SECONDS: Final = 5.0
TERMINATE_SECONDS: Final = 2.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_running: Final[list[Java]] = []


class Java:
    """A Java process that PySpark starts. `end` stops its complete process group."""

    def __init__(self, settings: Mapping[str, str], log: IO[bytes] | None) -> None:
        """`log` receives Java's output. If it is None, the output goes to stderr."""
        self._settings = settings
        self._output = 2 if log is None else log.fileno()
        self._gateway: Any = None
        self._error: Exception | None = None
        self._starting = True
        _running.append(self)
        atexit.register(self.end)
        threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        channels = {"stdout": self._output, "stderr": self._output, "start_new_session": True}
        try:
            self._gateway = launch_gateway(conf, channels)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001
            self._error = error
        finally:
            self._starting = False

    def gateway(self) -> Any:
        """Wait for Java and return PySpark's gateway to it. Raises PySpark's error if Java exits."""
        self._wait(START_SECONDS)
        if self._error is not None:
            raise self._error
        if self._gateway is None:
            raise UnreachableError(f"Java gave no answer within {START_SECONDS:.0f} seconds")
        return self._gateway

    def _wait(self, seconds: float) -> None:
        """Wait until Java has started or failed. Takes no lock, because a signal handler may also wait."""
        late = time.monotonic() + seconds
        while self._starting and time.monotonic() < late:
            time.sleep(0.02)

    def end(self) -> None:
        """Stop Java by closing its stdin, and if that fails with signals to its process group.

        An interruption ends the waiting. If Java has not started yet, only its stdin is closed.
        """
        with suppress(Exception, KeyboardInterrupt):
            self._wait(INTERRUPTED_SECONDS)
        process = None if self._gateway is None else self._gateway.proc
        if process is None or process.returncode is not None:
            return
        # PySpark's objects send Java a message when they are collected, which fails if Java is stopping.
        self._gateway._gateway_client.is_connected = False
        with suppress(Exception, KeyboardInterrupt):
            process.stdin.close()
            if not _ended(process, FAREWELL_SECONDS):
                _signal_group(process, signal.SIGTERM)
                _ended(process, TERMINATE_SECONDS)
        _signal_group(process, signal.SIGKILL)
        process.wait()


def start_java(settings: Mapping[str, str], log: IO[bytes] | None) -> Any:
    """Return a gateway to a new Java, or None if PySpark already has one, which it uses."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        return None
    return Java(settings, log).gateway()


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@contextmanager
def leaving_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exit with code 128 + the signal, so that the program cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in changed:
            signal.signal(each, signal.SIG_IGN)
        # First of all, because PySpark's objects send Java messages when they are collected, and would wait.
        for java in _running:
            java.end()
        raise SystemExit(128 + number)

    for number in changed:
        signal.signal(number, leave)
    try:
        yield
    except Exception:
        if received:  # PySpark's cleanup fails without Java, which is only a consequence of the signal.
            raise SystemExit(128 + received[0]) from None
        raise
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


LOG_READ: Final = 1 << 20
MASTER_SECONDS: Final = 10.0
# How long to wait for a cluster's executors. If none registers for QUIET_SECONDS, all have registered.
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
    """Yield a session, and stop it at the end. A session that is already active is used and not stopped.

    Raises UnreachableError if Spark or a suitable Java is missing, and PulsarMetaError with the line that
    names the cause if a job fails.
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
            # Java may be busy, so nothing more is sent to it. It is stopped at exit, within seconds.
            raise
        except BaseException:
            stop(session)
            raise
        stop(session)


def active_session() -> SparkSession | None:
    """Return the active session, None if no session is active or pyspark is not installed."""
    if importlib.util.find_spec("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def stop(session: SparkSession) -> None:
    """Stop a session and ignore errors, because the session may be broken."""
    with suppress(Exception):
        session.stop()


def start_session(settings: SparkSettings) -> SparkSession:
    """Start Spark and return its session. Raises UnreachableError if Spark does not start."""
    missing = why_no_spark()
    if missing:
        raise UnreachableError(f"Spark cannot run: {missing}")
    find_master(settings.master)
    # PySpark takes its workers' Python from the environment. Only spark-submit reads the setting.
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
    """Wait until no more executors register, because the work is divided by the number of cores.

    Does not wait if executors are allocated dynamically, and ends after EXECUTORS_SECONDS if none registers.
    """
    context: Any = session.sparkContext
    if context.master.startswith("local") or context.getConf().get(DYNAMIC, "false") == "true":
        return
    late = time.monotonic() + EXECUTORS_SECONDS
    known, since = 0, time.monotonic()
    while time.monotonic() < min(late, since + QUIET_SECONDS if known else late):
        time.sleep(QUIET_SECONDS / 10)
        # The map includes the driver.
        executors = context._jsc.sc().getExecutorMemoryStatus().size() - 1
        if executors != known:
            known, since = executors, time.monotonic()


@contextmanager
def _java_home() -> Iterator[None]:
    """Set JAVA_HOME while Spark starts, if Spark would not find its Java otherwise."""
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
        # A local session only connects to itself, even if the machine's name resolves to another address.
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
    """Raise UnreachableError if no host in `spark://host:port[,…]` accepts a connection.

    Spark would try for minutes and then report another error.
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
    """Turn the error of a failed job into one line with its cause, without Java's stack trace."""
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
    """Return the line that names the cause: the last error of Python, or else the first one of Java."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "...", "File "))]
    of_python = [line for line in lines if _python_error_re.match(line)]
    if of_python:
        return of_python[-1]
    of_java = [line for line in lines if _java_error_re.search(line)]
    if of_java:
        return _java_error_re.sub("", of_java[0], count=1).strip()
    return lines[-1] if lines else "no reason given"
