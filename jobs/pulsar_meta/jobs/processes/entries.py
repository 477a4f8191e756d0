"""Entries checked by several processes, a ledger's range a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Patience
from pulsar_meta.jobs.entries.entry_check import Checker, LedgerReport, LedgerTask, check_range
from pulsar_meta.jobs.entries.entry_portions import pieces
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
            shared = Shared(
                jobs, sources, source, partial(check_one, max_size), here, partial(_entries, source)
            )
            yield from (report for _, report in pool.run(tasks, shared))

    return check


def _entries(source: EntrySource, task: LedgerTask) -> int:
    """Return how many entries a range has, up to the last that is here."""
    last = None
    with suppress(DecodeError):
        last = source.last_entry(task.part.ledger.ledger_id)
    return sum(piece.last - piece.first + 1 for piece in pieces(task.part, last) if piece.last is not None)


def check_one(max_size: int, opened: Opened, task: LedgerTask, write: Write) -> LedgerReport:
    """Check one ledger's range."""
    return check_range(task.part, opened.entries, task.form, max_size=max_size, patience=Patience(0))
