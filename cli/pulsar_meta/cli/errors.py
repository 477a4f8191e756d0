"""Turn errors into one line on stderr, or into JSON if the output is JSON.

An error that is a fault of this program gives one line that asks for a report, and a file to send with it.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypedDict

import typer

from pulsar_meta.access.urls import redact
from pulsar_meta.cli.outputs import talk, talk_json
from pulsar_meta.cli.shell import Shell
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError, UnreachableError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.rewrite.undo_paths import undo_directory

if TYPE_CHECKING:
    from pulsar_meta.entries.base import EntrySource


# The undo files of this run that have records: an unforeseen error names the last.
undo_files: list[Path] = []


class ErrorDocument(TypedDict):
    """An error on stderr; `offset` is in bytes."""

    error: str
    message: str
    source: NotRequired[str]
    offset: NotRequired[int]


def wants_json(arguments: list[str]) -> bool:
    """Return whether the command line asked for JSON output, also where parsing it failed."""
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
        talk(f"pulsar-meta: {redact(str(error))}")
        return
    document: ErrorDocument = {"error": error.kind, "message": redact(error.message)}
    if error.source is not None:
        document["source"] = redact(error.source)
    if isinstance(error, DecodeError) and error.offset is not None:
        document["offset"] = error.offset
    talk_json(document)


def os_failure(error: OSError) -> PulsarMetaError:
    """Return what the operating system refused as an error of ours: a missing file is 3, the rest is 6."""
    source = str(error.filename) if error.filename is not None else None
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", source=source)
    return UnreachableError(error.strerror or str(error), source=source)


class Faults:
    """The faults of a command that goes on after them: each reported, and the gravest is the exit code."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.worst = 0

    def __call__(self, error: PulsarMetaError) -> None:
        """Report a fault on stderr and note it."""
        self.note(error.exit_code)
        report(error, as_json=self.shell.speaks_json)

    def note(self, exit_code: int) -> None:
        """Note that something was found that ends the command with this exit code."""
        self.worst = max(self.worst, int(exit_code))

    def end(self, source: EntrySource | None = None) -> None:
        """Report what the source of entries itself met, and leave if anything was wrong."""
        if source is not None:
            self.ask(source)
        if self.worst:
            raise typer.Exit(self.worst)

    def ask(self, source: EntrySource) -> None:
        """Say what a source of entries noted, and report what it found damaged beside what was read."""
        for note in source.notes:
            self.shell.say(note)
        for fault in source.faults:
            self(fault)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Note the exit code with which a part of the command leaves, and go on."""
        try:
            yield
        except typer.Exit as left:
            self.note(left.exit_code)


class Parts:
    """The documents of all parts, one part after the other. A single part that is missing is an error."""

    def __init__(self, shell: Shell, parts: Iterable[Iterable[Document]]) -> None:
        """`parts` are read when they are iterated over."""
        self.parts = list(parts)
        self.faults = Faults(shell)

    def __iter__(self) -> Iterator[Document]:
        for part in self.parts:
            try:
                yield from part
            except NotFoundError as error:
                if len(self.parts) == 1:
                    raise
                self.faults(error)

    def check(self) -> None:
        """Leave with exit code 3 where a part was missing."""
        self.faults.end()


# The text of an error that is no sentence of ours may hold a whole value.
_LONGEST_WHAT: Final = 300
_url_re = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")
_secret_re = re.compile(
    r"([\w.-]*(?:passw(?:or)?d|secret|token|credential|api_?key)['\"]?\s*[=:]\s*)[^\s,;&)}\]]+", re.IGNORECASE
)


class UnforeseenDocument(TypedDict):
    """A fault of pulsar-meta itself; `traceback` is a file for a report, `undo_file` has what was written."""

    error: Literal["unforeseen"]
    message: str
    traceback: NotRequired[str]
    undo_file: NotRequired[str]


def report_unforeseen(error: BaseException, arguments: Sequence[str], *, as_json: bool) -> None:
    """Write one line about an error that is a fault of this program; its traceback goes into a file."""
    what = " ".join(f"{type(error).__name__}: {_without_secrets(str(error))}".split())[:_LONGEST_WHAT]
    file = _keep_traceback(error, arguments)
    if as_json:
        document: UnforeseenDocument = {"error": "unforeseen", "message": what}
        if file is not None:
            document["traceback"] = str(file)
        if undo_files:
            document["undo_file"] = str(undo_files[-1])
        talk_json(document)
        return
    report_it = f"please report it with {file}" if file is not None else "please report it"
    undo = f"; values were written, undo with: pulsar-meta undo {undo_files[-1]}" if undo_files else ""
    talk(f"pulsar-meta: a fault of pulsar-meta itself, {report_it}: {what}{undo}")


def _keep_traceback(error: BaseException, arguments: Sequence[str]) -> Path | None:
    """Return a new file for this user only, in the state directory or else among temporary files."""
    call = shlex.join(["pulsar-meta", *arguments])
    about = f"pulsar-meta {version('pulsar-meta')}, Python {sys.version}, {sys.platform}"
    text = _without_secrets("\n".join((call, about, "", "".join(traceback.format_exception(error)))))
    for directory in (undo_directory().parent, Path(tempfile.gettempdir())):
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened, name = tempfile.mkstemp(prefix="unforeseen-", suffix=".txt", dir=directory)
            with open(opened, "w", encoding="utf-8", errors="backslashreplace") as out:
                out.write(text)
            return Path(name)
    return None


def _without_secrets(text: str) -> str:
    """Return `text` without credentials in URLs and values that are called password or the like."""
    text = _url_re.sub(lambda found: redact(found[0]), text)
    return _secret_re.sub(r"\1***", text)
