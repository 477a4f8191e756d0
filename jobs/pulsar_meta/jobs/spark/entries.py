"""Entries by Spark: checked, filtered, and planned into batches, a ledger or a topic a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.batches.batch_plan import BatchPlan, plan_entries
from pulsar_meta.jobs.batches.batching import Batching
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.check_plan import Checker, LedgerTask
from pulsar_meta.jobs.entries.entry_check import LedgerReport, check_range
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, Limits, Range
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_matching
from pulsar_meta.jobs.entries.entry_filter import EntryFilter, FilterCounts
from pulsar_meta.jobs.entries.entry_reading import present_entries, read_entries
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import LEDGER_COST, Task, map_on_workers
from pulsar_meta.jobs.topics.topic import Ledger, Report

# A range, and its ledger with what BookKeeper says of it.
LedgerRange = tuple[Range, Ledger]


def check_with_spark(sources: Sources, max_size: int, spark: SparkSettings) -> Checker:
    """Return the checker that sends ledgers to Spark; it raises what opening the entries raises."""

    def checked(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        with spark_session(spark) as session:
            sent = [Task(sources, task, _cost(task.part.ledger)) for task in tasks]
            yield from map_on_workers(session, sent, partial(check, max_size), spark)

    return checked


def check(max_size: int, opened: Opened, task: LedgerTask) -> LedgerReport:
    """Check one ledger's range."""
    return check_range(task.part, opened.entries, task.form, max_size=max_size)


@dataclass(slots=True)
class Found:
    """What matched in one ledger, how many entries were looked at, and which could not be read."""

    documents: list[Document] = field(default_factory=list)
    counts: FilterCounts = field(default_factory=FilterCounts)
    coverage: Coverage = field(default_factory=Coverage)
    faults: list[PulsarMetaError] = field(default_factory=list)


def match_with_spark(
    sources: Sources,
    parts: Sequence[LedgerRange],
    chosen: EntryFilter,
    look: DumpOptions,
    counts: FilterCounts,
    coverage: Coverage,
    report: Report,
    spark: SparkSettings,
) -> Iterator[Document]:
    """Yield the documents of what matches in the order of the parts, some ledgers in memory at a time.

    Raises what opening the entries raises, and UnreachableError where Spark does not start.
    """
    with spark_session(spark) as session:
        tasks = [Task(sources, part, _cost(part[0].ledger)) for part in parts]
        for found in map_on_workers(session, tasks, partial(match, chosen, look), spark, streaming=True):
            counts.merge(found.counts)
            coverage.merge(found.coverage)
            for fault in found.faults:
                report(fault)
            yield from found.documents


def match(chosen: EntryFilter, look: DumpOptions, opened: Opened, part: LedgerRange) -> Found:
    """Filter one ledger's range."""
    found = Found()
    entries = present_entries(*part, opened.entries, found.faults.append, found.coverage)
    found.documents.extend(describe_matching(entries, chosen, found.counts, look, None, found.faults.append))
    return found


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How topics are planned into batches: which of their entries, how many, and by which rule."""

    limits: Limits
    count: int | None
    batching: Batching
    rebatch: bool


@dataclass(slots=True)
class Planned:
    """The plan of one topic, what was looked at, and which entries could not be read."""

    document: Document = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    faults: list[PulsarMetaError] = field(default_factory=list)


def plan_with_spark(
    sources: Sources,
    choices: Sequence[Choice],
    rule: BatchRule,
    coverage: Coverage,
    report: Report,
    spark: SparkSettings,
) -> Iterator[Document]:
    """Yield the plan of each choice in order; raises what opening raises, UnreachableError without Spark."""
    for choice in choices:
        coverage.add(choice)
    with spark_session(spark) as session:
        tasks = [Task(sources, choice, sum(map(_cost, choice.ledgers))) for choice in choices]
        for planned in map_on_workers(session, tasks, partial(plan, rule), spark, streaming=True):
            coverage.merge(planned.coverage)
            for fault in planned.faults:
                report(fault)
            yield planned.document


def plan(rule: BatchRule, opened: Opened, choice: Choice) -> Planned:
    """Plan one topic."""
    planned = Planned()
    report, places = planned.faults.append, [(choice, rule.limits)]
    entries = read_entries(places, opened.entries, opened.store, report, planned.coverage)
    batches = BatchPlan(rule.batching, rebatch=rule.rebatch)
    planned.document = plan_entries(batches, entries, rule.count, report)
    return planned


def _cost(ledger: Ledger) -> int:
    return LEDGER_COST + (ledger.entries or 0)
