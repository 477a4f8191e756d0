"""`export`: write the messages of topics to Parquet, CSV or NDJSON files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import (
    AllOfStore,
    EngineOptions,
    EntriesUrls,
    Jobs,
    StoreUrl,
    TopicNames,
    process_count,
)
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Exit, Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.row_schema import MESSAGE_COLUMNS, checked_names
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.times import parse_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Choice, Coverage, choose
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.entries.filters import parse_filter
from pulsar_meta.jobs.entries.live_changes import DELETED, LiveChanges, has_all
from pulsar_meta.jobs.export.files import Done, Form, Manifest, open_manifest
from pulsar_meta.jobs.export.pieces import (
    Exporter,
    ExportJob,
    Piece,
    Wanted,
    counts_of,
    export_by_processes,
    export_here,
    plan_topic,
    run_export,
)
from pulsar_meta.jobs.messages.reading import MessageCounts, MessageOptions
from pulsar_meta.jobs.seek.questions import parse_index
from pulsar_meta.jobs.topics.scope import WHICH_TOPICS
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.base import Store

SIZE_UNIT = 2**20
BETWEEN = ".."
MESSAGES = "Messages"


@dataclass(frozen=True)
class MessageLimits:
    """Options that select messages and columns."""

    from_index: Annotated[
        str | None,
        typer.Option("--from-index", metavar="N", rich_help_panel=MESSAGES, help="First message index."),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            rich_help_panel=MESSAGES,
            metavar="FROM[..TO]",
            help="Entries from FROM to before TO, in milliseconds or ISO 8601.",
        ),
    ] = None
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            rich_help_panel=MESSAGES,
            metavar="FILTER",
            help="Filter by properties, such as region=eu and not (type^=test or retired).",
        ),
    ] = None
    compacted: Annotated[
        bool,
        typer.Option("--compacted", rich_help_panel=MESSAGES, help="Only the latest message of each key."),
    ] = False
    readable: Annotated[
        bool,
        typer.Option(
            "--readable",
            rich_help_panel=MESSAGES,
            help="Leave out aborted transactions, and messages after an open one.",
        ),
    ] = False
    columns: Annotated[
        str,
        typer.Option("--columns", rich_help_panel=MESSAGES, help="Only these columns, separated by commas."),
    ] = ""
    max_size: Annotated[
        int,
        typer.Option(
            "--max-size",
            min=1,
            rich_help_panel=MESSAGES,
            metavar="MIB",
            help="Largest payload to decompress.",
        ),
    ] = 256

    @property
    def times(self) -> tuple[int | None, int | None]:
        """The bounds of --time in milliseconds. Raises UsageError for an invalid range."""
        if self.time is None:
            return None, None
        first, _, last = self.time.partition(BETWEEN)
        start, end = parse_time(first) if first else None, parse_time(last) if last else None
        if (start is None and end is None) or (start is not None and end is not None and start >= end):
            raise UsageError(f"invalid --time {self.time!r}: expected FROM, FROM..TO or ..TO")
        return start, end

    def options(self) -> MessageOptions:
        """Return the messages and columns to export. Raises UsageError for invalid options."""
        names = [name.strip() for name in self.columns.split(",") if name.strip()]
        return MessageOptions(
            checked_names(names, MESSAGE_COLUMNS, "messages"),
            None if self.where is None else parse_filter(self.where),
            None if self.from_index is None else parse_index(self.from_index),
            self.max_size * SIZE_UNIT,
        )

    def settings(self, form: str) -> Document:
        """Return the settings for the manifest, which every later run has to use as well."""
        return {
            "format": form, "columns": self.columns, "from_index": self.from_index, "time": list(self.times),
            "where": self.where, "compacted": self.compacted, "readable": self.readable,
        }  # fmt: skip


def export(
    shell: Shell,
    engine: EngineOptions,
    names: TopicNames = None,
    everything: AllOfStore = False,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Directory to export to (required).")
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    jobs: Jobs = None,
    limits: MessageLimits = MessageLimits(),
) -> None:
    """Export the messages of topics to Parquet, CSV or NDJSON.

    Use it to query messages with Spark or DuckDB without a broker, or to archive a topic. Each message is a
    row: batches are split, chunks joined, payloads decompressed, and values decoded with the topic's schemas
    (as JSON). If a message can't be read, its row has `error`, and the exit code is 4. Files are in
    directories such as namespace=…/name=…/partition=…, as Hive, Spark and DuckDB expect.

    DIR/_manifest.jsonl lists the entries, counts and SHA-256 of each file. Another run of the command resumes
    a run that was killed, and exports only new or incomplete entries.

    Examples:
      pulsar-meta export public/default --to out --entries bookie-disk:data/bookie
      pulsar-meta export orders --to out -o ndjson --time 2026-08-20..2026-08-21
      pulsar-meta export --all --to /shared/out --engine spark --entries bookie:
    """
    form, (since, until) = _form(shell), limits.times
    options = limits.options()
    if bool(names) == everything:
        raise UsageError(WHICH_TOPICS)
    if to is None:
        raise UsageError("no directory for the files: add --to DIR")
    wanted = Wanted(options.from_index, since, until, limits.compacted, limits.readable)
    job = ExportJob(str(to.absolute()), form, options, limits.compacted)
    run, urls = _Run(Faults(shell), Coverage(), engine, jobs, job, wanted), shell.entries_urls(entries)
    with shell.store(store) as opened, open_entry_sources(urls, opened) as source:
        shell.warn_of_old_parts(opened, names or [])
        choices = list(choose(names or [], opened, source, run.faults.report, everything=everything))
        if not all(choice.is_topic for choice in choices):
            raise UsageError("export needs topics: replace ledger ids by names of topics")
        if choices:
            with open_manifest(to, limits.settings(form)) as manifest:
                run.export(choices, manifest, opened, source, urls)
        run.faults.finish(source)


@dataclass(slots=True)
class _Run:
    """A run of the command, with its options, faults and coverage."""

    faults: Faults
    coverage: Coverage
    engine: EngineOptions
    jobs: int | None
    job: ExportJob
    wanted: Wanted

    def export(
        self,
        choices: list[Choice],
        manifest: Manifest,
        store: Store,
        source: EntrySource,
        urls: list[str],
    ) -> None:
        """Export the new entries of topics, and print a summary that includes earlier runs."""
        shell, pieces = self.faults.shell, list[Piece]()
        for choice in choices:
            self.coverage.add(choice)
            pieces += plan_topic(
                choice, self.wanted, self.job.form, store, source, manifest, self.faults.report
            )
        before = manifest.count
        with shell.progress(len(pieces), "files") as progress:
            for _ in run_export(pieces, self._exporter(pieces, store, source, urls), manifest):
                progress.advance(1)
        changes = LiveChanges(store, urls)
        exported = [
            piece if piece.whole else self._explained(piece, choice, changes, source)
            for choice in choices
            for piece in manifest.of_topic(choice.name)
        ]
        files = sum(piece.file is not None for piece in exported)
        shell.note(
            f"{counted(sum(piece.rows for piece in exported), 'messages')} in {counted(files, 'files')};"
            f" {counted(len(pieces), 'pieces')} exported now, {before} by earlier runs"
        )
        self._print_summary(exported)

    def _explained(self, piece: Done, choice: Choice, changes: LiveChanges, source: EntrySource) -> Done:
        """Return a piece without entries and schemas that a running cluster deleted or wrote meanwhile."""
        ledgers = {ledger.ledger_id: ledger for ledger in choice.ledgers}
        counts, errors = dict(piece.counts), piece.errors
        missing, failed = counts.get("missing", 0), counts.get("without_schema", 0)
        why = _why_missing(piece, ledgers, changes, source) if missing else None
        if why is not None:
            self.coverage.not_checked[f"{counted(missing, 'entries')} of {piece.topic}"] = why
            counts["missing"] = 0
        if failed and failed == counts["errors"] and changes.is_topic_deleted(piece.topic, ledgers):
            self.coverage.not_checked[f"the schema of {piece.topic}"] = DELETED
            counts["errors"], errors = 0, ()
        unknown = counts.get("undecided", 0)
        if unknown and ledgers and changes.is_topic_deleted(piece.topic, ledgers):
            self.coverage.not_checked[f"readability of {counted(unknown, 'entries')} of {piece.topic}"] = (
                DELETED
            )
            counts["undecided"] = 0
        return replace(piece, counts=counts, errors=errors)

    def _exporter(self, pieces: list[Piece], store: Store, source: EntrySource, urls: list[str]) -> Exporter:
        ledgers = (part.ledger for piece in pieces for part in piece.parts)
        shell, sources = self.faults.shell, Sources(store.url, tuple(urls))
        if self.engine.choose(shell, ledgers, source) == "spark":
            from pulsar_meta.jobs.spark.commands import export_with_spark

            return export_with_spark(self.job, sources, self.engine.spark_settings(self.faults))
        count = process_count(shell, self.jobs, sources, source)
        if count > 1:
            return export_by_processes(self.job, sources, store, source, count)
        return export_here(self.job, store, source)

    def _print_summary(self, exported: list[Done]) -> None:
        for topic, pieces in groupby(exported, key=lambda piece: piece.topic):
            self._report(topic, counts_of(pieces))
        counts = counts_of(exported)
        self.coverage.entries = counts.entries
        self.coverage.ledgers = len({entries[0] for piece in exported for entries in piece.ranges})
        left_out = {**self.coverage.left_out, **counts.left_out}
        if counts.elsewhere or counts.undecided or counts.unfiltered:
            self.faults.note(Exit.NOT_FOUND)
        self.faults.shell.summary(self.coverage.checked, left_out)

    def _report(self, topic: str, counts: MessageCounts) -> None:
        if counts.errors:
            text = f"{counted(counts.errors, 'rows')} with an error; the first: {counts.first_errors[0]}"
            self.faults.report(DecodeError(text, source=topic))
        if counts.missing:
            self.faults.report(
                NotFoundError(
                    f"{counted(counts.missing, 'entries')} are missing in all sources", source=topic
                )
            )


def _why_missing(
    piece: Done, ledgers: Mapping[int, Ledger], changes: LiveChanges, source: EntrySource
) -> str | None:
    """Return why a piece misses entries although none is lost, None if some are."""
    reasons = [
        # An earlier run may have missed entries of ledgers that the topic does not have any more.
        changes.why_missing(ledgers[ledger_id], first, last, source) if ledger_id in ledgers else DELETED
        for ledger_id, first, last in piece.ranges
        if ledger_id not in ledgers or not has_all(source, ledgers[ledger_id], first, last)
    ]
    return reasons[0] if reasons and all(reasons) else None


def _form(shell: Shell) -> Form:
    if shell.output is not None:
        raise UsageError("export writes a directory: replace --output by --to DIR")
    forms: dict[Format | None, Form] = {None: "parquet", Format.NDJSON: "ndjson", Format.CSV: "csv"}
    return forms.get(shell.output_format, "parquet")
