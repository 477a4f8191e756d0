"""The Java that a Spark session of ours talks to: started by PySpark, ended with us whatever ends us.

A signal in the middle of PySpark's call would lose the process that it has just started. So PySpark starts
it in a thread, where no signal is handled, in a process group of its own, and it is ended at exit within
seconds. Where we are killed outright, Java finds its stdin closed and ends itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any, Final

from pulsar_meta.codecs.errors import UnreachableError

START_SECONDS: Final = 300.0
# How long Java may take to come up before it is ended, to tidy up after its stdin was closed, and to end
# after SIGTERM.
INTERRUPTED_SECONDS: Final = 60.0
FAREWELL_SECONDS: Final = 5.0
TERMINATE_SECONDS: Final = 2.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_running: Final[list[Java]] = []


class Java:
    """A Java that PySpark starts; `end` leaves nothing of its process group."""

    def __init__(self, settings: Mapping[str, str], log: IO[bytes] | None) -> None:
        """`log` takes what Java prints; None: our stderr."""
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
        """Wait for Java and return PySpark's gateway to it; raises what PySpark raises if it ends."""
        self._wait(START_SECONDS)
        if self._error is not None:
            raise self._error
        if self._gateway is None:
            raise UnreachableError(f"Java gave no answer within {START_SECONDS:.0f} seconds")
        return self._gateway

    def _wait(self, seconds: float) -> None:
        """Wait until Java is up or failed; without a lock, since a signal's handler may wait here too."""
        late = time.monotonic() + seconds
        while self._starting and time.monotonic() < late:
            time.sleep(0.02)

    def end(self) -> None:
        """End Java: by closing its stdin, else with signals to its process group.

        An interruption meanwhile ends the waiting. Of a Java that is not up yet only its stdin is closed.
        """
        with suppress(Exception, KeyboardInterrupt):
            self._wait(INTERRUPTED_SECONDS)
        process = None if self._gateway is None else self._gateway.proc
        if process is None or process.returncode is not None:
            return
        # PySpark's objects send Java a word when they are collected; to one that ends that is an error.
        self._gateway._gateway_client.is_connected = False
        with suppress(Exception, KeyboardInterrupt):
            process.stdin.close()
            if not _ended(process, FAREWELL_SECONDS):
                _signal_group(process, signal.SIGTERM)
                _ended(process, TERMINATE_SECONDS)
        _signal_group(process, signal.SIGKILL)
        process.wait()


def start_java(settings: Mapping[str, str], log: IO[bytes] | None) -> Any:
    """Return a gateway to a new Java; None where PySpark has one already and uses that."""
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
    """Let SIGTERM and SIGHUP end the program as an exit does (128 + the signal), with all its tidying."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    received: list[int] = []

    def leave(number: int, frame: FrameType | None) -> None:
        received.append(number)
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
        if received:  # What PySpark tidies on the way out fails without Java; that is not the news.
            raise SystemExit(128 + received[0]) from None
        raise
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
