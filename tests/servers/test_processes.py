"""Servers under test never outlive the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.jvm import Jvm, why_no_libjvm
from tests.servers.processes import Process, ServerFailed, Servers, free_port, port_answers, port_is_free
from tests.servers.restartable import skip_or_fail

pytestmark = pytest.mark.server

REPOSITORY = Path(__file__).parents[2]
# Tests that run in the background may ignore SIGINT, and so do the processes that they start.
PARENT = """
import signal, sys, time
from pathlib import Path
from tests.servers.processes import Process
signal.signal(signal.SIGINT, signal.default_int_handler)
server = Process([sys.executable, "-c", "import time; time.sleep(600)"], log=Path(sys.argv[1]))
print(server.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Return True if a process runs. A zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline, f"{pid} is left behind"
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_dies_with_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        assert alive(server)
        os.kill(parent.pid, how)
    wait_for_end(server)


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 600 & echo $!; wait; sleep 600"
    server = Process(["sh", "-c", script], log=tmp_path / "log")
    server.wait_until(lambda: server.log.stat().st_size > 0, 10)
    child = int(server.log.read_text())
    server.stop(grace=0.3)
    assert not server.alive
    wait_for_end(child)


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        Process(["sh", "-c", "echo why it failed; exit 3"], log=tmp_path / "log") as server,
        pytest.raises(ServerFailed, match=r"ended with 3:\nwhy it failed"),
    ):
        server.wait_until(lambda: False, 10)


def test_a_server_that_is_not_ready_in_time_is_reported(tmp_path: Path) -> None:
    with (
        Process(["sleep", "600"], log=tmp_path / "log") as server,
        pytest.raises(ServerFailed, match=r"not ready after 0\.2 s"),
    ):
        server.wait_until(lambda: False, 0.2)


@pytest.mark.java
def test_a_java_that_does_not_answer_is_killed() -> None:
    skip_or_fail("libjvm", why_no_libjvm())
    with Jvm(None, heap="64m") as jvm:
        assert jvm.call("os:getpid") == jvm.process.pid
        with pytest.raises(ServerFailed, match=r"time:sleep has not answered after 0\.2 s"):
            jvm.call("time:sleep", 600, seconds=0.2)
        assert not jvm.process.alive


def test_ports_are_free_and_returned_once() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(port_is_free(port) and not port_answers(port) for port in ports)


class _HalfUp(Servers):
    def __init__(self, log: Path) -> None:
        self.log = log
        self.first: Process | None = None

    def bring_up(self) -> None:
        self.first = Process(["sleep", "600"], log=self.log)
        raise ServerFailed("the second did not start")

    def close(self) -> None:
        assert self.first is not None
        self.first.kill()


def test_no_server_is_left_if_another_fails_to_start(tmp_path: Path) -> None:
    servers = _HalfUp(tmp_path / "log")
    with pytest.raises(ServerFailed, match="the second"), servers:
        pass
    assert servers.first is not None
    wait_for_end(servers.first.pid)
