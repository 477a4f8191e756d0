"""Processes of servers under test: on free loopback ports, and never left behind.

    with Process(["etcd", …], log=directory / "etcd.log") as server:
        server.wait_until(lambda: port_answers(port), seconds=30)

A process runs in its own session and asks the kernel to kill it when the thread that started it ends, so that
it never outlives a pytest that died. Leaving the `with` block stops it. Start servers from the main thread.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

# The ports are below the kernel's range for outgoing connections, so that none of those uses one. Each worker
# of pytest-xdist has its own part.
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_PORTS: Final = range(12000 + 2000 * _WORKER, 14000 + 2000 * _WORKER)
_given_ports: set[int] = set()
# The id of the running test if it has no mark that allows it to start a server. Set by tests/conftest.py.
unmarked_test: str | None = None

# Runs between pytest and the server. PR_SET_PDEATHSIG (1), which only Linux has, survives exec. If pytest
# died earlier, getppid has changed.
_LAUNCH: Final = (
    "import ctypes, os, sys; sys.platform != 'linux' or ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)


class ServerFailed(Exception):
    """A server did not start or ended unexpectedly. The message has the end of its log."""


def free_port() -> int:
    """Return a loopback port that is free and was not returned before."""
    for _ in range(1000):
        port = random.SystemRandom().choice(_PORTS)
        if port not in _given_ports and port_is_free(port):
            _given_ports.add(port)
            return port
    raise ServerFailed("no free port on 127.0.0.1")


def port_is_free(port: int) -> bool:
    """Return True if a server could listen on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def port_answers(port: int) -> bool:
    """Return True if a server accepts connections on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Servers(ABC):
    """One or more processes that run in a `with` block, and are ended even if not all came up."""

    def bring_up(self) -> None:  # noqa: B027 servers that start when they are created need no code here
        """Start everything and return when it answers."""

    @abstractmethod
    def close(self) -> None:
        """End everything that runs, also after a partial start. Safe to call twice."""

    def __enter__(self) -> Self:
        try:
            self.bring_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Process(Servers):
    """A server process with a log. `stop` sends SIGTERM, and kills after `grace` seconds."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Start `command`. Both outputs are appended to `log`."""
        if unmarked_test is not None:
            raise ServerFailed(f"{unmarked_test} starts a server: add the mark `server`")
        self.log = log
        self.name = command[0] if "/" not in command[0] else Path(command[0]).name
        launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *command]
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                launch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                cwd=directory,
                start_new_session=True,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` is true. Raises ServerFailed if the process ends or time runs out."""
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                raise ServerFailed(f"{self.name} ended with {self._popen.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ServerFailed(f"{self.name} is not ready after {seconds:g} s:\n{self.log_tail()}")
            time.sleep(0.03)

    def log_tail(self, size: int = 4000) -> str:
        """Return the last `size` bytes of the log as text."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def stop(self, grace: float = 30) -> None:
        """End the process with SIGTERM, and its whole session with SIGKILL after `grace` seconds."""
        if self.alive:
            self._popen.terminate()
            self.wait(grace)
        self.kill()

    def wait(self, seconds: float) -> None:
        """Return when the process has ended or `seconds` are over."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL to the whole session, as in a crash."""
        # The group may have children although its leader is gone.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait(10)

    def close(self) -> None:
        self.stop()
