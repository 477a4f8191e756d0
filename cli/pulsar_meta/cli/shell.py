"""What every command has: where its data goes, where its talk goes, and what it opens.

A command with a parameter `shell: Shell` gets the options below beside its own (`options.flattened`, applied
by `cli.app`), so that no command repeats them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import IO, Annotated, Any, Literal, TypedDict

import typer

from pulsar_meta.cli.outputs import (
    drawn,
    progress_bar,
    stdout_bytes,
    stdout_text,
    talk,
    talk_json,
    whole_file,
)
from pulsar_meta.cli.render.pages import Fact, page
from pulsar_meta.cli.render.parquet import Columns, write_parquet
from pulsar_meta.cli.render.tables import (
    Detail,
    Format,
    Lines,
    View,
    write_csv,
    write_json,
    write_ndjson,
    write_plain,
    write_table,
)
from pulsar_meta.cli.render.text import looked_at
from pulsar_meta.cli.settings import Settings, load_settings
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.jobs.topics.segments import old_part
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.routed import MARK, with_ledgers

Level = Literal["note", "warning", "detail"]


class Said(TypedDict):
    """What is said on stderr while a command runs."""

    level: Level
    message: str


class LookedAt(TypedDict):
    """How many of what were looked at, by plural nouns, and what was not and why."""

    checked: dict[str, int]
    not_checked: dict[str, str]


class Exit(IntEnum):
    """The exit codes; 2 to 7 come from the errors themselves."""

    OK = 0
    FAULT = 1
    USAGE = 2
    NOT_FOUND = 3
    UNDECODABLE = 4
    CONFLICT = 5
    UNREACHABLE = 6
    REFUSED = 7
    UNFORESEEN = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Progress:
    """A count on stderr that a person watches; `advance` is nothing where nobody does."""

    advance: Callable[[int], None] = field(default=lambda count: None)


def _common(*names: str, text: str) -> Any:
    return typer.Option(*names, rich_help_panel="Common options", help=text)


@dataclass(frozen=True, slots=True)
class Shell:
    """One run of one command: stdout (or --output) for data, stderr for talk."""

    output_format: Annotated[
        Format | None,
        _common("-o", "--output-format", text="The form of the output."),
    ] = None
    output: Annotated[
        Path | None, _common("--output", text="Write to this file, whole or not at all, instead of stdout.")
    ] = None
    quiet: Annotated[bool, _common("--quiet", "-q", text="Only data, warnings and errors.")] = False
    verbose: Annotated[bool, _common("--verbose", "-v", text="Say what is done.")] = False
    force: Annotated[bool, _common("--force", text="Write raw bytes to a terminal, too.")] = False
    profile: Annotated[
        str | None,
        _common("--profile", text="A profile of the config file. Environment: PULSAR_META_PROFILE."),
    ] = None
    ledger_store: Annotated[
        str | None,
        _common(
            "--ledger-store",
            text="The store that has /ledgers, if it is not --store: BookKeeper's own. Environment:"
            " PULSAR_META_LEDGER_STORE.",
        ),
    ] = None

    @property
    def format(self) -> Format:
        """The form to write in: as asked, else a table on a terminal and plain lines elsewhere."""
        if self.output_format is not None:
            return self.output_format
        return Format.TABLE if self.is_shown else Format.PLAIN

    @property
    def speaks_json(self) -> bool:
        """Whether errors and counts on stderr are JSON objects, as the output is."""
        return self.format in (Format.JSON, Format.NDJSON)

    @property
    def is_shown(self) -> bool:
        """Whether a terminal shows the data."""
        return self.output is None and sys.stdout.isatty()

    @property
    def is_watched(self) -> bool:
        """Whether a person sees progress that is drawn on stderr."""
        return not self.quiet and sys.stderr.isatty()

    @property
    def settings(self) -> Settings:
        """What the environment and the profile say."""
        return load_settings(self.profile)

    @contextmanager
    def text_out(self) -> Iterator[IO[str]]:
        """Open what data is written to as text."""
        if self.output is None:
            yield stdout_text()
            sys.stdout.flush()
        else:
            with whole_file(self.output, "w") as out:
                yield out

    def emit_lines(
        self, parts: Iterable[Document | Lines], view: View | Detail, *, single: bool = False
    ) -> None:
        """Write documents, and lines of them that are made already, as plain, csv, ndjson or json.

        They are not for a terminal. `single` as in `emit`.
        """
        with self.text_out() as out:
            match self.format:
                case Format.NDJSON:
                    write_ndjson(parts, out)
                case Format.JSON:
                    write_json(parts, out, single=single)
                case Format.CSV:
                    write_csv(parts, out, view)
                case _:
                    write_plain(parts, out, view)

    def emit_columns(self, parts: Iterable[Document | Columns], types: Mapping[str, str]) -> None:
        """Write documents, and columns of them that are made already, as Parquet; `types` as in a View."""
        if self.output is None:
            raise UsageError("-o parquet is for a file: give --output FILE")
        with whole_file(self.output, "wb") as out:
            write_parquet(parts, out, types)

    def emit(
        self,
        documents: Iterable[Document],
        view: View | Detail,
        *,
        single: bool = False,
        about: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Write documents in the form asked for; `single`: JSON is one document, not a list.

        `about` gives the lines below the title of a page, asked for when all documents were read.
        """
        form = self.format
        if form is Format.RAW:
            raise UsageError("-o raw: this command has no raw bytes to show")
        if form is Format.PARQUET:
            self._emit_parquet(documents, view)
            return
        if form is Format.HTML:
            self._emit_page(documents, view, about)
            return
        with self.text_out() as out:
            match form:
                case Format.JSON:
                    write_json(documents, out, single=single)
                case Format.NDJSON:
                    write_ndjson(documents, out)
                case Format.CSV:
                    write_csv(documents, out, view)
                case Format.PLAIN:
                    write_plain(documents, out, view)
                case _:
                    write_table(documents, out, view)

    def _emit_page(
        self, documents: Iterable[Document], view: View | Detail, about: Callable[[], Iterable[str]]
    ) -> None:
        if not view.title:
            raise UsageError("-o html: this command draws no page: choose another form")
        # Made whole before a byte is written.
        sections = list(view.sections(documents))
        with self.text_out() as out:
            out.write(page(view.title, map(Fact, about()), sections))

    def _emit_parquet(self, documents: Iterable[Document], view: View | Detail) -> None:
        if not isinstance(view, View) or not view.types:
            raise UsageError("-o parquet: this command has no typed columns: choose another form")
        self.emit_columns(documents, view.types)

    @contextmanager
    def bytes_out(self) -> Iterator[IO[bytes]]:
        """Open what data is written to as bytes, never unasked a terminal."""
        if self.output is None:
            yield (sink := stdout_bytes(force=self.force))
            sink.flush()
        else:
            with whole_file(self.output, "wb") as out:
                yield out

    def emit_bytes(self, chunks: Iterable[Buffer]) -> None:
        """Write raw bytes to --output or stdout, never unasked to a terminal, nor where -o asks for text."""
        if self.output_format not in (None, Format.RAW):
            raise UsageError(f"-o {self.output_format}: what comes out is bytes; leave -o out")
        with self.bytes_out() as out:
            out.writelines(chunks)

    def say(self, text: str) -> None:
        """Write a line to stderr, unless --quiet."""
        if not self.quiet:
            self._talk("note", text)

    def warn(self, text: str) -> None:
        """Write a line to stderr that must not be missed, --quiet or not."""
        self._talk("warning", text)

    def warn_of_old_parts(self, store: Store, names: Iterable[str]) -> None:
        """Say which of these names leave segments out: those of what was migrated to a scalable topic."""
        for name in names:
            said = old_part(store, name)
            if said is not None:
                self.warn(said)

    def detail(self, text: str) -> None:
        """Write a line to stderr with --verbose."""
        if self.verbose:
            self._talk("detail", text)

    def _talk(self, level: Level, text: str) -> None:
        """Write a line, or an object where the output is JSON, so that each line of stderr is one."""
        if self.speaks_json:
            said: Said = {"level": level, "message": text}
            talk_json(said)
        else:
            talk(f"pulsar-meta: {text}" if level == "warning" else text)

    def account(self, checked: Mapping[str, int], not_checked: Mapping[str, str] | None = None) -> None:
        """Say on stderr, as one line, how many of what were looked at, and what was not and why.

        `checked` counts by plural nouns ("ledgers": 7); `not_checked` has a reason for each thing left out.
        One JSON object where the output is JSON. --quiet leaves it out unless something was not checked.
        """
        left_out = dict(not_checked or {})
        if self.quiet and not left_out:
            return
        if self.speaks_json:
            seen: LookedAt = {"checked": dict(checked), "not_checked": left_out}
            talk_json(seen)
            return
        talk(looked_at(checked, left_out))

    @contextmanager
    def progress(self, total: int | None = None, unit: str = "") -> Iterator[Progress]:
        """Show a progress bar on stderr where a person is watching it."""
        if not self.is_watched:
            yield Progress()
            return
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

        bar = progress_bar(TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        task = bar.add_task(unit, total=total)
        with drawn(bar):
            yield Progress(lambda count: bar.advance(task, count))

    def store(self, url: str | None, *, read_only: bool = True) -> Store:
        """Open the store of the option, else of the environment, else of the profile."""
        return open_store(self.store_url(url), read_only=read_only)

    def store_url(self, url: str | None) -> str:
        """Return the URL of that store, with the one that has `/ledgers` where that is another one."""
        chosen = url or self.settings.store
        if chosen is None:
            raise UsageError("no store: give --store URL, or set PULSAR_META_STORE or a profile")
        if self.ledger_store is None:
            return chosen
        # The option beats the environment.
        return with_ledgers(chosen if url else chosen.partition(MARK)[0], self.ledger_store)

    def other_store(self, url: str) -> Store:
        """Open, for reading, a store that is not the one of --store and --ledger-store."""
        return open_store(url)

    def entries_urls(self, urls: Sequence[str] | None) -> list[str]:
        """Return the entry sources of the option, else of the environment, else of the profile."""
        chosen = list(urls or self.settings.entries)
        if not chosen:
            raise UsageError("no entries: give --entries URL, or set PULSAR_META_ENTRIES or a profile")
        return chosen
