"""`dump-entries`: show the entries of topics and ledgers, in blocks if several processes read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from pulsar_meta.cli.entry_options import (
    LimitOptions,
    LookOptions,
    Matches,
    PropertyFilter,
    TargetOptions,
)
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import (
    AllOfStore,
    EngineOptions,
    EntriesUrls,
    EntryNames,
    Jobs,
    StoreUrl,
    chosen_template,
    process_count,
)
from pulsar_meta.cli.render.entries import (
    PARQUET_TYPES,
    TEMPLATE_TYPES,
    each_message,
    entry_view,
    flat,
    message_view,
    parquet_row,
)
from pulsar_meta.cli.render.entry_forms import IN_BLOCKS, Output, Rendering, frames, in_blocks, view_of
from pulsar_meta.cli.render.parquet import Columns
from pulsar_meta.cli.render.tables import Format, Template
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import atomic_file, index_path
from pulsar_meta.codecs.backends import has_arrow
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Patience, PresentBlock, read_in_blocks
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place, choose
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe
from pulsar_meta.jobs.entries.entry_reading import Portion, Portions, Readable, entries_of, read_entries
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.entries.filters import EntryFilter, FilterCounts
from pulsar_meta.jobs.entries.live_changes import LiveChanges
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.jobs.transactions.outcomes import Outcomes
from pulsar_meta.stores.base import Store

# The number of transactions that the warning about forgotten ones lists.
MAX_LISTED = 5


def dump_entries(
    shell: Shell,
    names: EntryNames = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    everything: AllOfStore = False,
    looks: LookOptions = LookOptions(),  # noqa: B008
    bounds: LimitOptions = LimitOptions(),  # noqa: B008
    sought: TargetOptions = TargetOptions(),  # noqa: B008
    where: PropertyFilter = PropertyFilter(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
    jobs: Jobs = None,
) -> None:
    """Show the entries or messages of topics and ledgers.

    Use it to look at messages without a broker. --deep and --payload show each message of an entry. -o raw
    writes the frames, which commands read as --entries frames:FILE (with --output FILE, their positions are
    in FILE.idx). Sizes don't include BookKeeper's header and digest. If an entry is corrupt, it is reported,
    the others are shown, and the exit code is 4.

    --where shows only entries with a matching message, and if the entry's or the message's properties
    matched. stderr ends with the number of entries that could not be decided: Java and C++ producers store
    the properties of a batch with each message, and Go producers repeat only those of the first message.

    Several processes read disks with large entry logs (--jobs). With --limit, --where, --payload and
    --transactions, and for -o json and parquet, one process reads them.

    Examples:
      pulsar-meta dump-entries orders --entries bookie-disk:data/bookie --from -10
      pulsar-meta dump-entries 42 --deep --payload text -o ndjson
      pulsar-meta dump-entries orders --where "region=eu and not retired"
      pulsar-meta dump-entries orders --time 2026-08-20 --format '{index}'
      pulsar-meta dump-entries orders --transactions --from -10
    """
    look, line = looks.look(), chosen_template(shell, looks.template, TEMPLATE_TYPES)
    entry_filter = where.filter(look.max_size)
    if entry_filter is None and engine != EngineOptions():
        raise UsageError("--engine, --master and --conf need --where")
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
        _check_form(
            shell.format, where=entry_filter is not None, transactions=looks.transactions, deep=look.deep
        )
        outcomes = Outcomes(opened, source, faults.report) if looks.transactions else None
        coverage = Coverage(changes=LiveChanges(opened, urls))
        dump = _Dump(faults, look, line, opened, source, urls, bounds.count, outcomes, coverage)
        dump.write(places, entry_filter, engine, jobs)
        bounds.report_coverage(shell, dump.coverage, faults, named=bool(names) or everything)
        faults.finish(source)


@dataclass(slots=True)
class _Dump:
    """A run of the command: the sources and the formats of entries."""

    faults: Faults
    look: DumpOptions
    line: Template | None
    store: Store | None
    source: EntrySource
    urls: list[str]
    count: int | None
    outcomes: Outcomes | None
    coverage: Coverage

    @property
    def shell(self) -> Shell:
        """The shell that the command runs in."""
        return self.faults.shell

    def write(
        self, places: Iterator[Place], entry_filter: EntryFilter | None, engine: EngineOptions, jobs: Jobs
    ) -> None:
        """Write the entries at `places`, in blocks if possible."""
        if entry_filter is not None:
            self._write_matching(list(places), entry_filter, engine)
        elif self._in_blocks():
            self._write_blocks(places, jobs)
        else:
            self._write_documents(islice(self._documents(places), self.count))
        if self.outcomes is not None:
            self.coverage.undecided(self.outcomes.unknown)
            _warn_of_forgotten(self.shell, self.outcomes)

    def _write_matching(self, places: list[Place], entry_filter: EntryFilter, engine: EngineOptions) -> None:
        """Write the entries that match a filter, and print how many could not be decided."""
        matches = Matches(
            self.faults, engine, entry_filter, self.look, self.count, FilterCounts(), self.coverage
        )
        if self.shell.format is Format.RAW:
            write_frames(self.shell, matches.entries(places, self.source, self.store))
        else:
            documents = matches.documents(places, self.source, self.store, self.urls)
            if self.outcomes is not None:
                documents = self.outcomes.add(documents, (choice.ledgers for choice, _ in places))
            self._write_documents(documents)
        self.shell.note(matches.counts.summary())

    def _in_blocks(self) -> bool:
        """Return True if entries need no documents, which a terminal and payloads do."""
        form, look = self.shell.format, self.look
        if form in (Format.RAW, Format.PARQUET):
            return True
        plain = self.line is None and self.outcomes is None and look.form is None and look.directory is None
        return plain and form in IN_BLOCKS and has_arrow() and not self.shell.is_on_terminal

    def _write_blocks(self, places: Iterator[Place], jobs: Jobs) -> None:
        """Write entries in blocks, with several processes if that is worth it."""
        shell, sources = self.shell, Sources(None, tuple(self.urls))
        # With a limit, the last entry is known only after all entries before it were read.
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
        """Yield the documents of entries, with the outcomes of their transactions for --transactions."""
        if self.outcomes is None:
            yield from self._described(places)
            return
        for place in places:
            yield from self.outcomes.add(self._described([place]), [place[0].ledgers])

    def _described(self, places: Iterable[Place]) -> Iterator[Document]:
        entries = read_entries(places, self.source, self.store, self.faults.report, self.coverage)
        return (describe(entry, form, self.look, self.faults.report) for entry, form in entries)

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
    listed = ", ".join(f"{txn} of {topic}" for topic, txn in sorted(outcomes.forgotten)[:MAX_LISTED])
    missing = counted(len(outcomes.forgotten), "aborted transactions")
    effect = "a broker that loads the topic delivers their messages"
    shell.warn(f"{missing} missing in the newest snapshot: {effect} ({listed})")


def _check_form(form: Format, *, where: bool, transactions: bool, deep: bool) -> None:
    if transactions and form is Format.RAW:
        raise UsageError("-o raw writes only frames: remove --transactions")
    if form is Format.PARQUET and (where or transactions or deep):
        raise UsageError(
            "-o parquet has one row per entry: remove --where, --transactions, --deep and --payload"
        )


def _store(shell: Shell, url: str | None, names: list[str], everything: bool) -> Store | None:
    """Open the store if one is configured. Ledger ids don't need a store."""
    if url is None and shell.settings.store is None and not everything:
        for name in names:
            if not name.isdigit():
                raise UsageError(f"the ledgers of topic {name!r} are in the store: add --store URL")
        return None
    return shell.store(url)


