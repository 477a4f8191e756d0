"""What the commands that write have in common: their options, the question, and a run with its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from pulsar_meta.cli.errors import undo_files
from pulsar_meta.cli.outputs import asking, drawn, progress_bar, talk
from pulsar_meta.cli.render.rewriting import (
    PLAN,
    named,
    question,
    question_lines,
    resume_command,
    summary_lines,
    undo_command,
)
from pulsar_meta.cli.render.tables import Detail, Format
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Exit, Shell
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
from pulsar_meta.jobs.topics.once import Once
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.routed import MARK

SAFETY = "Safety"
# What the servers call their limit, which is one of whole requests.
LIMIT_OPTIONS = {"zk": "jute_maxbuffer", "etcd": "max_request_bytes", "etcds": "max_request_bytes"}
REQUEST_ROOM = 4096
# Reasons for which a value is not as it was asked for, and no guard's.
UNDONE = ("packs-differently", UNKNOWN_FIELDS, DIFFERENT, NO_PATH, UNDECIDED)
SUMMARY_FORMS = (Format.TABLE, Format.JSON, Format.NDJSON, Format.PLAIN)


def _safety(name: str, *more: str, text: str) -> Any:
    return typer.Option(name, *more, rich_help_panel=SAFETY, help=text)


@dataclass(frozen=True)
class WriteOptions:
    """What every command takes that writes."""

    dry_run: Annotated[bool, _safety("--dry-run", text="Write nothing; show the plan.")] = False
    yes: Annotated[bool, _safety("--yes", "-y", text="Write without asking.")] = False
    undo_file: Annotated[
        Path | None, _safety("--undo-file", text="Default: a new file in the state directory.")
    ] = None
    for_version: Annotated[
        list[str] | None,
        typer.Option(
            "--for-version",
            metavar="V",
            rich_help_panel=SAFETY,
            help="A Pulsar release that will read this (repeatable). Default: the registered brokers.",
        ),
    ] = None
    value_limit: Annotated[
        int | None,
        typer.Option(
            "--value-limit",
            min=1,
            rich_help_panel=SAFETY,
            help="Largest value that the server takes, in bytes.",
        ),
    ] = None
    allow_migration: Annotated[
        bool, _safety("--allow-migration", text="Write also while a store migration runs.")
    ] = False
    allow_loaded: Annotated[
        bool, _safety("--allow-loaded", text="Write also to topics that a broker serves.")
    ] = False
    allow_unreadable: Annotated[
        bool, _safety("--allow-unreadable", text="Write also what brokers may fail to load.")
    ] = False


@dataclass(frozen=True)
class BulkOptions:
    """What commands take beside that when they write many values."""

    resume: Annotated[bool, _safety("--resume", text="Go on with a run that was killed.")] = False
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="At most this many values a second.")
    ] = None
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1024, help="Requests in flight.")
    ] = 64


ONE_VALUE = BulkOptions()
AllowOtherStore = Annotated[
    bool, _safety("--allow-other-store", text="Accept a file that was made for another store.")
]


def open_for_writing(shell: Shell, url: str | None, options: WriteOptions) -> Store:
    """Open the store, for reading only where nothing is to be written."""
    chosen = shell.store_url(url)
    if options.value_limit is not None:
        chosen = MARK.join(_with_limit(one, options.value_limit) for one in chosen.split(MARK))
    return open_store(chosen, read_only=options.dry_run)


def _with_limit(url: str, size: int) -> str:
    """Return a store's URL that says that its server takes values of `size` bytes."""
    name = LIMIT_OPTIONS.get(url.partition(":")[0])
    if name is None:
        raise UsageError(f"--value-limit is for {', '.join(f'{scheme}:' for scheme in LIMIT_OPTIONS)}")
    return f"{url}{'&' if '?' in url else '?'}{name}={size + REQUEST_ROOM}"


def write(
    shell: Shell, store: Store, rewrite: Rewrite, options: WriteOptions, bulk: BulkOptions = ONE_VALUE
) -> None:
    """Show the plan, or ask and write; ends with the summary on stdout and the exit code of the worst.

    A person is asked, with what will happen; a script says --yes.
    """
    if shell.format not in SUMMARY_FORMS and not (options.dry_run and shell.format is Format.CSV):
        # Not after the writes, when the summary is shown.
        raise UsageError(f"-o {shell.format}: what was written is shown as table, json, ndjson or plain")
    terms = _terms(options, bulk)
    if options.dry_run:
        _show_plan(shell, store, rewrite, terms)
    elif options.yes:
        _write(shell, store, rewrite, terms, shell.warn)
    else:
        _ask_and_write(shell, store, rewrite, terms)


def _terms(options: WriteOptions, bulk: BulkOptions) -> Terms:
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
            shell.warn(f"the run stopped half-way; to go on: {resume_command(sys.argv[1:], undo_file)}")
        elif isinstance(error, UnreachableError) or not isinstance(error, PulsarMetaError):
            taking_back = undo_command(sys.argv[1:], undo_file)
            shell.warn(f"whether it was written is not known; to take it back: {taking_back}")

    with _progress(shell) as progress:
        report = run(store, rewrite, terms, Listener(warn, progress, halted))
    if store.checkpoint is not None:
        shell.say(f"the database as it was: {store.checkpoint}")
    _report(shell, report)


