"""Decisions in a separate process are the same, in the same order, and no process hangs or is left."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import pytest

from pulsar_meta.access.processes import cores
from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.rewrite import worker
from pulsar_meta.jobs.rewrite.decision import Decision, Rule
from pulsar_meta.jobs.rewrite.rules import Recompression, WhereThere
from pulsar_meta.jobs.rewrite.worker import ALONE, PART_VALUES, decide_ahead, start_process
from pulsar_meta.stores.base import ABSENT, Versioned
from tests.chaos.actors import cursor
from tests.servers.limits import must_end

two_processors = pytest.mark.skipif(cores() < 2, reason="needs two processors")
# Most of these tests look for the other process in /proc.
pytestmark = pytest.mark.linux

RULE = Recompression("cursor", "zstd", threshold=64)


def values() -> Iterator[Versioned]:
    """Yield cursors, and in between corrupt, missing and small values."""
    complete = [cursor(number, 30) for number in range(16)]
    for number in count():
        value = b"\xff" if number % 50 == 7 else cursor(1, 0) if number % 50 == 8 else complete[number % 16]
        yield Versioned(f"/{number}", value, ABSENT if number % 50 == 9 else number)


def slow_values() -> Iterator[Versioned]:
    """Yield the same values, most of them only when the other process has loaded the rule and can decide."""
    for number, seen in enumerate(values()):
        if number == ALONE + PART_VALUES:
            wait_until_idle(children())
        yield seen


def wait_until_idle(processes: set[int]) -> None:
    """Return when none of the processes has used processor time for a while."""
    used, deadline = -1, time.monotonic() + 60
    while used != (used := sum(cpu_ticks(process) for process in processes)):
        assert time.monotonic() < deadline
        # On a loaded machine, a process can get no processor for half a second.
        time.sleep(0.8)


def cpu_ticks(process: int) -> int:
    """Return the ticks of processor time that a process has used, in user and in kernel mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def children() -> set[int]:
    """Return the ids of the deciding processes that this process started."""
    ids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"rewrite.worker" in (folder / "cmdline").read_bytes():
                ids.add(int(folder.name))
    return ids


@pytest.mark.parametrize("number", [0, 1, ALONE - 1, ALONE, ALONE + 1, 3 * ALONE + 17])
@pytest.mark.parametrize("rule", [RULE, WhereThere(RULE)])
def test_decisions_are_the_same_in_another_process(number: int, rule: Rule) -> None:
    here = list(decide_ahead(islice(values(), number), rule, ahead=False))
    assert list(decide_ahead(islice(values(), number), rule, ahead=True)) == here
    assert len(here) == number
    assert not children()


@pytest.mark.parametrize("why", ["no process", "one processor", "no such module"])
def test_decisions_are_made_here_if_no_other_process_can_start(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    if why == "no process":
        monkeypatch.setattr(subprocess, "Popen", refuse)
    elif why == "no such module":
        monkeypatch.setattr(sys, "executable", "/bin/false")
    else:
        monkeypatch.setattr(worker, "cores", lambda: 1)
    here = list(decide_ahead(islice(values(), 3 * ALONE), RULE, ahead=False))
    assert list(decide_ahead(islice(values(), 3 * ALONE), RULE, ahead=True)) == here
    assert not children()


@two_processors
def test_many_values_are_decided_by_another_process() -> None:
    deciding = decide_ahead(slow_values(), RULE, ahead=True)
    list(islice(deciding, ALONE + PART_VALUES))
    (child,) = children()
    used = cpu_ticks(child)
    list(islice(deciding, 10 * ALONE))
    assert cpu_ticks(child) > used
    deciding.close()
    assert not children()


@two_processors
def test_closing_early_does_not_wait() -> None:
    deciding = decide_ahead(slow_values(), RULE, ahead=True)
    list(islice(deciding, 2 * ALONE))
    # By now, the reader waits for the process, and the process waits for the consumer.
    time.sleep(0.5)
    with must_end():
        deciding.close()
    assert not children()


@two_processors
def test_a_killed_process_is_an_error() -> None:
    deciding = decide_ahead(slow_values(), RULE, ahead=True)
    list(islice(deciding, ALONE + 2 * PART_VALUES))
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    with pytest.raises(UnreachableError, match=r"ended \(exit code -9\)"):
        list(islice(deciding, 100_000))
    assert not children()


def failing() -> Iterator[Versioned]:
    yield from islice(values(), 2 * ALONE)
    raise UnreachableError("the server went away")


def test_values_read_before_an_error_are_decided() -> None:
    taken: list[tuple[Versioned, Decision]] = []
    with pytest.raises(UnreachableError, match="went away"):
        for decided in decide_ahead(failing(), RULE, ahead=True):
            taken.append(decided)
    assert len(taken) == 2 * ALONE
    assert not children()


@dataclass(frozen=True)
class Raising:
    """A rule that fails at a value, with an error that can be pickled or one that can't."""

    error: type[Exception]

    def __call__(self, seen: Versioned) -> Decision:
        if seen.path == f"/{ALONE + 500}":
            raise self.error("the rule failed")
        return RULE(seen)


class Stays(Exception):
    def __reduce__(self) -> str:
        raise TypeError("cannot be pickled")


@two_processors
@pytest.mark.parametrize(("error", "raised"), [(RecursionError, RecursionError), (Stays, RuntimeError)])
def test_an_error_of_a_rule_is_raised_here(
    error: type[Exception],
    raised: type[Exception],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    taken = []
    with pytest.raises(raised, match="the rule failed"):
        for decided in decide_ahead(islice(slow_values(), 3 * ALONE), Raising(error), ahead=True):
            taken.append(decided)
    assert len(taken) >= ALONE
    assert not children()
    assert capfd.readouterr().err == ""


def test_a_rule_that_another_process_cannot_load_runs_here(capfd: pytest.CaptureFixture[str]) -> None:
    """Its module can be found only by this process."""
    taken = []
    with pytest.raises(Stays, match="the rule failed"):
        for decided in decide_ahead(islice(values(), 3 * ALONE), Raising(Stays), ahead=True):
            taken.append(decided)
    assert not children()
    assert capfd.readouterr().err == ""


@two_processors
def test_a_process_with_a_truncated_message_ends_silently(capfd: pytest.CaptureFixture[str]) -> None:
    process, talk = start_process()
    # A message of a million bytes, of which ten arrive because the sender was killed.
    os.write(talk.fileno(), struct.pack("!i", 1_000_000) + bytes(10))
    talk.close()
    assert process.wait(60) == 0
    assert capfd.readouterr().err == ""


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    script = """
from tests.jobs.rewrite.test_worker import *
deciding = decide_ahead(values(), RULE, ahead=True)
list(islice(deciding, ALONE + 1))
print(*children(), flush=True)
time.sleep(60)
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)
