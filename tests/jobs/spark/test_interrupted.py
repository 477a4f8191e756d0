"""A command that is interrupted while Spark starts, or works, leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
PROGRAM = Path(sys.executable).parent / "pulsar-meta"
MARK = "PULSAR_META_TEST_RUN"
SPARK = ["seek", "orders", "--index", "1234", "--engine", "spark", "--master", "local[1]"]


LONG_JOB = """
import time
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.spark.session import spark_session
with spark_session(SparkSettings("local[1]")) as session:
    session.sparkContext.parallelize([1], 1).foreach(lambda _: time.sleep(600))
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(capture: Callable[[str], Path], tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a seek by Spark whose processes are recognized by their environment."""
    folder = capture("pulsar-4.2.4")
    environment = {
        **os.environ,
        MARK: str(tmp_path),
        "TMPDIR": str(tmp_path),
        "PULSAR_META_STORE": f"snapshot:{folder / 'metadata.ndjson'}",
        "PULSAR_META_ENTRIES": f"bookie-disk:{folder / 'bookie0'}",
    }

    started = []

    def call(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command or [PROGRAM, *SPARK],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield call
    for left in marked(tmp_path):
        os.kill(left, signal.SIGKILL)
    for process in started:
        process.communicate()


def marked(folder: Path) -> dict[int, str]:
    """Return the command lines of the processes that a test in `folder` started, at any depth."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if f"{MARK}={folder}\0".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except (OSError, UnicodeDecodeError):
            continue
    return found


def until(folder: Path, sign: str, process: subprocess.Popen[str]) -> None:
    """Wait until `sign` is found in the command line of a process of the test."""
    late = time.monotonic() + 120
    while not any(re.search(sign, line) for line in marked(folder).values()):
        assert process.poll() is None, "ended before it could be interrupted"
        assert time.monotonic() < late
        time.sleep(0.05)


def nothing_left(folder: Path, seconds: float) -> bool:
    late = time.monotonic() + seconds
    while marked(folder) and time.monotonic() < late:
        time.sleep(0.1)
    return not marked(folder)


# From the shell script, through Java's launcher, to the Java that PySpark talks to and beyond; a moment
# that is over before it is seen is taken for the next one.
JAVA = "IgnoreUnrecognizedVMOptions"
SCRIPT = "bin/spark-|" + JAVA
LAUNCHER = "launcher.Main|" + JAVA
MOMENTS = [(SCRIPT, 0.0), (LAUNCHER, 0.0), (JAVA, 0.0), (JAVA, 2.0), (JAVA, 6.0)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["int", "term"])
@pytest.mark.parametrize(("sign", "later"), MOMENTS)
def test_interrupted_while_spark_starts(
    start: Start,
    tmp_path: Path,
    sign: str,
    later: float,
    number: signal.Signals,
) -> None:
    process = start()
    until(tmp_path, sign, process)
    time.sleep(later)
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    # A Python that ends by itself is followed by Java, as soon as that sees its input closed.
    assert nothing_left(tmp_path, 0 if process.returncode == 128 + number else 60)
    if process.returncode in (0, 3):
        assert later
        return
    # To a shell both are the same; the second is a Python that had nothing left to do but to end.
    assert process.returncode in (128 + number, *([-number] if later else []))
    assert out in ("", "21:25:2\n")
    assert [found.name for found in tmp_path.iterdir()] == []


@pytest.mark.parametrize(("sign", "later"), [(SCRIPT, 0.0), (JAVA, 3.0)])
def test_killed_outright_java_ends_itself(start: Start, tmp_path: Path, sign: str, later: float) -> None:
    process = start()
    until(tmp_path, sign, process)
    time.sleep(later)
    process.kill()
    process.communicate(timeout=120)
    assert nothing_left(tmp_path, 120)


@pytest.mark.parametrize("delay", [0.3, 1.5])
def test_interrupted_after_a_moment(start: Start, tmp_path: Path, delay: float) -> None:
    process = start()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT, 1)
    assert nothing_left(tmp_path, 60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)])
def test_interrupted_while_workers_work(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(sys.executable, "-c", LONG_JOB)
    until(tmp_path, "pyspark.daemon", process)
    time.sleep(1)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == code
    assert nothing_left(tmp_path, 60)
