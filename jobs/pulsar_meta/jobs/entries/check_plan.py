"""Plan the check of entries, and run it in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.copy_check import CopyReport, check_copies, disks_by_bookie, without_bad_copies
from pulsar_meta.jobs.entries.entry_blocks import Patience
from pulsar_meta.jobs.entries.entry_check import Fault, LedgerReport, check_joints, check_range
from pulsar_meta.jobs.entries.entry_choice import (
    METADATA,
    NO_METADATA,
    Coverage,
    Place,
    Range,
    first_entries,
    ranges,
)
from pulsar_meta.jobs.entries.entry_reading import pieces
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources, open_entry_sources
from pulsar_meta.jobs.entries.live_changes import DELETED, LiveChanges
from pulsar_meta.jobs.entries.log_faults import with_logs
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat, has_metadata
from pulsar_meta.jobs.topics.topic import Report, contradictions, with_bookkeeper
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class LedgerTask:
    """A range of a ledger to check, and how to read its entries. Tasks of one `topic` belong together.

    `faults` are those in its metadata, found before any entry is read.
    """

    topic: int
    part: Range
    form: EntryFormat
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """The largest payload in bytes to decompress, and whether all copies of an entry are verified.

    `incomplete` are bookies of which a ledger directory was not given.
    """

    max_size: int
    copies: bool = True
    incomplete: frozenset[str] = frozenset()


Checker = Callable[[Sequence[LedgerTask]], Iterator[LedgerReport]]


def plan_checks(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    report: Report,
    coverage: Coverage,
) -> Iterator[LedgerTask]:
    """Yield a task for each ledger of the places, in reading order.

    BookKeeper's metadata is compared with the topics' if the store has it. `coverage` counts the topics, and
    records if metadata could not be compared.
    """
    changes = coverage.changes or LiveChanges(store)
    known = store is not None and has_metadata(store)
    if store is not None and not known:
        coverage.not_checked[METADATA] = NO_METADATA
    for topic, (choice, limits) in enumerate(places):
        # Ledgers chosen without a topic have no neighbours, so each is checked separately.
        group = topic if choice.is_topic else -1
        coverage.add(choice)
        parts = list(ranges(choice, limits, source))
        ledgers = list(with_bookkeeper(store if known else None, (part.ledger for part in parts), report))
        there = {ledger.ledger_id for ledger in changes.without_deleted(ledgers, coverage.not_checked)}
        for part, ledger in zip(parts, ledgers, strict=True):
            if ledger.ledger_id not in there:
                continue
            faults = tuple(Fault(ledger.ledger_id, -1, "ledger", text) for text in contradictions(ledger))
            if ledger.state == "unknown" and source.last_entry(ledger.ledger_id) is None:
                report(NotFoundError(f"no ledger {ledger.ledger_id}: no source has an entry of it"))
            else:
                yield LedgerTask(group, replace(part, ledger=ledger), ledger.format, faults)


def first_checks(tasks: Iterable[LedgerTask], count: int | None, source: EntrySource) -> list[LedgerTask]:
    """Yield the tasks that check the first `count` entries, cutting the last task; all tasks if None."""
    planned = list(tasks)
    parts = first_entries((task.part for task in planned), count, source)
    return [replace(task, part=part) for task, part in zip(planned, parts, strict=False)]


def check_task(
    settings: CheckSettings, source: EntrySource, task: LedgerTask, patience: Patience | None = None
) -> LedgerReport:
    """Check one ledger's range: first all copies, then one good copy of each entry."""
    patience, part = patience or Patience(), task.part
    copies = check_copies(part, source, task.form, patience) if settings.copies else CopyReport()
    good = without_bad_copies(source, part.ledger.ledger_id, copies.bad)
    report = check_range(
        part,
        good,
        task.form,
        max_size=settings.max_size,
        patience=patience,
        incomplete=settings.incomplete,
    )
    report.add_copies(copies)
    return with_logs(report, source)


def check_here(source: EntrySource, settings: CheckSettings) -> Checker:
    """Make the checker that reads `source` in this process."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        patience = Patience()
        return (check_task(settings, source, task, patience) for task in tasks)

    return check


def check_by_processes(sources: Sources, source: EntrySource, settings: CheckSettings, jobs: int) -> Checker:
    """Make the checker that reads `sources` in several processes. `source` is the same, opened here."""

    def check(tasks: Sequence[LedgerTask]) -> Iterator[LedgerReport]:
        patience = Patience()

        def here(task: LedgerTask) -> LedgerReport:
            return check_task(settings, source, task, patience)

        work = partial(check_in_process, settings)
        shared = SharedWork(jobs, sources.opened, source, work, here, partial(_entries, source))
        return (report for _, report in shared.run(tasks))

    return check


def check_in_process(settings: CheckSettings, opened: Opened, task: LedgerTask) -> LedgerReport:
    """Check one ledger's range in another process."""
    return check_task(settings, opened.entries, task, Patience(0))


def _entries(source: EntrySource, task: LedgerTask) -> int:
    """Count the entries of a range, up to the last one in the source."""
    last = None
    with suppress(DecodeError):
        last = source.last_entry(task.part.ledger.ledger_id)
    return sum(piece.last - piece.first + 1 for piece in pieces(task.part, last) if piece.last is not None)


@dataclass(frozen=True, slots=True)
class SecondLook:
    """Looks again at ledgers with faults, because the cluster may have changed while they were read.

    Disks that a bookie has written to since `source` was opened are opened again.
    """

    changes: LiveChanges
    source: EntrySource
    settings: CheckSettings
    coverage: Coverage

    def __call__(self, task: LedgerTask, report: LedgerReport) -> LedgerReport:
        """Return the final report of a ledger; one without faults if the ledger was deleted."""
        ledger = task.part.ledger
        if not report.faults:
            return report
        if self.changes.is_deleted(ledger):
            self.coverage.not_checked[f"ledger {ledger.ledger_id}"] = DELETED
            return LedgerReport(ledger.ledger_id, cut=True, segment=task.part.segment)
        if not self.source.is_stale:
            return report
        with open_entry_sources(self.changes.urls, self.changes.store) as now:
            return check_task(self.settings, now, task)


def run_checks(
    tasks: Sequence[LedgerTask],
    check: Checker,
    again: Callable[[LedgerTask, LedgerReport], LedgerReport] = lambda task, report: report,
) -> Iterator[LedgerReport]:
    """Yield a report for each task in order, including faults between two ledgers of a topic.

    `again` returns the final report of a task.
    """
    reports = zip(tasks, check(tasks), strict=True)
    topic: list[LedgerReport] = []
    before: int | None = None
    for task, report in reports:
        if task.topic == -1 or task.topic != before:
            yield from check_joints(iter(topic))
            topic = []
        final = again(task, report)
        final.faults[:0] = task.faults
        topic.append(final)
        before = task.topic
    yield from check_joints(iter(topic))


def unread_copies(tasks: Iterable[LedgerTask], source: EntrySource, *, one_copy: bool) -> dict[str, str]:
    """The copies of entries that are not verified, with the reasons."""
    ledgers = (task.part.ledger.bookkeeper for task in tasks)
    members = {
        member
        for ledger in ledgers
        if ledger is not None and ledger.write_quorum > 1
        for segment in ledger.segments
        for member in segment.members
    }
    if not members:
        return {}
    if one_copy:
        return {"other copies": "--one-copy"}
    if any(part.sees_open_ledgers for part in source.parts):
        return {}
    missing = members - set(disks_by_bookie(source))
    return {"copies on other bookies": "their disks were not given"} if missing else {}
