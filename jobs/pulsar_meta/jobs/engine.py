"""Which engine answers, this process or Spark, and which Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.java import why_no_spark
from pulsar_meta.jobs.topics.topic import Ledger

# A local search answers thousands of questions in the seconds that Spark takes to start.
WORTH_SPARK: Final = 50_000
# From so many entries to read on, Spark is worth its start.
WORTH_SPARK_ENTRIES: Final = 10_000_000
# The master that starts Spark in this machine, on all its cores.
LOCAL: Final = "local[*]"


def _ignore(what: object) -> None:
    """Take a note, and leave it."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Which Spark runs a job: its master, further configuration, and whether its own log is shown.

    `note` takes what the workers' sources met that a person should know, `report` what they found damaged
    beside what was read; each text once.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    note: Callable[[str], None] = _ignore
    report: Callable[[PulsarMetaError], None] = _ignore


def choose_engine(asked: str, questions: int, master: str | None = None) -> tuple[str, str | None]:
    """Return ("local" | "spark", what a person should know about the choice).

    `auto`: Spark with a master given or from WORTH_SPARK questions on, and only where its Java is found.
    """
    if asked != "auto":
        return asked, None
    if master is None and questions < WORTH_SPARK:
        return "local", None
    missing = why_no_spark()
    return ("spark", None) if missing is None else ("local", f"running without Spark: {missing}")


def choose_engine_to_read(
    asked: str,
    ledgers: Iterable[Ledger],
    source: EntrySource,
    master: str | None = None,
    entries: int | None = None,
) -> tuple[str, str | None]:
    """As `choose_engine`, for work that reads these ledgers: worth it from WORTH_SPARK_ENTRIES entries on.

    `entries` is how many entries they claim, where somebody has counted them: they are not held then.
    """
    if asked != "auto" or master is not None:
        return choose_engine(asked, 0, master)
    if entries is None:
        ledgers = list(ledgers)
        entries = sum(ledger.entries or 0 for ledger in ledgers)
    many = entries >= WORTH_SPARK_ENTRIES and _are_held(ledgers, source)
    return choose_engine(asked, WORTH_SPARK if many else 0)


def _are_held(ledgers: Iterable[Ledger], source: EntrySource) -> bool:
    """Return whether WORTH_SPARK_ENTRIES entries of what is claimed lie up to the source's last entries."""
    counted = 0
    for ledger in ledgers:
        with suppress(DecodeError):
            last = source.last_entry(ledger.ledger_id)
            counted += min(ledger.entries or 0, 0 if last is None else last + 1)
        if counted >= WORTH_SPARK_ENTRIES:
            return True
    return False
