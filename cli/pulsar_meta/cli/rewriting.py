"""What the commands that write have in common: their options, and a run of writes with its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pulsar_meta.cli.render.tables import Detail, Format, View
from pulsar_meta.cli.rewrite_progress import watched
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import PulsarMetaError, UnreachableError, UsageError

if TYPE_CHECKING:
    from pulsar_meta.jobs.rewrite.batches import Batches
    from pulsar_meta.jobs.rewrite.decision import Decided, Rule
    from pulsar_meta.jobs.rewrite.identity import StoreIdentity
    from pulsar_meta.jobs.rewrite.readable import Readers
    from pulsar_meta.jobs.rewrite.tally import Tally
    from pulsar_meta.stores.base import Store

SAFETY = "Safety"
# What the servers call their limit, which is one of whole requests.
LIMIT_OPTIONS = {"zk": "jute_maxbuffer", "etcd": "max_request_bytes", "etcds": "max_request_bytes"}
REQUEST_ROOM = 4096
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
            "--value-limit", min=1, rich_help_panel=SAFETY, help="The server takes this many bytes."
        ),
    ] = None
    allow_migration: Annotated[bool, _safety("--allow-migration", text="Also while a migration runs.")] = (
        False
    )
    allow_loaded: Annotated[bool, _safety("--allow-loaded", text="Also topics that a broker serves.")] = False
    allow_unreadable: Annotated[
        bool, _safety("--allow-unreadable", text="Also what brokers may fail to load.")
    ] = False


@dataclass(frozen=True)
class BulkOptions:
    """What commands take beside that when they write many values."""

    resume: Annotated[bool, _safety("--resume", text="Go on with a run that was killed.")] = False
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.01, help="At most this many values a second.")
    ] = None
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=1024, help="Requests under way at once.")
    ] = 64


ONE_VALUE = BulkOptions()
AllowOtherStore = Annotated[bool, _safety("--allow-other-store", text="Also a file of another store.")]


@dataclass(frozen=True, slots=True)
class Job:
    """What a command wants written: its name, the decisions, and how a value that moved is decided again.

    `decided` is called once for each pass over the store. `strict`: one refusal ends it (commands about
    single values). `with_new`: the plan has to carry the new values. `confirm`: nothing is written in a
    script without --yes; otherwise a person at a terminal is asked, unless it is about a single value.
    `codec`: what every value is given, where that is what it is about.
    """

    command: str
    decided: Callable[[Batches], Iterable[Decided]]
    again: Rule
    strict: bool = False
    with_new: bool = False
    confirm: bool = False
    codec: str | None = None


def open_for_writing(shell: Shell, url: str | None, options: WriteOptions) -> Store:
    """Open the store, for reading only where nothing is to be written."""
    chosen = url or shell.settings.store
    if chosen is not None and options.value_limit is not None:
        chosen = _with_limit(chosen, options.value_limit)
    return shell.store(chosen, read_only=options.dry_run)


def _with_limit(url: str, size: int) -> str:
    """Return a store's URL that tells that its server takes values of `size` bytes."""
    name = LIMIT_OPTIONS.get(url.partition(":")[0])
    if name is None:
        raise UsageError(f"--value-limit is for {', '.join(f'{scheme}:' for scheme in LIMIT_OPTIONS)}")
    return f"{url}{'&' if '?' in url else '?'}{name}={size + REQUEST_ROOM}"


def readers_of(store: Store, options: WriteOptions) -> Readers:
    """Return which releases will read what is written: as told, else the brokers that are registered."""
    from pulsar_meta.jobs.rewrite.readable import Readers, registered_versions
    from pulsar_meta.jobs.rewrite.releases import parse_version

    for version in options.for_version or ():
        parse_version(version)
    return Readers(tuple(options.for_version or ()) or registered_versions(store))


