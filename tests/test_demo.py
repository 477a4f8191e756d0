"""`make demo` shows the main job, with and without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOOKED_AT = "checked: 3 questions, 11 entries\n"


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


def assert_answered(done: subprocess.CompletedProcess[str], engine: str) -> None:
    """Check the cursor's position and the positions of three indexes, and that this engine was used."""
    assert done.returncode == 0
    assert f"--engine {engine}" in done.stdout
    assert "mark-delete position: 64:2" in done.stdout
    assert [place in done.stdout for place in (" 18:0 ", " 21:9:2 ", " 22:21:18 ")] == [True] * 3


@pytest.mark.spark
def test_with_java_spark_is_used() -> None:
    done = demo()
    assert_answered(done, "spark")
    assert all(line.startswith("checked: ") for line in done.stderr.splitlines())


def test_without_java_one_process_is_used_and_the_last_lines_say_why(tmp_path: Path) -> None:
    done = demo(JAVA_HOME=str(tmp_path))
    assert_answered(done, "local")
    what, why = done.stderr.splitlines()[-2:]
    assert what.startswith("LEFT OUT: Spark")
    assert "openjdk-17" in why
