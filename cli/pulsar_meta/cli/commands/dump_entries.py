"""The command `dump-entries`: what the entries of topics and ledgers say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from pulsar_meta.cli.engine_options import EngineOptions, Jobs, processes
from pulsar_meta.cli.entry_options import (
    LimitOptions,
    LineTemplate,
    Matches,
    SoughtOptions,
    Where,
    chosen_template,
)
from pulsar_meta.cli.errors import Faults
from pulsar_meta.cli.options import EntriesUrls, StoreUrl
from pulsar_meta.cli.outputs import beside, whole_file
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
from pulsar_meta.cli.render.tables import Format
from pulsar_meta.cli.render.template import Template
from pulsar_meta.cli.render.text import counted
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.entry_json import PAYLOAD_FORMS
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_blocks import Patience, PresentBlock, read_in_blocks
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place, choose
from pulsar_meta.jobs.entries.entry_dump import DumpOptions, describe, describe_entries
from pulsar_meta.jobs.entries.entry_filter import FilterCounts
from pulsar_meta.jobs.entries.entry_portions import Portion, Portions, entries_of
from pulsar_meta.jobs.entries.entry_reading import Readable, read_entries
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.pool import SharedWork
from pulsar_meta.jobs.transactions.outcomes import Outcomes
from pulsar_meta.stores.base import Store

SIZE_UNIT = 2**20
# So many transactions are named.
NAMED = 5
DIRECTORY = "dir:"


def dump_entries(
    shell: Shell,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC|NAMESPACE|LEDGER",
            help="Topics, tenant/namespace (both with --store) or ledgers; else all that is there.",
        ),
    ] = None,
    entries: EntriesUrls = None,
    store: StoreUrl = None,
    everything: Annotated[bool, typer.Option("--all", help="All topics of the store.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Open batches, message by message.")] = False,
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload",
            metavar="FORM|dir:DIR",
            help="Show payloads as text, hex, base64 or hash, or write each into a file of DIR.",
        ),
    ] = None,
    max_size: Annotated[
        int, typer.Option("--max-size", min=1, metavar="MIB", help="Largest payload to decompress.")
    ] = 256,
    transactions: Annotated[
        bool,
        typer.Option(
            "--transactions",
            help="Say of each entry what became of its transaction, and whether readers are given it.",
        ),
    ] = False,
    template: LineTemplate = None,
    bounds: LimitOptions = LimitOptions(),  # noqa: B008
    sought: SoughtOptions = SoughtOptions(),  # noqa: B008
    where: Where = Where(),  # noqa: B008
    engine: EngineOptions = EngineOptions(),  # noqa: B008
    jobs: Jobs = None,
) -> None:
    """Show the entries of topics and ledgers, from bookies' disks or files of frames.

    With --deep, and with --payload, which opens entries too, each message is shown. -o raw writes the
    frames themselves, in the form that frames: reads (with --output FILE their positions to FILE.idx).
    Sizes are of what the broker wrote, without BookKeeper's header and digest. A corrupt entry is
    reported, the others are shown, and the exit code is 4.

    With --where only entries with a message that matches are shown, with where it was decided, and stderr
    ends with how many could not be decided: batches of stock Java and C++ producers have their properties
    with each message, so that the entry's own metadata says nothing; Go's has the first message's.

    Disks with much in their entry logs are read by several processes (--jobs), with the same output; by one
    alone with --limit, --where, --payload and --transactions, and where -o is json or parquet.

    Examples:
      pulsar-meta dump-entries orders --entries bookie-disk:data/bookie --from -10
      pulsar-meta dump-entries 42 --deep --payload text -o ndjson
      pulsar-meta dump-entries orders --where "region=eu and not retired"
      pulsar-meta dump-entries orders --time 2026-08-20 --format '{index}'
      pulsar-meta dump-entries orders --transactions --from -10
    """
    look, line = _look(deep, payload, max_size * SIZE_UNIT), chosen_template(shell, template, TEMPLATE_TYPES)
    faults, coverage = Faults(shell), Coverage()
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
        choices = choose(names or [], opened, source, faults, everything=everything, ledgers=bounds.ledgers)
        places = sought.places(choices, bounds, source, faults)
        _check_form(shell.format, where=chosen is not None, transactions=transactions, deep=look.deep)
        outcomes = Outcomes(opened, source, faults)
        if chosen is not None:
            matches = Matches(faults, engine, chosen, look, bounds.count, FilterCounts(), coverage)
            planned = list(places)
            if shell.format is Format.RAW:
                _emit_frames(shell, matches.entries(planned, source, opened))
            else:
                shown = matches.documents(planned, source, opened, urls)
                topics = (choice.ledgers for choice, _ in planned)
                _emit(shell, outcomes.add(shown, topics) if transactions else shown, look.deep, line)
            shell.say(matches.counts.summary())
        elif _is_for_blocks(shell, look, plain=not (line or transactions)):
            sources = Sources(None, tuple(urls))
            # Where a limit is reached is known only when all before it was read.
            alone = shell.format is Format.PARQUET or bounds.count is not None
            count = 1 if alone else processes(shell, jobs, sources, source)
            if count > 1:
                portions = Portions(places, source, opened, faults, coverage)
                _emit_portions(shell, portions, look, count, sources, source)
            else:
                whole = shell.format is not Format.RAW
                held = read_in_blocks(
                    places, source, opened, faults, coverage, bounds.count, with_headers=whole
                )
                _emit_blocks(shell, held, look, faults)
        else:

            def described(some: Iterable[Place]) -> Iterator[Document]:
                return describe_entries(
                    read_entries(some, source, opened, faults, coverage), look, None, faults
                )

            shown = _with_outcomes(places, described, outcomes) if transactions else described(places)
            _emit(shell, islice(shown, bounds.count), look.deep, line)
        coverage.undecided(outcomes.unknown)
        if outcomes.forgotten:
            named = ", ".join(f"{txn} of {topic}" for topic, txn in sorted(outcomes.forgotten)[:NAMED])
            missing = counted(len(outcomes.forgotten), "aborted transactions")
            effect = "a broker that loads the topic gives readers such messages"
            shell.warn(f"{missing} missing in the newest snapshot: {effect} ({named})")
        bounds.account(shell, coverage, faults, named=bool(names) or everything)
        faults.end(source)


def _check_form(form: Format, *, where: bool, transactions: bool, deep: bool) -> None:
    if transactions and form is Format.RAW:
        raise UsageError("-o raw has the frames alone, and no place for what --transactions says")
    if form is Format.PARQUET and (where or transactions or deep):
        raise UsageError(
            "-o parquet has a row an entry: leave --where, --transactions, --deep, --payload out"
        )


def _is_for_blocks(shell: Shell, look: DumpOptions, *, plain: bool) -> bool:
    """Return whether entries need no document each; a terminal wants a closer look, as do payloads."""
    if shell.format in (Format.RAW, Format.PARQUET):
        return True
    shown = look.form is not None or look.directory is not None
    return plain and not shown and shell.format in IN_BLOCKS and not shell.is_shown


def _emit_blocks(
    shell: Shell, held: Iterator[PresentBlock | Readable], look: DumpOptions, faults: Faults
) -> None:
    if shell.format is Format.RAW:
        _emit_frames(shell, held)
    elif shell.format is Format.PARQUET:
        shell.emit_columns(_as_columns(held, look, faults), PARQUET_TYPES)
    else:
        shell.emit_lines(in_blocks(held, shell.format, look, faults), view_of(look))


def _emit_portions(
    shell: Shell, portions: Portions, look: DumpOptions, jobs: int, sources: Sources, source: EntrySource
) -> None:
    """Write what `_emit_blocks` does, with several processes."""
    index = _FrameIndex.of(shell) if shell.format is Format.RAW else _FrameIndex(None)
    with shell.bytes_out() as out, TemporaryDirectory() as directory:
        rendering = Rendering(shell.format, look, directory, noted=index.path is not None)
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
            for (part, _), one in zip(portion, output.ranges, strict=True):
                index.note(part.ledger.ledger_id, one.entry_ids)
    index.write()


@dataclass(slots=True)
class _FrameIndex:
    """Which frame of a file is which entry: a file beside it; where that is no file (None) nothing."""

    path: Path | None
    lines: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, shell: Shell) -> _FrameIndex:
        """Return that of what is written."""
        return cls(None if shell.output is None else beside(shell.output, ".idx"))

    def note(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Note the next frames."""
        if self.path is not None:
            self.lines += (f'{{"ledger": {ledger_id}, "entry": {entry_id}}}\n' for entry_id in entry_ids)

    def write(self) -> None:
        """Write the file."""
        if self.path is not None:
            with whole_file(self.path, "w") as out:
                out.writelines(self.lines)


