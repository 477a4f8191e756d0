"""Small files, read whole: neither a device without an end nor a pipe without a writer can hold one up."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from pulsar_meta.codecs.errors import DecodeError


def open_regular(path: Path) -> BinaryIO:
    """Open an ordinary file for reading; DecodeError for a pipe, a device or a socket, else OSError."""
    # Without O_NONBLOCK, opening a pipe that nobody writes to would never return.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DecodeError("not an ordinary file", source=str(path))
    return open(number, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Return the bytes of an ordinary file; DecodeError also where it has more than `limit`."""
    with open_regular(path) as file:
        return _bounded(file, path, limit)


def read_any(path: Path, limit: int) -> bytes:
    """Return the bytes of a file or of a pipe somebody writes to; DecodeError for more than `limit`."""
    with path.open("rb") as file:
        return _bounded(file, path, limit)


def _bounded(file: BinaryIO, path: Path, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise DecodeError(f"over {limit} bytes", source=str(path))
    return data
