"""Input files of commands; the name - means stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from pulsar_meta.access.files import bounded_lines
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
