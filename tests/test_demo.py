"""`make demo` finds, repairs and restores a damaged topic, and searches indexes with and without Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def demo(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "scripts/demo.sh"],
        cwd=ROOT,
        env={**os.environ, "BIN": str(Path(sys.executable).parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def assert_shown(done: subprocess.CompletedProcess[str], engine: str) -> None:
    """Check that each step printed its result and that the search used this engine."""
    assert done.returncode == 0, done.stderr
    _, *steps = re.split(r"^\d\. ", done.stdout, flags=re.MULTILINE)
    decoded, found, repaired, checked, undone, searched = steps
    assert "envelope: zstd, 82 bytes stored" in decoded
    assert "record-unreadable" in found
    assert "compress-cursors --topic" in found
    assert "82 -> 66 bytes" in repaired
    assert checked.splitlines()[1:] == ["$ pulsar-meta check marks --for-version 4.2.4", ""]
    assert "66 -> 82 bytes" in undone
    assert f"--engine {engine}" in searched
    assert [position in searched for position in (" 18:0 ", " 21:9:2 ", " 22:21:18 ")] == [True] * 3
    assert "\033" not in done.stdout


# GitHub runs `make demo` itself for each change.
@pytest.mark.nightly
@pytest.mark.spark
def test_with_java_spark_is_used() -> None:
    done = demo()
    assert_shown(done, "spark")
    assert "LEFT OUT" not in done.stderr


def test_without_java_one_process_is_used_and_the_last_lines_say_why(tmp_path: Path) -> None:
    done = demo(JAVA_HOME=str(tmp_path))
    assert_shown(done, "local")
    what, why = done.stderr.splitlines()[-2:]
    assert what.startswith("LEFT OUT: Spark")
    assert "openjdk-17" in why
