"""Entries checked by several processes, a ledger's range a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Patience
from pulsar_meta.jobs.entries.entry_check import Checker, LedgerReport, LedgerTask, check_range
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.processes.messages import Write
from pulsar_meta.jobs.processes.pool import Pool, Shared


def check_by_processes(sources: Sources, source: EntrySource, max_size: int, jobs: int) -> Checker:
    """Return the checker that has so many processes read `sources`, which are open here as `source`."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        patience = Patience()

        def here(task: LedgerTask, write: Write) -> LedgerReport:
            return check_range(task.part, source, task.form, max_size=max_size, patience=patience)

        with Pool() as pool:
            shared = Shared(jobs, sources, source, partial(check_one, max_size), here)
            yield from (report for _, report in pool.run(tasks, shared))

    return check


def check_one(max_size: int, opened: Opened, task: LedgerTask, write: Write) -> LedgerReport:
    """Check one ledger's range."""
    return check_range(task.part, opened.entries, task.form, max_size=max_size, patience=Patience(0))