@contextmanager
def _progress(shell: Shell) -> Iterator[Callable[[int, Summary], None]]:
    """Give what is called with each number of values that are done; drawn only where a person is watching."""
    if not shell.is_watched:
        yield lambda count, summary: None
        return
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    column = TextColumn("values: {task.completed:.0f}, {task.fields[rate]:.0f}/s, {task.fields[saved]}")
    bar = progress_bar(SpinnerColumn(), column, TimeElapsedColumn())
    task = bar.add_task("values", total=None, rate=0.0, saved="")

    def advance(count: int, summary: Summary) -> None:
        saved = f"{abs(summary.saved)} bytes {'saved' if summary.saved >= 0 else 'more'}"
        bar.update(task, advance=count, saved=saved, rate=bar.tasks[task].speed or 0.0)

    with drawn(bar):
        yield advance


def _report(shell: Shell, report: Report) -> None:
    """Show the summary; leave with the code of the worst that happened, and hints for what was left alone."""
    summary = report.summary
    undo = undo_command(sys.argv[1:], report.undo_file) if report.undo_file else None
    try:
        view = Detail(lambda document: summary_lines(document, undo))
        shell.emit([summary.document(report.undo_file)], view, single=True)
    except BaseException:
        # Whatever it is, somebody has to know what was written.
        if undo is not None:
            verb = "was" if summary.rewritten == 1 else "were"
            shell.warn(f"{counted(summary.rewritten, 'values')} {verb} written; undo with: {undo}")
        raise
    if report.signal is not None and report.undo_path is not None:
        shell.warn(f"interrupted; to go on: {resume_command(sys.argv[1:], report.undo_path)}")
        raise typer.Exit(128 + report.signal)
    _hint(shell, summary)
    if summary.refused:
        raise typer.Exit(Exit.REFUSED)
    if summary.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if _left_undone(summary):
        raise typer.Exit(Exit.FAULT)


def _left_undone(summary: Summary) -> bool:
    """Return whether a value is not as it was asked for, and no guard is why."""
    return bool(summary.conflicts or summary.undecodable or any(summary.skipped_for[one] for one in UNDONE))


def _hint(shell: Shell, summary: Summary) -> None:
    """Say what was left alone, and what to do about it."""
    under, loaded = summary.kept_for["threshold"], summary.skipped_for["loaded"]
    plain = summary.kept_for["properties"] - summary.unreadable_for["properties"]
    if under:
        shell.say(f"{under} kept for being under the threshold (--threshold BYTES; --from-conf broker.conf)")
    if plain:
        shell.say(
            f"{counted(plain, 'cursors')} with properties left uncompressed: Pulsar 4.2.4 and 5.0.0-M1 cannot"
            " load them compressed (--for-version V says which releases will load them)"
        )
    if summary.left_unreadable:
        shell.warn(
            f"{counted(summary.left_unreadable, 'cursors')} with properties still compressed, which Pulsar"
            f" 4.2.4 and 5.0.0-M1 cannot load: {named(summary.unreadable_paths, summary.left_unreadable)}"
            " (check-readable --for-version V lists them; --compression none writes them plain)"
        )
    if loaded:
        shell.warn(f"{counted(loaded, 'values')} of topics that may be loaded: {LOADED_TOPIC}")


def _show_plan(shell: Shell, store: Store, rewrite: Rewrite, terms: Terms) -> None:
    summary, identity = Summary(), read_identity(store)
    piped = shell.output_format is None and shell.format is Format.PLAIN
    data = replace(shell, output_format=Format.NDJSON) if piped else shell
    decided = preview(store, rewrite, terms, summary, shell.warn)
    lines = named_lines(store, decided, with_new=rewrite.with_new)
    if data.format is Format.NDJSON:
        data.emit(chain([plan_header(rewrite.command, identity, rewrite.counters)], lines), PLAN)
    elif data.format is Format.JSON:
        for _ in lines:
            pass
        data.emit([summary.document(None)], PLAN, single=True)
    else:
        shell.say(f"store: {identity.instance_id or identity.url}")
        data.emit(lines, PLAN)
    shell.say("; ".join(summary_lines(summary.document(None))))
    _hint(shell, summary)
    if summary.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if _left_undone(summary):
        raise typer.Exit(Exit.FAULT)


def _ask_and_write(shell: Shell, store: Store, rewrite: Rewrite, terms: Terms) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("nothing is written without --yes where nobody can be asked (--dry-run shows what)")
    said = Once()

    def warn(text: str) -> None:
        if said.is_new(text):
            shell.warn(text)

    summary, first = foresee(store, rewrite, terms, warn)
    if not summary.rewritten and not summary.counters:
        _report(shell, Report(summary))
        return
    document = summary.document(None)
    for line in question_lines(document, first):
        talk(line)
    with asking():
        agreed = typer.confirm(question(document), err=True)
    if not agreed:
        raise typer.Exit
    _write(shell, store, rewrite, terms, warn)
