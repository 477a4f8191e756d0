"""Read small files safely, write files that survive a power loss, lock files, and keep temporary directories.

Reading never blocks on a device or a pipe. A temporary directory is locked (flock) while its process runs,
and later processes remove the directories of killed ones. Changes are recognized by sizes and times, without
reading the files. A new or renamed file survives a power loss only after both the file and its directory
were synced (fsync).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, BinaryIO, Final

from pulsar_meta.codecs.compression import LIMITS, MAX_UNPACKED
from pulsar_meta.codecs.errors import DecodeError, LimitError, UsageError

# The mode of files that hold values of a store, which may be secrets.
PRIVATE: Final = 0o600


def bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a file. Raises LimitError for a line that would take too much memory."""
    longest = LIMITS.max_unpacked // 4
    for number in count(1):
        line = file.readline(longest + 1)
        if len(line) > longest:
            text = f"line {number} has more than {longest} bytes (raise the limit with {MAX_UNPACKED})"
            raise LimitError(text)
        if not line:
            return
        yield line


def private(path: str, flags: int) -> int:
    """Open a file that only its owner can read; an `opener` for `open`."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE)


def refuse_dash(path: Path) -> None:
    """Raise UsageError for `-`, which elsewhere means standard output, as the name of a file to write."""
    if str(path) == "-":
        raise UsageError('cannot write to "-": name a file')


# Some network file systems can't sync a directory, and others don't let this user open it.
_NO_DIRECTORY_SYNC: Final = frozenset((errno.EINVAL, errno.EACCES, errno.ENOTSUP))


def sync_file(file: IO[Any]) -> None:
    """Write the contents of an open file to the disk. Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(directory: str | Path) -> None:
    """Write the names in a directory to the disk, if the file system can. Raises OSError."""
    try:
        number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
    except OSError as error:
        if error.errno not in _NO_DIRECTORY_SYNC:
            raise


def replace_durably(unfinished: str | Path, target: str | Path) -> None:
    """Give a synced file its final name, and write the name to the disk. Raises OSError."""
    os.replace(unfinished, target)
    sync_directory(os.path.dirname(target) or ".")


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """Create a directory and the missing ones above it, and write their names to the disk. Raises OSError."""
    if not directory.is_dir():
        make_directories(directory.parent)
        with suppress(FileExistsError):
            directory.mkdir(mode)
        sync_directory(directory.parent)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file. Raises DecodeError for a pipe, device or socket, and otherwise OSError."""
    # O_NONBLOCK, because opening a pipe without a writer would otherwise never return.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise DecodeError("not an ordinary file", source=str(path))
    return open(number, "rb")


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file. Raises DecodeError also if it has more than `limit` bytes."""
    with open_regular(path) as file:
        return _bounded(file, path, limit)


def read_any(path: Path, limit: int) -> bytes:
    """Read a file or a pipe. Raises DecodeError if there are more than `limit` bytes, and OSError."""
    with path.open("rb") as file:
        return _bounded(file, path, limit)


def _bounded(file: BinaryIO, path: Path, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise DecodeError(f"more than {limit} bytes", source=str(path))
    return data


PREFIX: Final = "pulsar-meta-scratch-"


class ScratchDirectory:
    """A new directory below the temporary directory (TMPDIR), until `cleanup`."""

    def __init__(self) -> None:
        """Create the directory, after removing those of processes that no longer run."""
        # `tempfile` imports ten modules, and most users of this module need none of them.
        import tempfile

        self._lock: int | None = None
        parent = Path(tempfile.gettempdir())
        remove_abandoned(parent)
        # Until it is locked it has another name, because another process could remove it as abandoned.
        unlocked = Path(tempfile.mkdtemp(prefix=".pulsar-meta-", dir=parent))
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(parent / (PREFIX + unlocked.name.rpartition("-")[2]))

    def cleanup(self) -> None:
        """Remove the directory with its contents. Can be called twice."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def without_scratch(text: str) -> str:
    """Return `text` with the paths of scratch directories removed, because they differ in every run."""
    import tempfile

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
    """Lock an open file (flock) until it is closed. Returns False if another process has locked it.

    On file systems without locks this returns True.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


class Stamps:
    """The sizes and modification times of files and directories at one moment."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Record the current state of `paths`, which don't have to exist."""
        self._before = {path: _stamp(path) for path in paths}

    @property
    def changed(self) -> bool:
        """Whether any of the paths has changed, appeared or disappeared since then."""
        return any(_stamp(path) != before for path, before in self._before.items())


def _stamp(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None
