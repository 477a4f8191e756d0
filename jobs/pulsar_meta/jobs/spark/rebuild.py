"""Ledgers on bookies' disks looked at by Spark, some at a time a task: what `rebuild` makes a store of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.rebuild.ledgers import disks_of
from pulsar_meta.jobs.rebuild.scan import LedgerScan, Scanner, scan_ledger
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import Task, map_on_workers
from pulsar_meta.jobs.topics.topic import Report

# Neighbours lie near each other on disks.
LEDGERS_A_TASK = 32


def scan_with_spark(
    sources: Sources, password: bytes, lost: Sequence[str], report: Report, spark: SparkSettings
) -> Scanner:
    """Return what looks at ledgers as `scan_ledgers` does, by Spark's workers.

    It raises what opening the entries raises, and UnreachableError where Spark does not start.
    """

    def scanned(ledger_ids: Iterable[int]) -> Iterator[LedgerScan]:
        left = iter(ledger_ids)
        groups = iter(lambda: tuple(islice(left, LEDGERS_A_TASK)), ())
        work = partial(scan_some, password, tuple(lost))
        with spark_session(spark) as session:
            tasks = [Task(sources, group, len(group)) for group in groups]
            for scans in map_on_workers(session, tasks, work, spark):
                for scan in scans:
                    for fault in scan.faults:
                        report(fault)
                    yield scan

    return scanned


def scan_some(
    password: bytes, lost: tuple[str, ...], opened: Opened, ledger_ids: Sequence[int]
) -> list[LedgerScan]:
    """Look at some ledgers."""
    disks = disks_of(opened.entries)
    return [scan_ledger(opened.entries, disks, one, password=password, lost=lost) for one in ledger_ids]
