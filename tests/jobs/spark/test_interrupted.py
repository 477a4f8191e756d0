"""A command that is interrupted while Spark starts or works leaves no process behind."""

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

from tests.nightly import mostly_at_night

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
    """A function that starts a seek by Spark. The environment of its processes identifies them."""
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
    """Map the ids of the processes that a test in `folder` started, at any depth, to their command lines."""
    processes = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if f"{MARK}={folder}\0".encode() in (process / "environ").read_bytes():
                processes[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except (OSError, UnicodeDecodeError):
            continue
    return processes


def until(folder: Path, sign: str, process: subprocess.Popen[str]) -> None:
    """Wait until `sign` is in the command line of a process of the test."""
    late = time.monotonic() + 120
    while not any(re.search(sign, line) for line in marked(folder).values()):
        assert process.poll() is None, "ended before it could be interrupted"
        assert time.monotonic() < late
        time.sleep(0.05)


def no_process_left(folder: Path, seconds: float) -> bool:
    late = time.monotonic() + seconds
    while marked(folder) and time.monotonic() < late:
        time.sleep(0.1)
    return not marked(folder)


# From the shell script and Java's launcher to the Java process that PySpark talks to, and later. If a moment
# is over before the test sees it, the test uses the next one.
JAVA = "IgnoreUnrecognizedVMOptions"
SCRIPT = "bin/spark-|" + JAVA
LAUNCHER = "launcher.Main|" + JAVA
MOMENTS = [(SCRIPT, 0.0), (LAUNCHER, 0.0), (JAVA, 0.0), (JAVA, 2.0), (JAVA, 6.0)]


@pytest.mark.parametrize(
    ("sign", "later", "number"),
    mostly_at_night(
        ((*moment, number) for moment in MOMENTS for number in (signal.SIGINT, signal.SIGTERM)),
        (SCRIPT, 0.0, signal.SIGTERM),
        (JAVA, 2.0, signal.SIGINT),
    ),
)
def test_an_interrupt_while_spark_starts_leaves_no_process(
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
    # If Python ends normally, Java follows as soon as it sees its input closed.
    assert no_process_left(tmp_path, 0 if process.returncode == 128 + number else 60)
    if process.returncode in (0, 3):
        assert later
        return
    # A shell sees both as the same. The second one is a Python that only had to exit.
    assert process.returncode in (128 + number, *([-number] if later else []))
    assert out in ("", "21:25:2\n")
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize(("sign", "later"), mostly_at_night([(SCRIPT, 0.0), (JAVA, 3.0)]))
def test_java_ends_if_the_command_is_killed(start: Start, tmp_path: Path, sign: str, later: float) -> None:
    process = start()
    until(tmp_path, sign, process)
    time.sleep(later)
    process.kill()
    process.communicate(timeout=120)
    assert no_process_left(tmp_path, 120)


@pytest.mark.nightly
@pytest.mark.parametrize("delay", [0.3, 1.5])
def test_an_interrupt_at_any_moment_leaves_no_process(start: Start, tmp_path: Path, delay: float) -> None:
    process = start()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode in (130, -signal.SIGINT, 1)
    assert no_process_left(tmp_path, 60)


@pytest.mark.parametrize(
    ("number", "code"), mostly_at_night([(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
)
def test_an_interrupt_while_workers_work_leaves_no_process(
    start: Start, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(sys.executable, "-c", LONG_JOB)
    until(tmp_path, "pyspark.daemon", process)
    time.sleep(1)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == code
    assert no_process_left(tmp_path, 60)
