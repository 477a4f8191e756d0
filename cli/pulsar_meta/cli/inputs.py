"""What a command reads that the command line names: a file, or - for stdin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from pulsar_meta.codecs.errors import DecodeError, UsageError, unreadable

STDIN: Final = "-"


@contextmanager
def open_input(name: str | Path | None) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; stdin where the name is - or none was given.

    NotFoundError for a file that does not exist, UnreachableError for one that cannot be read.
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
    """Return all bytes of a file, or of stdin; raises as `open_input`."""
    with open_input(name) as stream:
        return stream.read()


def input_name(name: str | Path | None) -> str:
    """Return how messages call an input."""
    return "stdin" if name is None or str(name) == STDIN else str(name)


def read_text(name: str | Path | None, source: str) -> str:
    """Return the text of a file or of stdin, without byte order mark; DecodeError where it is not UTF-8."""
    try:
        return read_input(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError("not UTF-8", offset=error.start, source=source) from error


def read_lines(name: str | Path | None) -> Iterator[str]:
    """Yield the lines of a file or of stdin; UsageError for one that is not UTF-8, else as `open_input`."""
    with open_input(name) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise UsageError(f"line {number} is not UTF-8", source=input_name(name)) from error