def run_job(
    shell: Shell, store: Store, job: Job, options: WriteOptions, bulk: BulkOptions = ONE_VALUE
) -> None:
    """Show the plan, or ask and write; ends with the summary on stdout and the exit code of the worst."""
    from pulsar_meta.jobs.rewrite.identity import read_identity

    if shell.format not in SUMMARY_FORMS and not (options.dry_run and shell.format is Format.CSV):
        # Not after the writes, when the summary is shown.
        raise UsageError(f"-o {shell.format}: what was written is told as table, json, ndjson or plain")
    identity = read_identity(store)
    if options.dry_run:
        _show_plan(shell, store, job, options, identity)
        return
    if not options.yes and not job.strict and (job.confirm or sys.stdin.isatty()):
        _ask(store, job, options)
    _write(shell, store, job, options, bulk, identity)


def _write(
    shell: Shell,
    store: Store,
    job: Job,
    options: WriteOptions,
    bulk: BulkOptions,
    identity: StoreIdentity,
) -> None:
    from pulsar_meta.jobs.rewrite.apply import Run, Speed
    from pulsar_meta.jobs.rewrite.batches import Batches
    from pulsar_meta.jobs.rewrite.interruption import stop_on_signals
    from pulsar_meta.jobs.rewrite.resume import resume_command, undo_path
    from pulsar_meta.jobs.rewrite.undo_file import UndoLog

    path = undo_path(job.command, identity, named=options.undo_file, resume=bulk.resume)
    undo = UndoLog(path, job.command, identity, resume=bulk.resume, codec=job.codec)
    again = resume_command(sys.argv[1:], path)
    batches = Batches(store, bulk.concurrency)
    run = Run(_guards(store, options), undo, Speed(bulk.rate, bulk.concurrency), strict=job.strict)
    with stop_on_signals() as run.stop, watched(shell, run.tally) as run.watch:
        run.told = shell.warn
        try:
            run.apply(job.decided(batches), job.again)
        except (PulsarMetaError, OSError) as error:
            if undo.written and not job.strict:
                shell.warn(f"the run stopped half-way; to go on: {again}")
            elif undo.written and isinstance(error, UnreachableError):
                shell.warn(f"whether it was written is not known; to take it back: pulsar-meta undo {path}")
            raise
        finally:
            batches.close()
            undo.close()
    undo_file = str(path) if undo.written else None
    if getattr(store, "checkpoint", None) is not None:
        shell.say(f"the database as it was: {getattr(store, 'checkpoint', None)}")
    try:
        shell.emit([run.tally.document(undo_file)], Detail(_summary), single=True)
    except (PulsarMetaError, OSError):
        if undo_file is not None:
            shell.warn(f"{run.tally.rewritten} values were written; undo with: pulsar-meta undo {undo_file}")
        raise
    if run.stop.signal is not None:
        shell.warn(f"interrupted; to go on: {again}")
        raise typer.Exit(128 + run.stop.signal)
    finish(shell, run.tally)


def finish(shell: Shell, tally: Tally) -> None:
    """Leave with the code of the worst that happened; hints for what was left alone."""
    from pulsar_meta.jobs.rewrite.decision import NOT_THERE
    from pulsar_meta.jobs.rewrite.guards import LOADED_TOPIC

    if tally.kept_for["threshold"]:
        count = tally.kept_for["threshold"]
        shell.say(f"{count} kept for being under the threshold (--threshold BYTES; --from-conf broker.conf)")
    if tally.kept_for["properties"]:
        count = tally.kept_for["properties"]
        shell.say(
            f"{count} cursors with properties kept uncompressed: Pulsar 4.2.4 and 5.0.0-M1 cannot load them"
            " (--for-version V tells which release reads them)"
        )
    if tally.skipped_for["loaded"]:
        shell.warn(f"{tally.skipped_for['loaded']} values of topics that may be loaded: {LOADED_TOPIC}")
    if tally.refused:
        raise typer.Exit(Exit.REFUSED)
    if tally.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if tally.conflicts or tally.undecodable or tally.skipped_for["packs-differently"]:
        raise typer.Exit(Exit.FAULT)


