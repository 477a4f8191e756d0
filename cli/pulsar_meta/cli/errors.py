"""Print errors as one line on stderr, or as a JSON object if the output is JSON.

A bug in pulsar-meta also prints one line, and saves the traceback to a file that you can attach to a report.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypedDict

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.shell import Shell
from pulsar_meta.cli.streams import write_json_message, write_message
from pulsar_meta.codecs.errors import (
    DecodeError,
    NotFoundError,
    PulsarMetaError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.patterns import lazy_pattern

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource


# The undo files that this run has written records to; the message about an unforeseen error names the last.
undo_files: list[Path] = []


class ErrorDocument(TypedDict):
    """An error on stderr; `offset` is in bytes."""

    error: str
    message: str
    source: NotRequired[str]
    offset: NotRequired[int]


def is_json_requested(arguments: list[str]) -> bool:
    """Return True if a command line selects JSON output. It may be one that Typer can't parse."""
    for at, argument in enumerate(arguments):
        value = arguments[at + 1] if argument in ("-o", "--output-format") and at + 1 < len(arguments) else ""
        if argument.startswith("-o") and len(argument) > 2:
            value = argument[2:].lstrip("=")
        if value in ("json", "ndjson"):
            return True
    return False


def report(error: PulsarMetaError, *, as_json: bool) -> None:
    """Write `error` to stderr as one line."""
    if not as_json:
        write_message(f"pulsar-meta: {redact(str(error))}")
        return
    document: ErrorDocument = {"error": error.kind, "message": redact(error.message)}
    if error.source is not None:
        document["source"] = redact(error.source)
    if isinstance(error, DecodeError) and error.offset is not None:
        document["offset"] = error.offset
    write_json_message(document)


def from_os_error(error: OSError) -> PulsarMetaError:
    """Convert an operating system error: NotFoundError for a missing file, else UnreachableError."""
    source = str(error.filename) if error.filename is not None else None
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", source=source)
    return UnreachableError(error.strerror or str(error), source=source)


# The number of different errors that are recognized if they come again.
_REMEMBERED: Final = 10_000


class Faults:
    """Reports errors that don't stop a command, and remembers the highest exit code among them.

    One damaged file can be met once for each ledger in it, so an error is printed once.
    """

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.worst = 0
        self._printed = set[str]()

    def report(self, error: PulsarMetaError) -> None:
        """Print an error to stderr, unless it was printed before, and remember its exit code."""
        self.note(error.exit_code)
        text = str(error)
        if text not in self._printed:
            report(error, as_json=self.shell.is_json)
        if len(self._printed) < _REMEMBERED:
            self._printed.add(text)

    def note(self, exit_code: int) -> None:
        """Make the command exit with at least this code."""
        self.worst = max(self.worst, int(exit_code))

    def finish(self, source: EntrySource | None = None) -> None:
        """Report the faults of the entry source, then exit if there was any error. Raises typer.Exit."""
        if source is not None:
            self.report_source(source)
        if self.worst:
            raise typer.Exit(self.worst)

    def report_source(self, source: EntrySource) -> None:
        """Print the notes of an entry source, and report the damage that it found elsewhere."""
        for note in source.notes:
            self.shell.note(note)
        for fault in source.faults:
            self.report(fault)

    @contextmanager
    def note_exit(self) -> Iterator[None]:
        """Catch typer.Exit in the block and remember its exit code, so that the command continues."""
        try:
            yield
        except typer.Exit as leaving:
            self.note(leaving.exit_code)


class Parts:
    """The documents of several parts of a store, one part after the other.

    A missing part is reported and skipped. If there is only one part, its NotFoundError is raised.
    """

    def __init__(self, shell: Shell, parts: Iterable[Iterable[Document]]) -> None:
        self.parts = list(parts)
        self.faults = Faults(shell)

    def __iter__(self) -> Iterator[Document]:
        for part in self.parts:
            try:
                yield from part
            except NotFoundError as error:
                if len(self.parts) == 1:
                    raise
                self.faults.report(error)

    def check(self) -> None:
        """Exit with code 3 if a part was missing. Raises typer.Exit."""
        self.faults.finish()


# The message of a Python exception may contain a whole value.
_MAX_MESSAGE: Final = 300
# The bounds and lookbehinds keep the time linear, because tracebacks contain texts from files and servers.
_url_re = lazy_pattern(r"(?<![\w+.-])[A-Za-z][\w+.-]{0,40}://[^\s'\"]+")
_secret_re = lazy_pattern(
    r"((?:passw(?:or)?d|secret|token|credential|api_?key)['\"]?\s{0,9}[=:]\s{0,9})[^\s,;&)}\]]+",
    re.IGNORECASE,
)


class UnforeseenDocument(TypedDict):
    """A bug in pulsar-meta: `traceback` is a file to attach to a report; `undo_file` reverts the writes."""

    error: Literal["unforeseen"]
    message: str
    traceback: NotRequired[str]
    undo_file: NotRequired[str]


def report_unforeseen(error: BaseException, arguments: Sequence[str], *, as_json: bool) -> None:
    """Print one line about a bug in pulsar-meta, and save its traceback to a file."""
    message = " ".join(f"{type(error).__name__}: {_without_secrets(str(error))}".split())[:_MAX_MESSAGE]
    file = _save_traceback(error, arguments)
    if as_json:
        document: UnforeseenDocument = {"error": "unforeseen", "message": message}
        if file is not None:
            document["traceback"] = str(file)
        if undo_files:
            document["undo_file"] = str(undo_files[-1])
        write_json_message(document)
        return
    request = f"please report it with {file}" if file is not None else "please report it"
    undo = f"; values were written, undo with: pulsar-meta undo {undo_files[-1]}" if undo_files else ""
    write_message(f"pulsar-meta: this is a bug in pulsar-meta, {request}: {message}{undo}")


def _save_traceback(error: BaseException, arguments: Sequence[str]) -> Path | None:
    """Save the traceback in the state directory, else in the temporary one; only this user can read the file.

    Returns None if neither directory is writable.
    """
    # Imported late, because few runs end like this, and every run would wait for these modules.
    import shlex
    import tempfile
    import traceback

    from pulsar_meta.cli.settings import distribution
    from pulsar_meta.jobs.rewrite.run import undo_directory

    call = shlex.join(["pulsar-meta", *arguments])
    about = f"pulsar-meta {distribution().version}, Python {sys.version}, {sys.platform}"
    text = _without_secrets("\n".join((call, about, "", "".join(traceback.format_exception(error)))))
    directories = [Path(tempfile.gettempdir())]
    with suppress(UsageError):
        directories.insert(0, undo_directory().parent)
    for directory in directories:
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened, name = tempfile.mkstemp(prefix="unforeseen-", suffix=".txt", dir=directory)
            with open(opened, "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
            return Path(name)
    return None


def _without_secrets(text: str) -> str:
    """Mask credentials in URLs, and the values of fields whose names suggest a secret."""
    text = _url_re.sub(lambda url: redact(url[0]), text)
    return _secret_re.sub(r"\1***", text)
