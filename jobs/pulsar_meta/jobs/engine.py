"""Choose the engine of a job: this process or Spark."""

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
# Starting Spark is worth it for this many entries.
WORTH_SPARK_ENTRIES: Final = 10_000_000
# Runs Spark on this machine, on all cores.
LOCAL: Final = "local[*]"


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of Spark: its master, its configuration, and whether its log is shown.

    `note` is called with notes from the workers' sources, `report` with damage that they found in addition to
    the results; each text once.
    """

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)
    verbose: bool = False
    note: Callable[[str], None] = lambda text: None
    report: Callable[[PulsarMetaError], None] = lambda fault: None


def choose_engine(asked: str, questions: int, master: str | None = None) -> tuple[str, str | None]:
    """Choose "local" or "spark". Returns it with a note for the operator, or None.

    `auto` chooses Spark if a master is given or there are WORTH_SPARK questions, and if Java is found.
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
    """Choose the engine for work that reads these ledgers; "spark" needs WORTH_SPARK_ENTRIES entries.

    `entries` is the number of entries in the records, if it is known. Then `ledgers` are not collected in
    memory.
    """
    if asked != "auto" or master is not None:
        return choose_engine(asked, 0, master)
    if entries is None:
        ledgers = list(ledgers)
        entries = sum(ledger.entries or 0 for ledger in ledgers)
    many = entries >= WORTH_SPARK_ENTRIES and _are_held(ledgers, source)
    return choose_engine(asked, WORTH_SPARK if many else 0)


def _are_held(ledgers: Iterable[Ledger], source: EntrySource) -> bool:
    """True if the sources have at least WORTH_SPARK_ENTRIES entries of these ledgers."""
    counted = 0
    for ledger in ledgers:
        with suppress(DecodeError):
            last = source.last_entry(ledger.ledger_id)
            counted += min(ledger.entries or 0, 0 if last is None else last + 1)
        if counted >= WORTH_SPARK_ENTRIES:
            return True
    return False
