"""Shared code of the commands that write: their options, the confirmation, and a run with its summary.

Some of them also take loose value files, and write copies instead of changes in place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer

from pulsar_meta.cli.errors import undo_files
from pulsar_meta.cli.render.rewriting import (
    PLAN,
    named,
    planned_lines,
    question,
    question_lines,
    resume_command,
    summary_lines,
    undo_command,
)
from pulsar_meta.cli.render.tables import Detail, Format
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.settings import distribution
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.cli.streams import atomic_file, progress_bar, prompt_on_stderr, show_bar, write_message
from pulsar_meta.codecs.errors import PulsarMetaError, UnreachableError, UsageError
from pulsar_meta.jobs.repair.repair import UNDECIDED
from pulsar_meta.jobs.restore.values import DIFFERENT, NO_PATH
from pulsar_meta.jobs.rewrite.apply import Speed
from pulsar_meta.jobs.rewrite.decision import NOT_THERE, Summary
from pulsar_meta.jobs.rewrite.guards import LOADED_TOPIC, Overrides
from pulsar_meta.jobs.rewrite.plan import named_lines, plan_header
from pulsar_meta.jobs.rewrite.rules import UNKNOWN_FIELDS
from pulsar_meta.jobs.rewrite.run import Listener, Report, Rewrite, Terms, foresee, preview, run
from pulsar_meta.jobs.rewrite.run_files import read_identity
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.values.snapshot import take_snapshot
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current
from pulsar_meta.stores.memory import OverlayStore
from pulsar_meta.stores.registry import MARK, open_store

SAFETY = "Safety"
# The servers' names for their size limit, which applies to a whole request.
LIMIT_OPTIONS = {"zk": "jute_maxbuffer", "etcd": "max_request_bytes", "etcds": "max_request_bytes"}
REQUEST_ROOM = 4096
# Reasons why a value was skipped that count as a failure of the command, other than refusals by guards.
FAILED_REASONS = ("packs-differently", UNKNOWN_FIELDS, DIFFERENT, NO_PATH, UNDECIDED)
SUMMARY_FORMS = (Format.TABLE, Format.JSON, Format.NDJSON, Format.PLAIN)


def _safety(name: str, *more: str, text: str) -> Any:
    return typer.Option(name, *more, rich_help_panel=SAFETY, help=text)


@dataclass(frozen=True)
class WriteOptions:
    """Options of every command that writes."""

    dry_run: Annotated[bool, _safety("--dry-run", text="Show the plan; write nothing.")] = False
    yes: Annotated[bool, _safety("--yes", "-y", text="Write without asking for confirmation.")] = False
    undo_file: Annotated[
        Path | None,
        _safety("--undo-file", text="Undo file to write. The default is a new file in the state directory."),
    ] = None
    for_version: Annotated[
        list[str] | None,
        typer.Option(
            "--for-version",
            metavar="V",
            rich_help_panel=SAFETY,
            help="Pulsar release that must load the result (repeatable). The default is the registered"
            " brokers.",
        ),
    ] = None
    value_limit: Annotated[
        int | None,
        typer.Option(
            "--value-limit",
            min=1,
            rich_help_panel=SAFETY,
            help="Largest value that the server accepts, in bytes.",
        ),
    ] = None
    allow_migration: Annotated[
        bool, _safety("--allow-migration", text="Write even while a store migration is running.")
    ] = False
    allow_loaded: Annotated[
        bool, _safety("--allow-loaded", text="Write even to topics that a broker has loaded.")
    ] = False
    allow_unreadable: Annotated[
        bool, _safety("--allow-unreadable", text="Write even values that brokers may fail to load.")
    ] = False


@dataclass(frozen=True)
class BulkOptions:
    """Additional options of commands that write many values."""

    resume: Annotated[bool, _safety("--resume", text="Resume a run that was interrupted.")] = False
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="Largest number of values per second.")
    ] = None
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1024, help="Number of concurrent requests.")
    ] = 64


ONE_VALUE = BulkOptions()
AllowOtherStore = Annotated[
    bool, _safety("--allow-other-store", text="Accept a file that was written for another store.")
]


def open_for_writing(shell: Shell, url: str | None, options: WriteOptions) -> Store:
    """Open the store; read-only with --dry-run."""
    full_url = shell.store_url(url)
    if options.value_limit is not None:
        full_url = MARK.join(_with_limit(part, options.value_limit) for part in full_url.split(MARK))
    return open_store(full_url, read_only=options.dry_run)


def _with_limit(url: str, size: int) -> str:
    """Add to a store's URL the server's limit for values of `size` bytes."""
    name = LIMIT_OPTIONS.get(url.partition(":")[0])
    if name is None:
        schemes = ", ".join(f"{scheme}:" for scheme in LIMIT_OPTIONS)
        raise UsageError(f"--value-limit works only with stores of {schemes}")
    return f"{url}{'&' if '?' in url else '?'}{name}={size + REQUEST_ROOM}"


def write(
    shell: Shell, store: Store, rewrite: Rewrite, options: WriteOptions, bulk: BulkOptions = ONE_VALUE
) -> None:
    """Show the plan with --dry-run; otherwise ask for confirmation, unless --yes is given, and write.

    Prints the summary to stdout. Raises typer.Exit with the highest exit code of all values, and UsageError
    for a format that can't show a summary.
    """
    if shell.format not in SUMMARY_FORMS and not options.dry_run:
        # Checked before the writes; the summary is printed after them.
        raise UsageError(f"-o {shell.format} shows a plan: add --dry-run, or choose json, ndjson or plain")
    terms = terms_of(options, bulk)
    if options.dry_run:
        _show_plan(shell, store, rewrite, terms)
    elif options.yes:
        _write(shell, store, rewrite, terms, shell.warn)
    else:
        _ask_and_write(shell, store, rewrite, terms)


def write_overlaid(
    shell: Shell, store: Store, rewrite: Rewrite, options: WriteOptions, copy: Callable[[Store], None]
) -> None:
    """Show the plan with --dry-run; otherwise call `copy` with the store as it would be after the writes.

    The changed values are in memory until `copy` returns. Raises like `write`.
    """
    if options.dry_run:
        write(shell, store, rewrite, options)
        return
    # No broker reads a copy while it is written.
    options = replace(options, allow_migration=True, allow_loaded=True)
    overlay = OverlayStore(store)
    with TemporaryDirectory() as folder, _progress(shell) as progress:
        terms = replace(terms_of(options, ONE_VALUE), undo_file=Path(folder) / "undo.ndjson")
        report = run(overlay, rewrite, terms, Listener(shell.warn, progress))
    if report.signal is None:
        copy(overlay)
    _report(shell, Report(report.summary, signal=report.signal))


def terms_of(options: WriteOptions, bulk: BulkOptions) -> Terms:
    """Return the terms of a run that the options ask for."""
    overrides = Overrides(
        migration=options.allow_migration,
        loaded=options.allow_loaded,
        unreadable=options.allow_unreadable,
    )
    speed = Speed(bulk.rate, bulk.concurrency)
    return Terms(overrides, tuple(options.for_version or ()), options.undo_file, bulk.resume, speed)


def _write(shell: Shell, store: Store, rewrite: Rewrite, terms: Terms, warn: Callable[[str], None]) -> None:
    def halted(undo_file: Path, error: BaseException) -> None:
        undo_files.append(undo_file)
        if not rewrite.single:
            shell.warn(f"the run stopped early; resume with: {resume_command(sys.argv[1:], undo_file)}")
        elif isinstance(error, UnreachableError) or not isinstance(error, PulsarMetaError):
            undo = undo_command(sys.argv[1:], undo_file)
            shell.warn(f"the value may or may not have been written; undo with: {undo}")

    with _progress(shell) as progress:
        report = run(store, rewrite, terms, Listener(warn, progress, halted))
    if store.checkpoint is not None:
        shell.note(f"saved a checkpoint of the database before the write: {store.checkpoint}")
    _report(shell, report)


@contextmanager
def _progress(shell: Shell) -> Iterator[Callable[[int, Summary], None]]:
    """Show a progress bar if stderr is a terminal. The block calls it with each number of finished values."""
    if not shell.shows_progress:
        yield lambda count, summary: None
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    column = TextColumn("values: {task.completed:.0f}, {task.fields[rate]:.0f}/s, {task.fields[saved]}")
    bar = progress_bar(SpinnerColumn(), column, TimeElapsedColumn())
    task = bar.add_task("values", total=None, rate=0.0, saved="")

    def advance(count: int, summary: Summary) -> None:
        saved = f"{abs(summary.saved)} bytes {'saved' if summary.saved >= 0 else 'more'}"
        bar.update(task, advance=count, saved=saved, rate=bar.tasks[task].speed or 0.0)

    with show_bar(bar):
        yield advance


def _report(shell: Shell, report: Report) -> None:
    """Print the summary and hints, then exit with the highest exit code of all values."""
    summary = report.summary
    undo = undo_command(sys.argv[1:], report.undo_file) if report.undo_file else None
    try:
        view = Detail(lambda document: summary_lines(document, None if shell.quiet else undo))
        shell.emit([summary.document(report.undo_file)], view, single=True)
    except BaseException:
        # The undo command must be shown even if the summary can't be printed.
        if undo is not None:
            verb = "was" if summary.rewritten == 1 else "were"
            shell.warn(f"{counted(summary.rewritten, 'values')} {verb} written; undo with: {undo}")
        raise
    if report.signal is not None:
        if report.undo_path is not None:
            shell.warn(f"interrupted; resume with: {resume_command(sys.argv[1:], report.undo_path)}")
        raise typer.Exit(128 + report.signal)
    _print_hints(shell, summary)
    if summary.refused:
        raise typer.Exit(Exit.REFUSED)
    if summary.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if _has_failures(summary):
        raise typer.Exit(Exit.FAULT)


def _has_failures(summary: Summary) -> bool:
    """Return True if a value could not be written for a reason other than a guard."""
    failed = any(summary.skipped_for[reason] for reason in FAILED_REASONS)
    return bool(summary.conflicts or summary.undecodable or failed)


def _print_hints(shell: Shell, summary: Summary) -> None:
    """Explain which values were not written, and which options would change that."""
    under, loaded = summary.kept_for["threshold"], summary.skipped_for["loaded"]
    plain = summary.kept_for["properties"] - summary.unreadable_for["properties"]
    if under:
        shell.note(
            f"{under} not compressed because they are not above the threshold (change it with --threshold"
            " BYTES or --from-conf broker.conf)"
        )
    if plain:
        shell.note(
            f"{counted(plain, 'cursors')} with properties left uncompressed: Pulsar 4.2.4 and 5.0.0-M1 can't"
            " load them compressed (if other releases will load them, add --for-version V)"
        )
    if summary.left_unreadable:
        shell.warn(
            f"{counted(summary.left_unreadable, 'cursors')} with properties still compressed, which Pulsar"
            f" 4.2.4 and 5.0.0-M1 can't load: {named(summary.unreadable_paths, summary.left_unreadable)}"
            " (list them with check-readable --for-version V; uncompress them with --compression none)"
        )
    if loaded:
        shell.warn(f"{counted(loaded, 'values')} of topics that may be loaded: {LOADED_TOPIC}")


def _show_plan(shell: Shell, store: Store, rewrite: Rewrite, terms: Terms) -> None:
    summary, identity = Summary(), read_identity(store)
    piped = shell.output_format is None and shell.format is Format.PLAIN
    data = replace(shell, output_format=Format.NDJSON) if piped else shell
    decisions = preview(store, rewrite, terms, summary, shell.warn)
    lines = named_lines(store, decisions, with_new=rewrite.with_new)
    if data.format is Format.NDJSON:
        data.emit(chain([plan_header(rewrite.command, identity, rewrite.counters)], lines), PLAN)
    elif data.format is Format.JSON:
        for _ in lines:
            pass
        data.emit([summary.document(None)], PLAN, single=True)
    else:
        shell.note(f"store: {identity.instance_id or identity.url}")
        data.emit(lines, PLAN, about=lambda: planned_lines(summary.document(None)))
    shell.note("; ".join(planned_lines(summary.document(None))))
    _print_hints(shell, summary)
    if summary.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if _has_failures(summary):
        raise typer.Exit(Exit.FAULT)


def _ask_and_write(shell: Shell, store: Store, rewrite: Rewrite, terms: Terms) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("refusing to write: stdin is not a terminal; add --yes (preview with --dry-run)")
    printed = Dedup()

    def warn(text: str) -> None:
        if printed.is_new(text):
            shell.warn(text)

    summary, first = foresee(store, rewrite, terms, warn)
    if not summary.rewritten and not summary.counters:
        _report(shell, Report(summary))
        return
    document = summary.document(None)
    for line in question_lines(document, first):
        write_message(line)
    with prompt_on_stderr():
        agreed = typer.confirm(question(document), err=True)
    if not agreed:
        shell.note("nothing was written")
        raise typer.Exit
    _write(shell, store, rewrite, terms, warn)


# The URL of the store whose paths are those of the file system.
FILES: Final = "files:/"
ValueFiles = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Files of one value each, instead of a store.", show_default=False),
]
CopyTo = Annotated[
    Path | None,
    typer.Option(
        "--copy-to",
        rich_help_panel=SAFETY,
        metavar="DIR|FILE",
        help="Write copies to a directory (of files) or to a new snapshot (of a store); change nothing else.",
    ),
]


def open_values(
    shell: Shell, url: str | None, files: Sequence[str], copy_to: Path | None, writing: WriteOptions
) -> Store:
    """Open the store, or the file system if there are files; read-only if copies are written.

    Raises UsageError if files and a store are given, or if the copies can't be written.
    """
    if files and url is not None:
        raise UsageError("value files and --store can't be combined: remove one of them")
    if copy_to is None:
        return open_for_writing(shell, FILES if files else url, writing)
    if writing.undo_file is not None:
        raise UsageError("--copy-to changes nothing that an undo file could restore: remove --undo-file")
    _check_copies(files, copy_to)
    return shell.other_store(FILES) if files else shell.store(url)


def _check_copies(files: Sequence[str], target: Path) -> None:
    names = [Path(name).name for name in files]
    for path in [target / name for name in names] if files else [target]:
        if path.exists():
            raise UsageError("refusing to replace this file: choose another --copy-to", source=str(path))
    if len(set(names)) < len(names):
        raise UsageError("two of the files have the same name: copy them to separate directories")


def file_values(store: Store, files: Sequence[str]) -> Iterator[Versioned]:
    """Yield the values in files, with version ABSENT for a file that doesn't exist."""
    for path in dict.fromkeys(os.path.realpath(name) for name in files):
        yield current(store, path)


def write_copies(shell: Shell, store: Store, files: Sequence[str], target: Path) -> None:
    """Copy the files to the directory `target`, or all values of the store to the snapshot `target`."""
    if not files:
        taken = take_snapshot(store, target, tool=f"pulsar-meta {distribution().version}")
        shell.note(f"{taken.sums.values} values in {target}")
        return
    target.mkdir(parents=True, exist_ok=True)
    for name, value in zip(files, file_values(store, files), strict=True):
        if value.version != ABSENT:
            with atomic_file(target / Path(name).name, "wb") as out:
                out.write(value.value)
