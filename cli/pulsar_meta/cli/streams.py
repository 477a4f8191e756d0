"""Inputs and outputs of commands: files, stdin (also named -), stdout and stderr.

Data goes to stdout or to files that appear only when they are complete, messages to stderr.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from pulsar_meta.access.files import bounded_lines, refuse_dash, replace_durably, sync_file
from pulsar_meta.cli.render.text import json_line, message_line
from pulsar_meta.codecs.errors import DecodeError, UsageError, unreadable

STDIN: Final = "-"


@contextmanager
def open_input(name: str | Path | None) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes, or stdin if the name is - or None.

    Raises NotFoundError if the file doesn't exist, UnreachableError if it can't be read.
    """
    source = input_name(name)
    try:
        if source == "stdin":
            yield sys.stdin.buffer
        else:
            with open(source, "rb") as stream:
                yield stream
    except OSError as error:
        raise unreadable(error, source) from error


def read_input(name: str | Path | None) -> bytes:
    """Return all bytes of a file or of stdin. Raises the errors of `open_input`."""
    with open_input(name) as stream:
        return stream.read()


def input_name(name: str | Path | None) -> str:
    """Return the name of an input for messages."""
    return "stdin" if name is None or str(name) == STDIN else str(name)


def read_text(name: str | Path | None, source: str) -> str:
    """Read a file or stdin as text without a byte order mark. Raises DecodeError if it isn't UTF-8."""
    try:
        return read_input(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError("not UTF-8", offset=error.start, source=source) from error


def read_lines(name: str | Path | None) -> Iterator[str]:
    """Yield the lines of a file or of stdin. Raises UsageError for a line that isn't UTF-8."""
    with open_input(name) as stream:
        for number, line in enumerate(bounded_lines(stream), start=1):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise UsageError(f"line {number} is not UTF-8", source=input_name(name)) from error


# Paths below these are streams that are open already.
_STREAMS: Final = ("/dev/fd/", "/dev/std", "/proc/")
# The name of a part file is longer than its target's, and most file systems allow 255 bytes.
_LONGEST_NAME: Final = 200
# The progress bars that are on stderr now.
_bars: list[Any] = []


@contextmanager
def atomic_file(path: Path, mode: str, permissions: int = 0o666) -> Iterator[IO[Any]]:
    """Open `path` for writing. The file appears, or replaces an old one, if the block ends without an error.

    A file that replaces another gets its mode and owner; a symbolic link is kept and its target replaced. A
    device, a pipe or an open stream is written to directly. Raises UsageError if `path` can't be written.
    """
    refuse_dash(path)
    try:
        with _open_directly(path, mode) if _is_stream(path) else _replacing(path, mode, permissions) as out:
            yield out
    except OSError as error:
        if error.filename is not None:
            # The error is about a file that the block read.
            raise
        raise _cannot_write(error, path) from error


def index_path(path: Path) -> Path | None:
    """Return the path of the index of a file of frames; None if `path` is not a regular file."""
    return None if _is_stream(path) else path.with_name(path.name + ".idx")


def _is_stream(path: Path) -> bool:
    """Return True if `path` exists and is not a regular file. Raises UsageError for a directory."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot_write(error, path) from error
    if stat.S_ISDIR(kind):
        raise UsageError("cannot write: this is a directory", source=str(path))
    return not stat.S_ISREG(kind) or str(path).startswith(_STREAMS)


@contextmanager
def _open_directly(path: Path, mode: str) -> Iterator[IO[Any]]:
    try:
        out = open(path, mode, **_text_options(mode))  # noqa: SIM115
    except OSError as error:
        raise _cannot_write(error, path) from error
    with out:
        yield out


@contextmanager
def _replacing(path: Path, mode: str, permissions: int) -> Iterator[IO[Any]]:
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name[:_LONGEST_NAME]}.{os.urandom(8).hex()}.part")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        new = os.open(partial, flags, permissions)
    except OSError as error:
        raise _cannot_write(error, path) from error
    try:
        with open(new, mode, **_text_options(mode)) as out:
            _copy_mode_and_owner(new, target)
            yield out
            sync_file(out)
        try:
            replace_durably(partial, target)
        except OSError as error:
            raise _cannot_write(error, path) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _copy_mode_and_owner(new: int, target: Path) -> None:
    """Give the new file the mode of the file that it replaces, and its owner if this user may set it."""
    try:
        old = target.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.fchown(new, old.st_uid, old.st_gid)
    os.fchmod(new, old.st_mode & 0o777)


def _text_options(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}


def _cannot_write(error: OSError, path: Path) -> UsageError:
    return UsageError(f"cannot write: {error.strerror or error}", source=str(path))


class _BarClearingStream:
    """A stream to a terminal that removes progress bars before it writes data."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        clear_bars()
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_text() -> IO[str]:
    """Return stdout for text."""
    return cast("IO[str]", _BarClearingStream(sys.stdout)) if sys.stdout.isatty() else sys.stdout


def stdout_bytes(*, force: bool) -> IO[bytes]:
    """Return stdout for raw bytes. Raises UsageError for a terminal without `force`."""
    if sys.stdout.isatty() and not force:
        raise UsageError(
            "refusing to write raw bytes to a terminal: redirect stdout, or add --output FILE or --force"
        )
    clear_bars()
    return sys.stdout.buffer


def write_message(text: str) -> None:
    """Write one line to stderr, above the progress bar, with control characters escaped."""
    _to_stderr(message_line(text))


def prompt_on_stderr() -> AbstractContextManager[object]:
    """Redirect stdout to stderr while Typer asks: even with err=True, it writes a space to stdout."""
    return redirect_stdout(sys.stderr)


def write_json_message(document: Mapping[str, Any]) -> None:
    """Write one line of JSON to stderr."""
    _to_stderr(json_line(document))


def _to_stderr(line: str) -> None:
    for bar in _bars:
        bar.stop()
    # A closed stderr is no reason to fail.
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    for bar in _bars:
        bar.start()


def progress_bar(*columns: Any) -> Any:
    """Create a progress bar for `show_bar` that doesn't redirect stdout and stderr."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)


def bar_columns(unit: str) -> Iterator[Any]:
    """Yield the columns of a bar whose end is known: stage, bar, counts, and the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    yield TextColumn("{task.description}" + unit)
    yield from (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def counter_columns(unit: str) -> Iterator[Any]:
    """Yield the columns of a bar whose end is not known: stage, count and rate, and the time so far."""
    from rich.progress import ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    class Counter(ProgressColumn):
        def render(self, task: Any) -> Text:
            count = f"{task.completed:.0f} {unit}" if task.completed else ""
            return Text(f"{count}, {task.speed:.0f}/s" if task.speed else count)

    yield from (SpinnerColumn(), TextColumn("{task.description}"), Counter(), TimeElapsedColumn())


@contextmanager
def show_bar(bar: Any) -> Iterator[None]:
    """Show a progress bar on stderr until the block ends or data is written to a terminal."""
    bar.start()
    _bars.append(bar)
    try:
        yield
    finally:
        bar.stop()
        if bar in _bars:
            _bars.remove(bar)


def clear_bars() -> None:
    """If stdout is a terminal, remove the progress bars before data is written to it."""
    if _bars and sys.stdout.isatty():
        while _bars:
            _bars.pop().stop()


def replace_closed_streams() -> list[str]:
    """Replace the standard streams that the caller closed, and return their names.

    Otherwise the next file that is opened would get the number of a closed stream. Reading from the
    replacement of stdin and writing to that of stdout fails; messages to that of stderr are discarded.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        # stdin is opened for writing and stdout for reading, so that using them fails.
        number, flags, mode = {
            "stdin": (0, os.O_WRONLY, "r"),
            "stdout": (1, os.O_RDONLY, "w"),
            "stderr": (2, os.O_WRONLY, "w"),
        }[name]
        opened = os.open(os.devnull, flags)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    return closed
