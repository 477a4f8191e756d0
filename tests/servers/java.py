"""Java, as the tests need it: for Spark, ZooKeeper and the classes that come with Spark."""

from __future__ import annotations

import os
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Final

from pulsar_meta.jobs.java import java_command, why_no_java

# A Java of a test lives for seconds: what it would compile well and collect in parallel never pays.
BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
executable = java_command


@cache
def why_not() -> str | None:
    """Return why no Java program of the tests can run here, None where one can."""
    return why_no_java()


def archive(name: str) -> Path:
    """Return where the archive of a program's classes lies for the Java that is there (`class_archives`)."""
    command = os.path.realpath(executable() or "java")
    return Path(sys.prefix) / f"{name}-classes-{zlib.crc32(command.encode()):08x}.jsa"


def options(name: str) -> tuple[str, ...]:
    """Return the options of Java for a program that lives for seconds."""
    found = archive(name)
    return (*BRIEF, f"-XX:SharedArchiveFile={found}") if found.exists() else BRIEF
