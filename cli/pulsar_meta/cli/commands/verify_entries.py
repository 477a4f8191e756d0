"""`verify-entries`: verify entries from digest to batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.entry_options import LimitOptions, TargetOptions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import (
    AllOfStore,
    EngineOptions,
    EntriesUrls,
    EntryNames,
    Jobs,
    StoreUrl,
    process_count,
)
from pulsar_meta.cli.render.tables import Format, View
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.check_plan import (
    Checker,
    CheckSettings,
    LedgerTask,
    SecondLook,
    check_by_processes,
    check_here,
    first_checks,
    plan_checks,
    run_checks,
    unread_copies,
)
from pulsar_meta.jobs.entries.entry_check import EntryFault, LedgerReport
from pulsar_meta.jobs.entries.entry_choice import Coverage, choose
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.entries.live_changes import LiveChanges
from pulsar_meta.jobs.entries.log_faults import LogFaults
from pulsar_meta.jobs.topics.completeness import directories_not_given

SIZE_UNIT = 2**20


def verify_entries(
    shell: Shell,
    bounds: LimitOptions,
    sought: TargetOptions,
    engine: EngineOptions,
    names: EntryNames = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    everything: AllOfStore = False,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="MIB", help="Largest payload to decompress.")
    ] = 256,
    one_copy: Annotated[
        bool,
        typer.Option(
            "--one-copy", help="Verify one copy of each entry; faster, and finds no bad second copy."
        ),
    ] = False,
    consequences: Annotated[
        bool,
        typer.Option("--consequences", help="Also list the faults that a damaged entry log explains."),
    ] = False,
    jobs: Jobs = None,
) -> None:
    """Verify entries from digest to batch.

    Use it when you suspect that a disk has damaged data, or to verify a copy. Prints one line per fault, and
    exits with 1 if there are any. It compares the ledger with BookKeeper's metadata and the topic's list, and
    checks records, header, digest, length, sizes, metadata, the frame's checksum, payload and batch, and that
    indexes continue from entry to entry and from ledger to ledger.

    The type and password of the digest come from the store; without a store, the command tries the types. An
    entry on a bookie whose disks are not in --entries is neither checked nor missing; if you selected topics
    or ledgers, the exit code is then 3.

    With running bookies (bookie:) or the disks of several bookies, every copy is verified. A bad one is
    printed with its bookie, on disks also with file and offset, the number of good copies, and BookKeeper's
    command that replaces it. Copies on a bookie that does not answer are not checked.

    A missing or damaged entry log is one fault that counts the entries and ledgers that it affects.

    Examples:
      pulsar-meta verify-entries orders --store zk://zk1:2181 --entries bookie:
      pulsar-meta verify-entries --entries bookie-disk:/data/bookie --engine spark
      pulsar-meta verify-entries --entries frames:- --index 1234 < frames
    """
    faults, coverage = Faults(shell), Coverage()
    with ExitStack() as stack:
        opened = stack.enter_context(shell.store_if_any(store, names or []))
        urls = shell.entries_urls(entries)
        source = stack.enter_context(open_entry_sources(urls, opened))
        coverage.changes = changes = LiveChanges(opened, urls)
        choices = choose(
            names or [], opened, source, faults.report, everything=everything, ledgers=bounds.ledgers
        )
        places = sought.places(choices, bounds, source, faults)
        planned = plan_checks(places, source, opened, faults.report, coverage)
        tasks = first_checks(planned, bounds.count, source)
        if source.is_stale:
            # The metadata may count entries that were written after the disks were opened.
            source = stack.enter_context(open_entry_sources(urls, opened))
        sources = Sources(opened.url if opened else None, tuple(urls))
        gaps = directories_not_given(source, urls)
        coverage.not_checked |= {str(gap): "entries that were not found may be in it" for gap in gaps}
        incomplete = frozenset(gap.bookie for gap in gaps if gap.bookie is not None)
        settings = CheckSettings(max_size * SIZE_UNIT, copies=not one_copy, incomplete=incomplete)
        coverage.not_checked |= unread_copies(tasks, source, one_copy=one_copy)
        check = _checker(faults, engine, jobs, tasks, sources, source, settings)
        progress = stack.enter_context(shell.progress(len(tasks), "ledgers"))
        again = SecondLook(changes, source, settings, coverage)
        reports = run_checks(tasks, lambda tasks: progress.counting(check(tasks)), again)
        shell.emit(_faults(reports, coverage, faults, LogFaults(consequences)), _VIEW)
        _note_success(shell, faults)
        coverage.ledgers = len(tasks)
        bounds.report_coverage(shell, coverage, faults, named=bool(names) or everything)
        faults.finish(source)


def _note_success(shell: Shell, faults: Faults) -> None:
    if shell.is_on_terminal and shell.format is Format.TABLE and not faults.worst:
        shell.note("no faults found")


def _checker(
    faults: Faults,
    engine: EngineOptions,
    jobs: int | None,
    tasks: Sequence[LedgerTask],
    sources: Sources,
    source: EntrySource,
    settings: CheckSettings,
) -> Checker:
    """Return the function that runs tasks: with Spark, with several processes, or in this one."""
    shell = faults.shell
    if engine.choose(shell, (task.part.ledger for task in tasks), source) == "spark":
        from pulsar_meta.jobs.spark.commands import check_with_spark

        return check_with_spark(sources, settings, engine.spark_settings(faults))
    count = process_count(shell, jobs, sources, source)
    if count > 1:
        return check_by_processes(sources, source, settings, count)
    return check_here(source, settings)


def _faults(
    reports: Iterator[LedgerReport], coverage: Coverage, faults: Faults, logs: LogFaults
) -> Iterator[EntryFault]:
    for report in reports:
        coverage.entries += report.entries
        coverage.copies += report.copies
        coverage.elsewhere += report.elsewhere
        coverage.not_checked |= report.not_checked
        if report.faults:
            faults.note(Exit.FAULT)
        yield from logs.of(report)
    yield from logs.finish()


def _row(document: Document) -> list[str]:
    segment = f" ({document['topic']})" if "scalable_topic" in document else ""
    is_log = document["layer"] == "log"
    place = Path(document["file"]).name if is_log else f"{document['ledger_id']}:{document['entry_id']}"
    return [place, document["layer"], f"{document['fault']}{segment}"]


_FIELDS = (
    *("ledger_id", "entry_id", "layer", "fault", "topic", "scalable_topic"),
    *("bookie", "file", "offset", "good", "copies", "repair"),
    *("entries", "ledgers", "lost", "consequences"),
)
_VIEW = View(("position", "layer", "fault"), _row, fields=_FIELDS)
