"""Which engine answers, this process or Spark, and which Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.jobs.java import why_no_java

# A local search answers thousands of questions in the seconds that Spark takes to start.
WORTH_SPARK: Final = 50_000
# From so many entries to read on, Spark is worth its start.
WORTH_SPARK_ENTRIES: Final = 10_000_000
# The master that starts Spark in this machine, on all its cores.
LOCAL: Final = "local[*]"


def _ignore(text: str) -> None:
    """Take a note, and leave it."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Which Spark runs a job: its master, further configuration, and whether its own log is shown.

    `note` takes what the workers' sources met that a person should know, each text once.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    note: Callable[[str], None] = _ignore


def choose_engine(asked: str, questions: int, master: str | None = None) -> tuple[str, str | None]:
    """Return ("local" | "spark", what a person should know about the choice).

    `auto`: Spark with a master given or from WORTH_SPARK questions on, and only where its Java is found.
    """
    if asked != "auto":
        return asked, None
    if master is None and questions < WORTH_SPARK:
        return "local", None
    missing = why_no_java()
    return ("spark", None) if missing is None else ("local", f"running without Spark: {missing}")


def choose_engine_to_read(asked: str, entries: int, master: str | None = None) -> tuple[str, str | None]:
    """As `choose_engine`, for work that reads `entries` entries: worth it from WORTH_SPARK_ENTRIES on."""
    return choose_engine(asked, WORTH_SPARK if entries >= WORTH_SPARK_ENTRIES else 0, master)
