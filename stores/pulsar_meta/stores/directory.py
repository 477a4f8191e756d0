"""`dir:PATH`: a directory tree as a store, for copies that you want to read with ordinary tools.

The value of `/a/b` is the file `a/b/.value`. The version is derived from the content, so it changes whenever
the value does. Symbolic links are never followed. Writers lock the root directory, so only one writes at a
time.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO, Final

from pulsar_meta.access.files import make_directories, replace_durably, sync_directory, sync_file
from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.errors import GuardError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.stores.base import (
    ABSENT,
    Store,
    Versioned,
    Write,
    child_path,
    conflict,
    roots_after,
    split_prefix,
    valid_path,
)

VALUE = ".value"
UNFINISHED = ".value.new"
# The number of files that are written in parallel.
AT_ONCE: Final = 8
LOCK_SECONDS: Final = 60.0


def content_version(value: bytes) -> int:
    """Derive the version of `value` from 63 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(value).digest()[:8], "big") >> 1


class DirectoryStore(Store):
    """A store that keeps its values in files below one directory."""

    # While one group of writes waits for the disk, the caller can decide about the next.
    batches_requests = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Open the directory. If it is opened for writing, it is created when it doesn't exist.

        Raises NotFoundError if a directory opened for reading doesn't exist, UnreachableError if it can't be
        created.
        """
        self.url = url
        self.writable = not read_only
        self.root = Path(split_scheme(url)[1]).absolute()
        try:
            if self.writable:
                make_directories(self.root)
        except OSError as error:
            raise UnreachableError(f"cannot create the directory: {error.strerror}", source=url) from error
        if not self.root.is_dir():
            raise NotFoundError("no such directory", source=url)

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        value = self._read(path, self._file(path))
        if value is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return value

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`."""
        return self._names(self._directory(path))

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, parents first, siblings by name."""
        paths = [split_prefix(prefix)[0]] if after is None else roots_after(self.children, prefix, after)
        pending = [(path, str(self._directory(path))) for path in paths][::-1]
        while pending:
            path, directory = pending.pop()
            value = self._read(path, f"{directory}/{VALUE}")
            if value is not None:
                yield value
            for name in reversed(self._names(directory)):
                # `_names` never lists symbolic links.
                pending.append((self._checked(child_path(path, name)), f"{directory}/{name}"))

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the content is still that of version `expected`, and return the new version."""
        (version,) = self.put_many([(path, value, expected)])
        if version is None:
            raise conflict(path, self.url)
        return version

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does. Returns new versions, with None for conflicts.

        Files are synced in parallel, so that one commit of the file system's journal covers several of them.
        """
        for path, value, _ in writes:
            self.check_write(path, value)
        with self._locked():
            return [version for group in _groups(writes) for version in self._put_group(group)]

    def _put_group(self, writes: Collection[Write]) -> list[int | None]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda write: self._swap(*write), writes))

    def delete(self, path: str, expected: int) -> None:
        """Delete if the content is still that of `expected`, and remove directories that become empty."""
        self.check_write(path)
        directory = self._directory(path)
        self.read(path)
        with self._locked(), self._reached(path):
            if not self._is_at(path, expected):
                raise conflict(path, self.url)
            (directory / VALUE).unlink()
            sync_directory(directory)
            while directory != self.root and not any(directory.iterdir()):
                directory.rmdir()
                directory = directory.parent
                sync_directory(directory)

    def close(self) -> None:
        """Do nothing, because no file stays open."""

    def _file(self, path: str) -> Path:
        return self._directory(path) / VALUE

    def _directory(self, path: str) -> Path:
        if path == "/":
            return self.root
        place = str(self.root)
        for part in self._checked(path).split("/")[1:]:
            place = f"{place}/{part}"
            if os.path.islink(place):
                raise GuardError(f"{path}: {part} is a symbolic link", source=self.url)
        return Path(place)

    def _checked(self, path: str) -> str:
        if {VALUE, UNFINISHED} & set(valid_path(path).split("/")):
            raise UsageError(f"invalid path {path!r}: a directory store reserves that name", source=self.url)
        return path

    def _names(self, directory: str | Path) -> list[str]:
        try:
            with os.scandir(directory) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise UnreachableError(
                f"{os.path.basename(directory)}: {error.strerror}", source=self.url
            ) from error

    def _read(self, path: str, file: str | Path) -> Versioned | None:
        try:
            number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
                return None
            raise UnreachableError(f"{path}: {error.strerror}", source=self.url) from error
        with open(number, "rb") as opened:
            status = os.fstat(number)
            if not S_ISREG(status.st_mode):
                raise UnreachableError(f"{path}: not an ordinary file", source=self.url)
            value = opened.read()
        return Versioned(path, value, content_version(value), None, status.st_mtime_ns // 1_000_000)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                root = os.open(self.root, os.O_RDONLY)
                stack.callback(os.close, root)
                _lock(root)
            except BlockingIOError as error:
                text = f"another process has held the lock for {LOCK_SECONDS:.0f} seconds"
                raise UnreachableError(text, source=self.url) from error
            except OSError as error:
                text = f"cannot lock the directory: {error.strerror}"
                raise UnreachableError(text, source=self.url) from error
            yield

    @contextmanager
    def _reached(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnreachableError(f"{path}: {error.strerror}", source=self.url) from error

    def _is_at(self, path: str, expected: int) -> bool:
        value = self._read(path, self._file(path))
        return (ABSENT if value is None else value.version) == expected

    def _swap(self, path: str, value: bytes, expected: int) -> int | None:
        """Replace a value atomically. Returns its version once it is on disk, or None for a conflict."""
        if not self._is_at(path, expected):
            return None
        target = str(self._file(path))
        unfinished = f"{target}.new"
        with self._reached(path), _removed_on_failure(unfinished):
            with _made(unfinished) as file:
                file.write(value)
                with suppress(FileNotFoundError):
                    shutil.copymode(target, unfinished)
                sync_file(file)
            replace_durably(unfinished, target)
        return content_version(value)


class FilesStore(DirectoryStore):
    """`files:/`: single files that each contain a value; their paths are those of the file system.

    Commands that rewrite value files use it. It lists nothing, so no command takes other files for values.
    """

    def children(self, path: str) -> list[str]:
        """Return no names."""
        return []

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield the value in the file `prefix`, if there is one."""
        if prefix != "/" and after is None and self._file(prefix).is_file():
            yield self.read(prefix)

    def delete(self, path: str, expected: int) -> None:
        """Refuse, because the operator can delete a file without this program."""
        raise GuardError(f"{path}: value files are never deleted", source=self.url)

    def _file(self, path: str) -> Path:
        return self._directory(path)

    def _checked(self, path: str) -> str:
        return valid_path(path)


def _made(file: str) -> IO[bytes]:
    """Create a file, after removing one that a killed writer left."""
    try:
        return open(file, "xb")
    except FileNotFoundError:
        make_directories(Path(file).parent)
    except FileExistsError:
        os.unlink(file)
    return open(file, "xb")


@contextmanager
def _removed_on_failure(file: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            os.unlink(file)
        raise


def _groups(writes: Sequence[Write]) -> Iterator[Collection[Write]]:
    """Yield the writes in groups without repeated paths."""
    group: dict[str, Write] = {}
    for write in writes:
        if write[0] in group:
            yield group.values()
            group = {}
        group[write[0]] = write
    yield group.values()


def _lock(root: int) -> None:
    """Lock out other writers. Raises BlockingIOError if one keeps the lock for too long."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.01)
        else:
            return
