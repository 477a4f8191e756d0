"""Read a RocksDB database without changing its directory, even while another process writes to it.

RocksDB's Python binding writes files into the directory even if it only reads. It therefore gets a temporary
directory with symbolic links to the big files and copies of the small ones (CURRENT, MANIFEST, OPTIONS). LOCK
is never opened, because closing it would release a lock that this process may hold on it (fcntl(2)).
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.access.files import ScratchDirectory, without_scratch
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError

if TYPE_CHECKING:
    from rocksdict import Rdict

LOGS: Final = (".log",)
TABLES: Final = (".sst", ".blob", ".ldb")
COPIED: Final = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")
# A flush or a compaction can remove files while they are being linked, so opening is retried.
ATTEMPTS: Final = 12
PAUSE: Final = 0.03
VANISHED: Final = ("No such file", "Can't access")


class ReadOnlyDatabase:
    """A database opened read-only through a directory of links, as of the moment of opening."""

    def __init__(self, database: Path, source: str) -> None:
        """Open the database; errors name `source`.

        Raises NotFoundError if there is no database, UnreachableError if it isn't readable, and DecodeError
        if it is damaged.
        """
        self._source = source
        self._directory: ScratchDirectory | None = None
        self.db = self._open(database)

    def close(self) -> None:
        """Close the database and remove the links. Can be called twice."""
        if self._directory is not None:
            self.db.close()
            self._directory.cleanup()
            self._directory = None

    def _open(self, database: Path) -> Rdict:
        check_database(database, self._source)
        for attempt in range(1, ATTEMPTS + 1):
            directory = ScratchDirectory()
            try:
                opened = _open_linked(database, directory.path)
            except Exception as error:
                # rocksdict raises a bare Exception for every error of RocksDB.
                directory.cleanup()
                if attempt == ATTEMPTS or not any(words in str(error) for words in VANISHED):
                    raise rocksdb_error(error, self._source) from error
                time.sleep(PAUSE * attempt)
            else:
                self._directory = directory
                return opened
        raise AssertionError("unreachable")


def check_database(database: Path, source: str) -> None:
    """Raise NotFoundError if there is no database, UnreachableError if the directory isn't readable."""
    try:
        if not (database / "CURRENT").is_file():
            raise NotFoundError("the directory has no RocksDB database (no file CURRENT)", source=source)
        next(database.iterdir(), None)
    except OSError as error:
        raise UnreachableError(f"cannot read the directory: {error.strerror}", source=source) from error


def rocksdb_error(error: Exception, source: str) -> DecodeError | UnreachableError:
    """Convert an error of RocksDB. The message is one line, without the temporary directory of links."""
    text = without_scratch(" ".join(str(error).split()))
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return UnreachableError(f"cannot read the database: {text}", source=source)
    return DecodeError(f"RocksDB: {text}", source=source)


def _open_linked(database: Path, linked: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict

    # Logs are linked before the MANIFEST is copied. A log that is created in between is missed completely,
    # which only loses the newest writes. In the other order, a log could be flushed and removed before it is
    # linked while the copied MANIFEST doesn't name its table yet, and older writes would be missing. Tables
    # come last: one that the MANIFEST names either exists or was removed since, which RocksDB reports.
    _link(database, LOGS, linked)
    for file in database.iterdir():
        if file.name.startswith(COPIED):
            shutil.copyfile(file, linked / file.name)
    _link(database, TABLES, linked)
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    # A killed process leaves a write-ahead log, which must be read as well.
    access = AccessType.read_only(error_if_log_file_exist=False)
    return Rdict(str(linked), options, access_type=access)


def _link(database: Path, suffixes: tuple[str, ...], linked: Path) -> None:
    for file in database.iterdir():
        # RocksDB would wait forever for a pipe's writer.
        if file.suffix in suffixes and file.is_file():
            (linked / file.name).symlink_to(file.absolute())
