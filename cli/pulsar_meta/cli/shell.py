"""Everything a command needs from its environment: output, messages, settings, stores.

A command with a parameter `shell: Shell` gets the options below in addition to its own, so that no command
repeats them (`options.expand_option_groups`, which `cli.app` applies).
"""

from __future__ import annotations

import atexit
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict, TypeVar

import typer

from pulsar_meta.access.files import refuse_dash
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
from pulsar_meta.cli.render.text import checked_text
from pulsar_meta.cli.settings import Settings, load_settings
from pulsar_meta.cli.streams import (
    STDIN,
    atomic_file,
    bar_columns,
    clear_bars,
    counter_columns,
    open_input,
    progress_bar,
    show_bar,
    stdout_bytes,
    stdout_text,
    write_json_message,
    write_message,
)
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.reader import Buffer

# What only some commands use is imported late, because all commands import this module.
if TYPE_CHECKING:
    from pulsar_meta.cli.render.parquet import Columns
    from pulsar_meta.stores.base import Store

T = TypeVar("T")
# Frames on stdin, as an entry source.
PIPE: Final = "frames:-"
Level = Literal["note", "warning", "detail"]


class MessageDocument(TypedDict):
    """A message on stderr while a command runs."""

    level: Level
    message: str


class CheckedDocument(TypedDict):
    """The number of things that were checked, by plural noun, and the reason for each that was not."""

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
    """A progress bar on stderr. `advance` adds a count, `stage` names what is done now, for example "2/3
    ledgers"; both do nothing if no bar is shown.
    """

    advance: Callable[[int], None] = field(default=lambda count: None)
    stage: Callable[[str], None] = field(default=lambda name: None)

    def counting(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and count each one once it was used."""
        for item in items:
            yield item
            self.advance(1)


def _common(*names: str, text: str) -> Any:
    return typer.Option(*names, rich_help_panel="Common options", help=text)


@dataclass(frozen=True, slots=True)
class Shell:
    """One run of one command: data goes to stdout (or --output), messages go to stderr."""

    output_format: Annotated[
        Format | None,
        _common("-o", "--output-format", text="Output format."),
    ] = None
    output: Annotated[
        Path | None,
        _common(
            "--output", text="Write to this file instead of stdout; it appears only when it is complete."
        ),
    ] = None
    header: Annotated[
        bool, _common("--header", text="Print the column names as the first line of plain output.")
    ] = False
    quiet: Annotated[bool, _common("--quiet", "-q", text="Print only data, warnings and errors.")] = False
    verbose: Annotated[bool, _common("--verbose", "-v", text="Print details of each step.")] = False
    force: Annotated[bool, _common("--force", text="Allow raw bytes on a terminal.")] = False
    profile: Annotated[
        str | None,
        _common("--profile", text="Profile in the config file. Environment: PULSAR_META_PROFILE."),
    ] = None
    ledger_store: Annotated[
        str | None,
        _common(
            "--ledger-store",
            text="Store with BookKeeper's /ledgers, if that is not --store. Environment:"
            " PULSAR_META_LEDGER_STORE.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raise UsageError for `--output -`, before the command does anything."""
        if self.output is not None:
            refuse_dash(self.output)

    @property
    def format(self) -> Format:
        """The format of -o; by default a table on a terminal, else plain lines."""
        if self.output_format is not None:
            return self.output_format
        return Format.TABLE if self.is_on_terminal else Format.PLAIN

    @property
    def has_header(self) -> bool:
        """True if the output is plain and starts with the names of its columns."""
        return self.header and self.format is Format.PLAIN

    @property
    def is_json(self) -> bool:
        """True if the output is JSON; then messages on stderr are JSON objects, too."""
        return self.format in (Format.JSON, Format.NDJSON)

    @property
    def is_on_terminal(self) -> bool:
        """True if the data goes to a terminal."""
        return self.output is None and sys.stdout.isatty()

    @property
    def shows_progress(self) -> bool:
        """True if stderr is a terminal, unless --quiet is given."""
        return not self.quiet and sys.stderr.isatty()

    @property
    def settings(self) -> Settings:
        """The settings of the environment and the profile."""
        return load_settings(self.profile)

    @contextmanager
    def text_out(self) -> Iterator[IO[str]]:
        """Open stdout or --output for text."""
        if self.output is None:
            yield stdout_text()
            sys.stdout.flush()
        else:
            with atomic_file(self.output, "w") as out:
                yield out

    def emit_lines(
        self, parts: Iterable[Document | Lines], view: View | Detail, *, single: bool = False
    ) -> None:
        """Write a mix of documents and rendered lines as plain, csv, ndjson or json, but never as a table.

        `single` has the same meaning as in `emit`.
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
                    write_plain(parts, out, view, header=self.has_header)

    def emit_columns(self, parts: Iterable[Document | Columns], types: Mapping[str, str]) -> None:
        """Write a mix of documents and columns as Parquet. `types` has the column types, as in a View.

        Raises UsageError without --output, because a Parquet file can't be written to a pipe.
        """
        if self.output is None:
            raise UsageError("-o parquet needs a file: add --output FILE")
        from pulsar_meta.cli.render.parquet import write_parquet

        with atomic_file(self.output, "wb") as out:
            write_parquet(parts, out, types)

    def emit(
        self,
        documents: Iterable[Document],
        view: View | Detail,
        *,
        single: bool = False,
        about: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Write documents in the format of -o. With `single`, JSON output is one document instead of a list.

        `about` returns the lines below the title of an HTML page. It is called after the last document was
        read. Raises UsageError for a format that the command's view doesn't support.
        """
        form = self.format
        if form is Format.RAW:
            raise UsageError("-o raw: this command has no raw bytes; choose another format")
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
                    write_plain(documents, out, view, header=self.has_header)
                case _:
                    write_table(documents, out, view)
        # A table without rows writes nothing, so the bars would stay.
        clear_bars()

    def _emit_page(
        self, documents: Iterable[Document], view: View | Detail, about: Callable[[], Iterable[str]]
    ) -> None:
        if not view.title:
            raise UsageError("-o html: this command has no HTML page; choose another format")
        from pulsar_meta.cli.render.pages import Fact, page

        # Rendered first, so that an error in a document leaves no incomplete page.
        sections = list(view.sections(documents))
        with self.text_out() as out:
            out.write(page(view.title, map(Fact, about()), sections))

    def _emit_parquet(self, documents: Iterable[Document], view: View | Detail) -> None:
        if not isinstance(view, View) or not view.types:
            raise UsageError("-o parquet: this command has no typed columns; choose another format")
        self.emit_columns(documents, view.types)

    @contextmanager
    def bytes_out(self) -> Iterator[IO[bytes]]:
        """Open stdout or --output for bytes. Raises UsageError for a terminal without --force."""
        if self.output is None:
            yield (sink := stdout_bytes(force=self.force))
            sink.flush()
        else:
            with atomic_file(self.output, "wb") as out:
                yield out

    def emit_bytes(self, chunks: Iterable[Buffer]) -> None:
        """Write raw bytes. Raises UsageError if -o selects text, or for a terminal without --force."""
        if self.output_format not in (None, Format.RAW):
            raise UsageError(f"-o {self.output_format}: this command writes raw bytes; remove -o")
        with self.bytes_out() as out:
            out.writelines(chunks)

    def note(self, text: str) -> None:
        """Print a line to stderr, unless --quiet is given."""
        if not self.quiet:
            self._write_message("note", text)

    def warn(self, text: str) -> None:
        """Print a line to stderr even with --quiet."""
        self._write_message("warning", text)

    def warn_of_old_parts(self, store: Store, names: Iterable[str]) -> None:
        """Warn of each name that was migrated to a scalable topic, because it lacks the newer segments."""
        from pulsar_meta.jobs.topics.related import old_part

        for name in names:
            warning = old_part(store, name)
            if warning is not None:
                self.warn(warning)

    def detail(self, text: str) -> None:
        """Print a line to stderr if --verbose is given."""
        if self.verbose:
            self._write_message("detail", text)

    def _write_message(self, level: Level, text: str) -> None:
        if self.is_json:
            document: MessageDocument = {"level": level, "message": text}
            write_json_message(document)
        else:
            write_message(f"pulsar-meta: {text}" if level == "warning" else text)

    def summary(self, checked: Mapping[str, int], not_checked: Mapping[str, str] | None = None) -> None:
        """Print a line to stderr with the numbers of things checked, and with the things that were not.

        `checked` maps plural nouns to counts ("ledgers": 7); `not_checked` maps each thing that was left out
        to the reason. If the output is JSON, the line is a JSON object. --quiet suppresses the line unless
        something was left out.
        """
        left_out = dict(not_checked or {})
        if self.quiet and not left_out:
            return
        if self.is_json:
            document: CheckedDocument = {"checked": dict(checked), "not_checked": left_out}
            write_json_message(document)
        elif left_out and sys.stderr.isatty():
            write_message(checked_text(checked, {}))
            write_message("not checked:")
            for name, why in left_out.items():
                write_message(f"  {name} ({why})")
        else:
            write_message(checked_text(checked, left_out))

    @contextmanager
    def progress(self, total: int | None = None, unit: str = "") -> Iterator[Progress]:
        """Show a progress bar if stderr is a terminal; without `total`, a count, a rate and a time."""
        if not self.shows_progress:
            yield Progress()
            return
        bar = progress_bar(*(counter_columns(unit) if total is None else bar_columns(unit)))
        task = bar.add_task("", total=total)

        def stage(name: str) -> None:
            # The rate is that of the stage.
            bar.reset(task, description=name)

        with show_bar(bar):
            yield Progress(lambda count: bar.advance(task, count), stage)

    def store(self, url: str | None) -> Store:
        """Open the store of `url`, else of the environment, else of the profile."""
        from pulsar_meta.stores.registry import open_store

        return open_store(self.store_url(url))

    @contextmanager
    def store_if_any(self, url: str | None, names: Iterable[str]) -> Iterator[Store | None]:
        """Open the store like `store`, if one is configured. Warns as `warn_of_old_parts` does."""
        if not (url or self.settings.store):
            yield None
            return
        with self.store(url) as store:
            self.warn_of_old_parts(store, names)
            yield store

    def store_url(self, url: str | None) -> str:
        """Return the URL that `store` opens, which includes the ledger store if that is a different store.

        Raises UsageError if no store is configured.
        """
        from pulsar_meta.stores.registry import MARK, store_url, with_ledgers

        configured = url or self.settings.store
        if configured is None:
            raise UsageError("no store: add --store URL, or set PULSAR_META_STORE or a profile")
        if self.ledger_store is not None:
            # The option overrides the ledger store of the environment.
            main = configured if url else configured.partition(MARK)[0]
            configured = with_ledgers(main, self.ledger_store)
        return store_url(configured)

    def other_store(self, url: str) -> Store:
        """Open a store for reading, without --ledger-store, which belongs to --store."""
        from pulsar_meta.stores.registry import open_store

        return open_store(url)

    def entries_urls(self, urls: Sequence[str] | None) -> list[str]:
        """Return the entry sources of the option, else of the environment, else of the profile.

        `frames:-` becomes the URL of a temporary file with the frames that were read from stdin.

        Raises UsageError if there are none.
        """
        configured = [_piped() if url == PIPE else url for url in urls or self.settings.entries]
        if not configured:
            raise UsageError("no entries: add --entries URL, or set PULSAR_META_ENTRIES or a profile")
        return configured


@cache
def _piped() -> str:
    """Copy stdin to a file, because entries are not read in order, and return its URL."""
    from pulsar_meta.access.files import ScratchDirectory

    scratch = ScratchDirectory()
    atexit.register(scratch.cleanup)
    file = scratch.path / "stdin.frames"
    with open_input(STDIN) as source, file.open("wb") as out:
        shutil.copyfileobj(source, out)
    return f"{PIPE.removesuffix(STDIN)}{file}"