def _as_columns(
    held: Iterator[PresentBlock | Readable], look: DumpOptions, faults: Faults
) -> Iterator[Document | Columns]:
    """Yield entries as columns where they come in blocks, else as rows."""
    for some in held:
        if isinstance(some, PresentBlock):
            from pulsar_meta.cli.render import entry_blocks

            for part in entry_blocks.columns(some):
                yield part if isinstance(part, Columns) else parquet_row(describe(*part, look, faults))
        else:
            yield parquet_row(describe(*some, look, faults))


def _with_outcomes(
    places: Iterable[Place], described: Callable[[Iterable[Place]], Iterator[Document]], outcomes: Outcomes
) -> Iterator[Document]:
    """Yield the documents of entries with what became of their transactions."""
    for place in places:
        yield from outcomes.add(described([place]), [place[0].ledgers])


def _emit(shell: Shell, documents: Iterator[Document], deep: bool, line: Template | None) -> None:
    if line is not None:
        shell.emit(map(flat, each_message(documents) if deep else documents), line.view())
    elif not deep:
        shell.emit(documents, entry_view())
    elif shell.format in (Format.JSON, Format.NDJSON):
        shell.emit(documents, message_view())
    else:
        shell.emit(each_message(documents), message_view(short=shell.format is Format.TABLE))


