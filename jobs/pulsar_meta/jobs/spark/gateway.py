"""The Java that a Spark session of ours talks to: started here, and ended with us whatever ends us.

PySpark starts it in the middle of a call that a signal can cut short, and then nobody knows its process.
Here it is a process group of its own, known before any signal is handled, and ended at exit within
seconds. Where we are killed outright, Java finds its stdin closed and ends itself.

Source: pyspark/java_gateway.py (what spark-submit is asked, and how it tells its port) and
PythonGatewayServer.scala.
"""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Final

START_SECONDS: Final = 300.0
# How long Java may take to tidy up after its stdin was closed, and after it was told to end.
FAREWELL_SECONDS: Final = 5.0
TERMINATE_SECONDS: Final = 2.0
_STARTED_BY_US: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_running: Final[list[Java]] = []


class Java:
    """A `spark-submit` that waits for PySpark; `end` leaves nothing of its process group."""

    def __init__(self, settings: Mapping[str, str], log: IO[bytes] | None) -> None:
        """`log` takes what Java says; None: our stderr."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._folder = tempfile.TemporaryDirectory(prefix="pulsar-meta-spark-")
        self._told = Path(self._folder.name) / "connection"
        _running.append(self)
        atexit.register(self.end)
        # Signals are handled in the main thread: in another one nothing comes between the start of the
        # process and our knowing it. The interpreter waits for this thread before `end` is called.
        starting = threading.Thread(target=self._start, args=(_command(settings), log))
        starting.start()
        starting.join()

    def _start(self, command: list[str], log: IO[bytes] | None) -> None:
        told = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told)}
        output = 2 if log is None else log.fileno()
        with suppress(OSError):
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | told,
                start_new_session=True,
            )

    def connection(self) -> dict[str, str]:
        """Wait for Java and return what PySpark wants to find in the environment; OSError if it ends."""
        late = time.monotonic() + START_SECONDS
        while not self._told.exists():
            if self._process is None or self._process.poll() is not None or time.monotonic() > late:
                raise OSError("Java ended before it answered")
            time.sleep(0.05)
        told = self._told.read_bytes()
        port, length = struct.unpack_from(">ii", told)
        self._ready = True
        return dict(zip(_STARTED_BY_US, (str(port), told[8 : 8 + length].decode()), strict=True))

    def end(self) -> None:
        """End Java: politely where it listens, else with signals to its process group."""
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            if not (self._ready and _ended(process, FAREWELL_SECONDS)):
                _signal_group(process, signal.SIGTERM)
                _ended(process, TERMINATE_SECONDS)
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._folder.cleanup()


def _command(settings: Mapping[str, str]) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return command + shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))


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
def java_of_ours(settings: Mapping[str, str], log: IO[bytes] | None) -> Iterator[None]:
    """Let PySpark find a Java of ours instead of starting one; one that it already has stays in use."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None or all(name in os.environ for name in _STARTED_BY_US):
        yield
        return
    try:
        os.environ.update(Java(settings, log).connection())
        yield
    finally:
        for name in _STARTED_BY_US:
            os.environ.pop(name, None)


@contextmanager
def leaving_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the program as an exit does (128 + the signal), with all its tidying."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    told: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        told.append(number)
        for each in changed:
            signal.signal(each, signal.SIG_IGN)
        # Before anything else: PySpark's objects talk to Java when they go, and would wait for a busy one.
        for java in _running:
            java.end()
        raise SystemExit(128 + number)

    for number in changed:
        signal.signal(number, leave)
    try:
        yield
    except Exception:
        if told:  # What PySpark tidies on the way out fails without Java; that is not the news.
            raise SystemExit(128 + told[0]) from None
        raise
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
