"""Where a command writes: stdout, files that appear whole or not at all, and stderr for talk."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any, Final, cast

from pulsar_meta.cli.render.text import json_line, message_line
from pulsar_meta.codecs.errors import UsageError

# Names below these stand for streams that are open already.
_STREAMS: Final = ("/dev/fd/", "/dev/std", "/proc/")
# With a longer name a part file might be more than a file system takes.
_LONGEST_NAME: Final = 200
# What is drawn on stderr just now: rich's progress bars.
_bars: list[Any] = []


@contextmanager
def whole_file(path: Path, mode: str) -> Iterator[IO[Any]]:
    """Open `path` for writing so that it appears whole or not at all; until then an old file stays.

    A new file takes the mode and the owner of the one it replaces, and a symbolic link keeps its target. What
    is no regular file (a device, a pipe, an open stream) is written straight. UsageError where none can be.
    """
    try:
        with _straight(path, mode) if _is_stream(path) else _replacing(path, mode) as out:
            yield out
    except OSError as error:
        if error.filename is not None:
            # About another file, which was read.
            raise
        raise _refused(error, path) from error


def beside(path: Path, suffix: str) -> Path | None:
    """Return the name of what is written along with the file `path`; None where that is no regular file."""
    return None if _is_stream(path) else path.with_name(path.name + suffix)


def _is_stream(path: Path) -> bool:
    """Return whether `path` is there and no regular file; UsageError for a directory."""
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _refused(error, path) from error
    if stat.S_ISDIR(kind):
        raise UsageError("cannot write: this is a directory", source=str(path))
    return not stat.S_ISREG(kind) or str(path).startswith(_STREAMS)


@contextmanager
def _straight(path: Path, mode: str) -> Iterator[IO[Any]]:
    try:
        out = open(path, mode, **_text(mode))  # noqa: SIM115
    except OSError as error:
        raise _refused(error, path) from error
    with out:
        yield out


@contextmanager
def _replacing(path: Path, mode: str) -> Iterator[IO[Any]]:
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name[:_LONGEST_NAME]}.{os.urandom(8).hex()}.part")
    try:
        new = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise _refused(error, path) from error
    try:
        with open(new, mode, **_text(mode)) as out:
            _take_after(new, target)
            yield out
            out.flush()
            os.fsync(new)
        try:
            os.replace(partial, target)
        except OSError as error:
            raise _refused(error, path) from error
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()


def _take_after(new: int, target: Path) -> None:
    """Give the new file the mode of the one that it replaces, and its owner where we may."""
    try:
        old = target.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.fchown(new, old.st_uid, old.st_gid)
    os.fchmod(new, old.st_mode & 0o777)


def _text(mode: str) -> dict[str, Any]:
    return {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}


def _refused(error: OSError, path: Path) -> UsageError:
    return UsageError(f"cannot write: {error.strerror or error}", source=str(path))


class _EndsBars:
    """A stream to a terminal that takes progress bars off it before data is written."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        end_bars()
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def stdout_text() -> IO[str]:
    """Return stdout for text."""
    return cast("IO[str]", _EndsBars(sys.stdout)) if sys.stdout.isatty() else sys.stdout


def stdout_bytes(*, force: bool) -> IO[bytes]:
    """Return stdout for raw bytes; UsageError on a terminal, which bytes would leave unusable."""
    if sys.stdout.isatty() and not force:
        raise UsageError("raw bytes would garble the terminal: redirect them, use --output FILE, or --force")
    end_bars()
    return sys.stdout.buffer


def talk(text: str) -> None:
    """Write one line to stderr, nothing in it that steers a terminal; a progress bar steps aside for it."""
    _to_stderr(message_line(text))


def asking() -> AbstractContextManager[object]:
    """Keep stdout clean of a question: Typer asks on stderr, and writes a space to stdout all the same."""
    return redirect_stdout(sys.stderr)


def talk_json(document: Mapping[str, Any]) -> None:
    """Write one line of JSON to stderr."""
    _to_stderr(json_line(document))


def _to_stderr(line: str) -> None:
    for bar in _bars:
        bar.stop()
    # That nobody listens is no reason to fail.
    with suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    for bar in _bars:
        bar.start()


def progress_bar(*columns: Any) -> Any:
    """Return a progress bar of rich for `drawn`; it leaves the streams of others alone."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)


@contextmanager
def drawn(bar: Any) -> Iterator[None]:
    """Draw a progress bar of rich on stderr until data is written to a terminal."""
    bar.start()
    _bars.append(bar)
    try:
        yield
    finally:
        bar.stop()
        if bar in _bars:
            _bars.remove(bar)


def end_bars() -> None:
    """Take progress bars off the terminal for good, where stdout is one too: data is about to be written."""
    if _bars and sys.stdout.isatty():
        while _bars:
            _bars.pop().stop()


def replace_closed_streams() -> list[str]:
    """Return the names of the standard streams that the caller closed, after giving each a stand-in.

    Otherwise the next file that is opened would become one of them. To read from the stand-in for stdin, and
    to write to that for stdout, is an error; talk to a closed stderr goes nowhere.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        # The two that fail are opened the wrong way round.
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
