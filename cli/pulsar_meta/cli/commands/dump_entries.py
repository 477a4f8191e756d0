"""The command `dump-entries`: show the entries of topics and ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated

import typer

from pulsar_meta.cli.entry_options import (
    LimitOptions,
    LookOptions,
    Matches,
    PropertyFilter,
    TargetOptions,
    chosen_template,
)
from pulsar_meta.cli.entry_output import as_columns, write_frames, write_portions
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EngineOptions, EntriesUrls, Jobs, StoreUrl, process_count
from pulsar_meta.cli.render.entries import (
    PARQUET_TYPES,
    TEMPLATE_TYPES,
    each_message,
    entry_view,
    flat,
    message_view,
)
from pulsar_meta.cli.render.entry_forms import IN_BLOCKS, in_blocks, view_of
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.template import Template
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import read_in_blocks
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place, choose
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe_entries
from pulsar_meta.jobs.entries.entry_filter import EntryFilter, FilterCounts
from pulsar_meta.jobs.entries.entry_portions import Portions
from pulsar_meta.jobs.entries.entry_reading import read_entries
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.transactions.outcomes import Outcomes
from pulsar_meta.stores.base import Store

# The warning about forgotten transactions names at most so many.
NAMED = 5


def dump_entries(
    shell: Shell,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|NAMESPACE|LEDGER",
            help="Topics, tenant/namespace (both with --store) or ledgers. Default: all entries.",
        ),
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics of the store.")] = False,
    looks: LookOptions = LookOptions(),  # noqa: B008
    bounds: LimitOptions = LimitOptions(),  # noqa: B008
    sought: TargetOptions = TargetOptions(),  # noqa: B008
    where: PropertyFilter = PropertyFilter(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
    jobs: Jobs = None,
) -> None:
    """Show the entries of topics and ledgers, from bookies' disks or files of frames.

    With --deep, and with --payload, which opens entries too, each message is shown. -o raw writes the
    frames themselves, in the form that frames: reads (with --output FILE also their positions, to FILE.idx).
    Sizes leave out BookKeeper's header and digest. If an entry is corrupt, it is reported, the others are
    shown, and the exit code is 4.

    With --where, only entries with a matching message are shown, and whether the entry or the message
    decided. stderr ends with the number of entries that could not be decided: stock Java and C++ producers
    keep the properties of a batch with each message, and Go producers repeat only the first message's.

    Several processes read disks with large entry logs (--jobs), with the same output. One process does so
    with --limit, --where, --payload and --transactions, and for -o json and parquet.

    Examples:
      pulsar-meta dump-entries orders --entries bookie-disk:data/bookie --from -10
      pulsar-meta dump-entries 42 --deep --payload text -o ndjson
      pulsar-meta dump-entries orders --where "region=eu and not retired"
      pulsar-meta dump-entries orders --time 2026-08-20 --format '{index}'
      pulsar-meta dump-entries orders --transactions --from -10
    """
    look, line = looks.look(), chosen_template(shell, looks.template, TEMPLATE_TYPES)
    chosen = where.filter(look.max_size)
    if chosen is None and engine != EngineOptions():
        raise UsageError("--engine, --master and --conf go with --where")
    with ExitStack() as stack:
        opened = _store(shell, store, names or [], everything)
        if opened is not None:
            stack.enter_context(opened)
            shell.warn_of_old_parts(opened, names or [])
        urls = shell.entries_urls(entries)
        source = stack.enter_context(open_entry_sources(urls, opened))
        faults = Faults(shell)
        choices = choose(
            names or [], opened, source, faults.report, everything=everything, ledgers=bounds.ledgers
        )
        places = sought.places(choices, bounds, source, faults)
        _check_form(shell.format, where=chosen is not None, transactions=looks.transactions, deep=look.deep)
        outcomes = Outcomes(opened, source, faults.report) if looks.transactions else None
        dump = _Dump(faults, look, line, opened, source, urls, bounds.count, outcomes)
        dump.write(places, chosen, engine, jobs)
        bounds.report_coverage(shell, dump.coverage, faults, named=bool(names) or everything)
        faults.finish(source)


@dataclass(slots=True)
class _Dump:
    """One run of the command: what it reads, and how it shows entries."""

    faults: Faults
    look: DumpOptions
    line: Template | None
    store: Store | None
    source: EntrySource
    urls: list[str]
    count: int | None
    outcomes: Outcomes | None
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def shell(self) -> Shell:
        """The shell that the command runs in."""
        return self.faults.shell

    def write(
        self, places: Iterator[Place], chosen: EntryFilter | None, engine: EngineOptions, jobs: Jobs
    ) -> None:
        """Write the entries of places: those that match, whole blocks, or one by one."""
        if chosen is not None:
            self._write_matching(list(places), chosen, engine)
        elif self._in_blocks():
            self._write_blocks(places, jobs)
        else:
            self._write_documents(islice(self._documents(places), self.count))
        if self.outcomes is not None:
            self.coverage.undecided(self.outcomes.unknown)
            _warn_of_forgotten(self.shell, self.outcomes)

    def _write_matching(self, places: list[Place], chosen: EntryFilter, engine: EngineOptions) -> None:
        """Write the entries that match a filter, and say how they were decided."""
        matches = Matches(self.faults, engine, chosen, self.look, self.count, FilterCounts(), self.coverage)
        if self.shell.format is Format.RAW:
            write_frames(self.shell, matches.entries(places, self.source, self.store))
        else:
            documents = matches.documents(places, self.source, self.store, self.urls)
            if self.outcomes is not None:
                documents = self.outcomes.add(documents, (choice.ledgers for choice, _ in places))
            self._write_documents(documents)
        self.shell.note(matches.counts.summary())

    def _in_blocks(self) -> bool:
        """Return whether no entry needs a document of its own, as on a terminal and to show payloads."""
        form, look = self.shell.format, self.look
        if form in (Format.RAW, Format.PARQUET):
            return True
        plain = self.line is None and self.outcomes is None and look.form is None and look.directory is None
        return plain and form in IN_BLOCKS and not self.shell.is_on_terminal

    def _write_blocks(self, places: Iterator[Place], jobs: Jobs) -> None:
        """Write entries in blocks, with several processes if that is worth it."""
        shell, sources = self.shell, Sources(None, tuple(self.urls))
        # Only who has read all entries before it knows which one is the last within a limit.
        alone = shell.format is Format.PARQUET or self.count is not None
        count = 1 if alone else process_count(shell, jobs, sources, self.source)
        if count > 1:
            portions = Portions(places, self.source, self.store, self.faults.report, self.coverage)
            write_portions(shell, portions, self.look, count, sources, self.source)
            return
        headers = shell.format is not Format.RAW
        blocks = read_in_blocks(
            places,
            self.source,
            self.store,
            self.faults.report,
            self.coverage,
            self.count,
            with_headers=headers,
        )
        if shell.format is Format.RAW:
            write_frames(shell, blocks)
        elif shell.format is Format.PARQUET:
            shell.emit_columns(as_columns(blocks, self.look, self.faults.report), PARQUET_TYPES)
        else:
            parts = in_blocks(blocks, shell.format, self.look, self.faults.report)
            shell.emit_lines(parts, view_of(self.look))

    def _documents(self, places: Iterator[Place]) -> Iterator[Document]:
        """Yield the documents of entries, with the outcomes of their transactions if these are asked for."""
        if self.outcomes is None:
            yield from self._described(places)
            return
        for place in places:
            yield from self.outcomes.add(self._described([place]), [place[0].ledgers])

    def _described(self, places: Iterable[Place]) -> Iterator[Document]:
        found = read_entries(places, self.source, self.store, self.faults.report, self.coverage)
        return describe_entries(found, self.look, None, self.faults.report)

    def _write_documents(self, documents: Iterator[Document]) -> None:
        shell, deep = self.shell, self.look.deep
        if self.line is not None:
            shell.emit(map(flat, each_message(documents) if deep else documents), self.line.view())
        elif not deep:
            shell.emit(documents, entry_view())
        elif shell.format in (Format.JSON, Format.NDJSON):
            shell.emit(documents, message_view())
        else:
            shell.emit(each_message(documents), message_view(short=shell.format is Format.TABLE))


def _warn_of_forgotten(shell: Shell, outcomes: Outcomes) -> None:
    """Warn of aborted transactions that a broker forgets when it loads the topic."""
    if not outcomes.forgotten:
        return
    named = ", ".join(f"{txn} of {topic}" for topic, txn in sorted(outcomes.forgotten)[:NAMED])
    missing = counted(len(outcomes.forgotten), "aborted transactions")
    effect = "a broker that loads the topic gives readers such messages"
    shell.warn(f"{missing} missing in the newest snapshot: {effect} ({named})")


def _check_form(form: Format, *, where: bool, transactions: bool, deep: bool) -> None:
    if transactions and form is Format.RAW:
        raise UsageError("-o raw writes only frames: leave --transactions out")
    if form is Format.PARQUET and (where or transactions or deep):
        raise UsageError(
            "-o parquet has a row an entry: leave --where, --transactions, --deep, --payload out"
        )


def _store(shell: Shell, url: str | None, names: list[str], everything: bool) -> Store | None:
    """Open the store if one is given; ledgers by number need none."""
    if url is None and shell.settings.store is None and not everything:
        for name in names:
            if not name.isdigit():
                raise UsageError(f"{name!r} is a topic: its ledgers are in the store, give --store URL")
        return None
    return shell.store(url)
