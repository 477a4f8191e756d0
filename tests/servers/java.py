"""Java, as the tests need it: for Spark, ZooKeeper and the classes that come with Spark."""

from __future__ import annotations

from functools import cache
from typing import Final

from pulsar_meta.jobs.java import java_command, why_no_java

# A Java of a test lives for seconds: what it would compile well and collect in parallel never pays.
BRIEF: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
executable = java_command


@cache
def why_not() -> str | None:
    """Return why no Java program of the tests can run here, None where one can."""
    return why_no_java()
