"""A server that can be killed and restarted on the same port and data, as after a crash."""

from __future__ import annotations

import os
import signal
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from tests.servers.processes import Process, Servers

# The programs that some tests need. PULSAR_META_REQUIRED has the names of those that must be there, or `all`.
PROGRAMS: Final = (
    "java", "zookeeper", "etcd", "oxia", "maven", "go", "javac", "libjvm", "promtool", "chromium",
    "groff",
)  # fmt: skip


class RestartableServer(Servers):
    """The base class of the ZooKeeper, etcd and Oxia servers."""

    name: str

    def __init__(self, directory: Path, port: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.port = port
        self._process: Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line of the server."""

    @abstractmethod
    def ready(self) -> bool:
        """Return True if the server answers."""

    def start(self) -> Self:
        """Start the server and return when it answers."""
        assert self._process is None
        self._process = Process(self.command(), log=self.directory / "server.log")
        self._process.wait_until(self.ready, seconds=60)
        return self

    def kill(self) -> None:
        """Send SIGKILL. Safe to call twice."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> None:
        """Send SIGTERM and wait until the server has ended."""
        assert self._process is not None
        self._process.stop()
        self._process = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the server (SIGSTOP) for the block. Connections stay open, but nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Kill the server and start it again with its data."""
        self.kill()
        self.start()

    def bring_up(self) -> None:
        self.start()

    def close(self) -> None:
        self.kill()


def is_required(program: str) -> bool:
    """Return True if tests that need `program`, one of PROGRAMS, must not be skipped.

    Raises pytest.UsageError if PULSAR_META_REQUIRED has another name.
    """
    required = set(os.environ.get("PULSAR_META_REQUIRED", "").split())
    if unknown := required - {*PROGRAMS, "all"}:
        names = ", ".join(sorted(unknown))
        raise pytest.UsageError(f"PULSAR_META_REQUIRED: {names}: expected {', '.join(PROGRAMS)}, all")
    return bool(required & {program, "all"})


def skip_or_fail(program: str, reason: str | None) -> None:
    """Skip the test with the reason why it can't run `program`. If the program is required, fail instead."""
    if reason is None:
        return
    if is_required(program):
        pytest.fail(f"{program} is required: {reason}")
    pytest.skip(reason)
