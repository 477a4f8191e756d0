"""Read small files safely, lock files, keep temporary directories, and notice when files change.

Reading never blocks on a device or a pipe. A temporary directory is locked (flock) as long as its process
lives; the next process removes the directories of processes that were killed. Changes are recognised by sizes
and times, without reading the files.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO, BinaryIO, Final

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


PREFIX: Final = "pulsar-meta-scratch-"


class ScratchDirectory:
    """A new directory of our own below the temporary one (TMPDIR), until `cleanup`."""

    def __init__(self) -> None:
        """Make it, after removing those of processes that are no more."""
        self._lock: int | None = None
        parent = Path(tempfile.gettempdir())
        remove_abandoned(parent)
        # It has another name until it is locked, or somebody could think it abandoned.
        unlocked = Path(tempfile.mkdtemp(prefix=".pulsar-meta-", dir=parent))
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(parent / (PREFIX + unlocked.name.rpartition("-")[2]))

    def cleanup(self) -> None:
        """Remove it with everything in it. Safe to call twice."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def without_scratch(text: str) -> str:
    """Return `text` with files in such a directory by their names alone: each process has another one."""
    return re.sub(re.escape(str(Path(tempfile.gettempdir()) / PREFIX)) + r"[^/\s]*/?", "", text)


def remove_abandoned(parent: Path) -> None:
    """Remove the directories that killed processes of this user left in `parent`."""
    with suppress(OSError):
        for left in parent.glob(PREFIX + "*"):
            with suppress(OSError):
                _remove_unlocked(left)


def _remove_unlocked(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(number).st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(number)


def locked_now(file: IO[bytes]) -> bool:
    """Lock an open file (flock) for as long as it is open; False where somebody else holds its lock.

    Some file systems have no locks: there the file counts as locked, as nobody else can be asked.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


class Stamps:
    """Sizes and times of files and directories as they were when this was made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Take paths; what is not there counts as changed once it is."""
        self._before = {path: _stamp(path) for path in paths}

    @property
    def changed(self) -> bool:
        """Whether any of them is another now."""
        return any(_stamp(path) != before for path, before in self._before.items())


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None