def write_portions(
    shell: Shell, portions: Portions, look: DumpOptions, jobs: int, sources: Sources, source: EntrySource
) -> None:
    """Write entries in blocks, with several processes."""
    index = FrameIndex.of(shell) if shell.format is Format.RAW else FrameIndex(None)
    with shell.bytes_out() as out, TemporaryDirectory() as directory:
        rendering = Rendering(
            shell.format, look, directory, noted=index.path is not None, header=shell.has_header
        )
        heading, patience = [rendering.heading], Patience()

        def headed(*data: Buffer) -> None:
            out.writelines([*islice(heading, 1), *data])
            heading.clear()

        def here(portion: Portion) -> Output:
            return Output(rendering.write(source, portion, headed, patience), b"")

        shared = SharedWork(jobs, sources.opened, source, rendering, here, entries_of, at_once=True)
        for portion, output in shared.run(portions):
            if output.data:
                headed()
            output.write(out)
            portions.account(output.ranges)
            headed()
            for (part, _), entries in zip(portion, output.ranges, strict=True):
                index.note(part.ledger.ledger_id, entries.entry_ids)
    index.write()


def write_frames(shell: Shell, entries: Iterator[PresentBlock | Readable]) -> None:
    """Write entries in the format of `frames:`, and FILE.idx if the output is a file."""
    index = FrameIndex.of(shell)
    shell.emit_bytes(frames(entries, index.note))
    index.write()


def as_columns(
    entries: Iterator[PresentBlock | Readable], look: DumpOptions, report: Report
) -> Iterator[Document | Columns]:
    """Yield blocks as columns, and other entries as rows."""
    for item in entries:
        if isinstance(item, PresentBlock):
            from pulsar_meta.cli.render import entry_blocks

            for part in entry_blocks.columns(item):
                yield part if isinstance(part, Columns) else parquet_row(describe(*part, look, report))
        else:
            yield parquet_row(describe(*item, look, report))


@dataclass(slots=True)
class FrameIndex:
    """FILE.idx, with the position of each frame in FILE. `path` is None if the output is not a file."""

    path: Path | None
    lines: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, shell: Shell) -> FrameIndex:
        """Return the index file of the output."""
        return cls(None if shell.output is None else index_path(shell.output))

    def note(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Add the next frames."""
        if self.path is not None:
            self.lines += (f'{{"ledger": {ledger_id}, "entry": {entry_id}}}\n' for entry_id in entry_ids)

    def write(self) -> None:
        """Write the file."""
        if self.path is not None:
            with atomic_file(self.path, "w") as out:
                out.writelines(self.lines)