def _guards(store: Store, options: WriteOptions) -> Any:
    from pulsar_meta.jobs.rewrite.guards import Guards, Overrides

    overrides = Overrides(
        migration=options.allow_migration,
        loaded=options.allow_loaded,
        unreadable=options.allow_unreadable,
    )
    return Guards.of(store, overrides, readers_of(store, options))


def _show_plan(shell: Shell, store: Store, job: Job, options: WriteOptions, identity: StoreIdentity) -> None:
    from pulsar_meta.jobs.rewrite.batches import Batches
    from pulsar_meta.jobs.rewrite.decision import NOT_THERE
    from pulsar_meta.jobs.rewrite.plan import foreseen, plan_header, plan_line
    from pulsar_meta.jobs.rewrite.tally import Tally

    tally = Tally()
    if shell.output_format is None and shell.format is Format.PLAIN:
        shell = replace(shell, output_format=Format.NDJSON)
    with Batches(store, ONE_VALUE.concurrency) as batches:
        told = foreseen(job.decided(batches), _guards(store, options), tally, shell.warn)
        lines = (plan_line(seen, decision, with_new=job.with_new) for seen, decision in told)
        if shell.format is Format.NDJSON:
            shell.emit(chain([plan_header(job.command, identity)], lines), PLAN)
        elif shell.format is Format.JSON:
            for _ in lines:
                pass
            shell.emit([tally.document(None)], PLAN, single=True)
        else:
            shell.say(f"store: {identity.instance_id or identity.url}")
            shell.emit(lines, PLAN)
    shell.say("; ".join(_summary(tally.document(None))))
    if tally.skipped_for[NOT_THERE]:
        raise typer.Exit(Exit.NOT_FOUND)
    if tally.undecodable:
        raise typer.Exit(Exit.FAULT)


def _ask(store: Store, job: Job, options: WriteOptions) -> None:
    from pulsar_meta.jobs.rewrite.batches import Batches
    from pulsar_meta.jobs.rewrite.plan import foreseen
    from pulsar_meta.jobs.rewrite.tally import Tally

    if not sys.stdin.isatty():
        raise UsageError("nobody to ask here: --yes writes, --dry-run shows what it would do")
    tally = Tally()
    with Batches(store, ONE_VALUE.concurrency) as batches:
        for _ in foreseen(job.decided(batches), _guards(store, options), tally):
            pass
    for line in _summary(tally.document(None)):
        typer.echo(line, err=True)
    if not tally.rewritten or not typer.confirm(f"write {tally.rewritten} values?", err=True):
        raise typer.Exit


def _summary(document: dict[str, Any]) -> Iterator[str]:
    before, after = document["bytes_before"], document["bytes_after"]
    ratio = f" ({before / after:.2f}x)" if after else ""
    yield f"{document['seen']} seen, {document['rewritten']} rewritten: {before} -> {after} bytes{ratio}"
    for name in ("kept", "skipped"):
        reasons = ", ".join(f"{reason} {count}" for reason, count in document[f"{name}_for"].items())
        yield f"{document[name]} {name}" + (f": {reasons}" if reasons else "")
    yield f"{document['conflicts']} conflicts, {document['undecodable']} undecodable"
    if document["undo_file"]:
        yield f"undo with: pulsar-meta undo {document['undo_file']}"


def _plan_row(line: dict[str, Any]) -> list[str]:
    codecs = f"{line['codec_before'] or '-'} -> {line['codec_after'] or '-'}"
    sizes = [str(line["size_before"]), str(line["size_after"])]
    return [line["action"], line.get("reason", ""), codecs, *sizes, str(line["version"]), line["path"]]


PLAN = View(
    ["action", "reason", "codec", "before", "after", "version", "path"],
    _plan_row,
    right=frozenset({"before", "after", "version"}),
)
