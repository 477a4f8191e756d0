"""Java for the tests: for Spark, ZooKeeper and the classes that come with Spark."""

from __future__ import annotations

import os
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Final

from pulsar_meta.jobs.engine import java_command, why_no_java

# A test's Java lives for seconds, so expensive compilation and parallel collection never pay off.
BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
executable = java_command


@cache
def why_not() -> str | None:
    """Return why the tests can't run Java here, or None if they can."""
    return why_no_java()


def archive(name: str) -> Path:
    """Return the path of a program's class archive for the installed Java (see `class_archives`)."""
    command = os.path.realpath(executable() or "java")
    return Path(sys.prefix) / f"{name}-classes-{zlib.crc32(command.encode()):08x}.jsa"


def options(name: str) -> tuple[str, ...]:
    """Return the options of Java for a program that lives for seconds."""
    class_archive = archive(name)
    return (*BRIEF, f"-XX:SharedArchiveFile={class_archive}") if class_archive.exists() else BRIEF
