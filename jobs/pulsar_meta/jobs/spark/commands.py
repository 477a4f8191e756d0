"""The commands whose work Spark's workers can do, each as a function that divides it into tasks.

A function raises the errors of opening the entries, UnreachableError if Spark does not start, and
PulsarMetaError if a job fails. It is imported by a command when Spark was chosen, because this module imports
the jobs of all these commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.batches.batch_plan import BatchRule, plan_choice
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.check_plan import Checker, CheckSettings, LedgerTask, check_task
from pulsar_meta.jobs.entries.entry_check import LedgerReport
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, Range
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_matching
from pulsar_meta.jobs.entries.entry_reading import present_entries
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts
from pulsar_meta.jobs.export.pieces import Exported, Exporter, ExportJob, Piece, export_opened
from pulsar_meta.jobs.index.check import LedgerScan, check_topic, scan_ledger
from pulsar_meta.jobs.index.properties import first_index
from pulsar_meta.jobs.rebuild import scan as disk_scan
from pulsar_meta.jobs.rebuild.ledgers import disks_of
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import LEDGER_COST, Task, map_on_workers
from pulsar_meta.jobs.topics.topic import Ledger, Report, Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Neighbouring ledgers are close to each other on disk, so that one task scans several.
LEDGERS_PER_TASK: Final = 32
# A killed export loses at most about so much work.
JOB_SECONDS: Final = 60.0

# A range, and its ledger with BookKeeper's metadata.
LedgerRange = tuple[Range, Ledger]


def check_with_spark(sources: Sources, settings: CheckSettings, spark: SparkSettings) -> Checker:
    """Return the checker that verifies each ledger of its argument in a task of Spark's."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        with spark_session(spark) as session:
            sent = [Task(sources, task, _cost(task.part.ledger)) for task in tasks]
            yield from map_on_workers(session, sent, partial(check_ledger, settings), spark)

    return check


def check_ledger(settings: CheckSettings, opened: Opened, task: LedgerTask) -> LedgerReport:
    """Verify the entries of one ledger."""
    return check_task(settings, opened.entries, task)


@dataclass(slots=True)
class Matches:
    """The matching entries of one ledger, the number of entries read, and the errors of those not read."""

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
    """Yield the documents of matching entries in the order of the parts, with a few ledgers in memory.

    Adds to `counts` and `coverage`, and reports entries that cannot be read.
    """
    with spark_session(spark) as session:
        tasks = [Task(sources, part, _cost(part[0].ledger)) for part in parts]
        work = partial(match_entries, chosen, look)
        for matches in map_on_workers(session, tasks, work, spark, streaming=True):
            counts.merge(matches.counts)
            coverage.merge(matches.coverage)
            for fault in matches.faults:
                report(fault)
            yield from matches.documents


def match_entries(chosen: EntryFilter, look: DumpOptions, opened: Opened, part: LedgerRange) -> Matches:
    """Return the matching entries of one ledger."""
    matches = Matches()
    report = matches.faults.append
    entries = present_entries(*part, opened.entries, report, matches.coverage)
    matches.documents.extend(describe_matching(entries, chosen, matches.counts, look, None, report))
    return matches


@dataclass(slots=True)
class Planned:
    """The plan of one topic, the entries that were read, and the errors of those that were not."""

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
    """Yield the plan of each choice. Adds to `coverage`, and reports entries that cannot be read."""
    for choice in choices:
        coverage.add(choice)
    with spark_session(spark) as session:
        tasks = [Task(sources, choice, sum(map(_cost, choice.ledgers))) for choice in choices]
        for planned in map_on_workers(
            session, tasks, partial(plan_topic_batches, rule), spark, streaming=True
        ):
            coverage.merge(planned.coverage)
            for fault in planned.faults:
                report(fault)
            yield planned.document


def plan_topic_batches(rule: BatchRule, opened: Opened, choice: Choice) -> Planned:
    """Return the plan of one topic."""
    planned = Planned()
    report = planned.faults.append
    planned.document = plan_choice(rule, choice, opened.entries, opened.store, report, planned.coverage)
    return planned


def _cost(ledger: Ledger) -> int:
    return LEDGER_COST + (ledger.entries or 0)


def export_with_spark(job: ExportJob, sources: Sources, spark: SparkSettings) -> Exporter:
    """Return the exporter whose pieces are written by Spark's workers, one file per task."""

    def export(pieces: Sequence[Piece]) -> Iterator[Exported]:
        if not pieces:
            return
        tasks = [Task(sources, piece, LEDGER_COST + piece.cost) for piece in pieces]
        with spark_session(spark) as session:
            # In several jobs, so that an export that was killed can continue after the last one.
            work = partial(export_opened, job)
            yield from map_on_workers(session, tasks, work, spark, streaming=True, job_seconds=JOB_SECONDS)

    return export


def check_indexes_with_spark(
    sources: Sources, topics: Sequence[Topic], key: str, spark: SparkSettings
) -> Iterator[Document]:
    """Yield the reports of `check_indexes`; one task scans one ledger."""
    ledgers = {ledger.ledger_id: ledger for topic in topics for ledger in topic.ledgers}
    tasks = [Task(sources, ledger, _cost(ledger)) for ledger in ledgers.values()]
    with spark_session(spark) as session:
        scans = dict(zip(ledgers, map_on_workers(session, tasks, scan_indexes, spark), strict=True))
    for topic in topics:
        yield from check_topic(topic, scans, key)


def first_indexes_with_spark(
    session: SparkSession, sources: Sources, ledger_ids: Sequence[int], spark: SparkSettings
) -> list[int | str]:
    """Return the first index of each ledger, or the reason why it has none."""
    tasks = [Task(sources, ledger_id) for ledger_id in ledger_ids]
    return list(map_on_workers(session, tasks, read_first_index, spark))


def scan_indexes(opened: Opened, ledger: Ledger) -> LedgerScan:
    """Scan the indexes of one ledger."""
    return scan_ledger(opened.entries, ledger)


def read_first_index(opened: Opened, ledger_id: int) -> int | str:
    """Return the index of a ledger's first message, or the reason why it has none."""
    return first_index(opened.entries, ledger_id)


def scan_with_spark(
    sources: Sources, password: bytes, lost: Sequence[str], report: Report, spark: SparkSettings
) -> disk_scan.Scanner:
    """Return the scanner for `rebuild` that scans ledgers on bookies' disks, several per task."""

    def scan(ledger_ids: Iterable[int]) -> Iterator[disk_scan.LedgerScan]:
        ids = list(ledger_ids)
        groups = [tuple(ids[at : at + LEDGERS_PER_TASK]) for at in range(0, len(ids), LEDGERS_PER_TASK)]
        tasks = [Task(sources, group, len(group)) for group in groups]
        work = partial(scan_ledgers, password, tuple(lost))
        with spark_session(spark) as session:
            for scans in map_on_workers(session, tasks, work, spark):
                for ledger_scan in scans:
                    for fault in ledger_scan.faults:
                        report(fault)
                    yield ledger_scan

    return scan


def scan_ledgers(
    password: bytes, lost: tuple[str, ...], opened: Opened, ledger_ids: Sequence[int]
) -> list[disk_scan.LedgerScan]:
    """Scan some ledgers on the disks of the task's sources."""
    disks = disks_of(opened.entries)
    return [
        disk_scan.scan_ledger(opened.entries, disks, ledger_id, password=password, lost=lost)
        for ledger_id in ledger_ids
    ]