def _emit_frames(shell: Shell, entries: Iterator[PresentBlock | Readable]) -> None:
    """Write the form that `frames:` reads; beside a file, which frame is which entry."""
    index = _FrameIndex.of(shell)
    shell.emit_bytes(frames(entries, index.note))
    index.write()


def _store(shell: Shell, url: str | None, names: list[str], everything: bool) -> Store | None:
    """Open the store where there is one; ledgers by number do without."""
    if url is None and shell.settings.store is None and not everything:
        for name in names:
            if not name.isdigit():
                raise UsageError(f"{name!r} is a topic: its ledgers are in the store, give --store URL")
        return None
    return shell.store(url)


def _look(deep: bool, payload: str | None, max_size: int) -> DumpOptions:
    if payload is None:
        return DumpOptions(deep, max_size=max_size)
    if payload in PAYLOAD_FORMS:
        return DumpOptions(True, form=payload, max_size=max_size)
    return DumpOptions(True, directory=_directory(payload), max_size=max_size)


def _directory(payload: str) -> Path:
    """Return where payloads go; UsageError for what may as well be a form with a slip of the pen."""
    named, directory = payload.startswith(DIRECTORY), Path(payload.removeprefix(DIRECTORY))
    if not named and "/" not in payload and not directory.is_dir():
        raise UsageError(f"--payload {payload}: {', '.join(PAYLOAD_FORMS)}, or a directory as {DIRECTORY}DIR")
    return directory
