"""Reading a RocksDB database without leaving a trace in its directory, also while somebody writes it.

RocksDB's Python binding writes files beside the ones it reads, even when it only reads. So it is given a
temporary directory instead, in which the big files are symbolic links to the database's own and the small
ones (CURRENT, MANIFEST, OPTIONS) are copies. LOCK is never opened: closing it would release a lock that
this process holds on it (fcntl(2)).
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
# Whoever flushes or compacts removes files while they are being linked: look again.
ATTEMPTS: Final = 12
PAUSE: Final = 0.03
VANISHED: Final = ("No such file", "Can't access")


class ReadOnlyDatabase:
    """A database opened read-only through a directory of links, as it was at that moment."""

    def __init__(self, database: Path, source: str) -> None:
        """Open; NotFoundError where no database is, UnreachableError where it may not be read, DecodeError
        where it is broken. `source` names it in these.
        """
        self._source = source
        self._directory: ScratchDirectory | None = None
        self.db = self._open(database)

    def close(self) -> None:
        """Close the database and remove the links. Safe to call twice."""
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
                # rocksdict raises bare Exception for everything RocksDB says.
                directory.cleanup()
                if attempt == ATTEMPTS or not any(words in str(error) for words in VANISHED):
                    raise rocksdb_error(error, self._source) from error
                time.sleep(PAUSE * attempt)
            else:
                self._directory = directory
                return opened
        raise AssertionError("unreachable")


def check_database(database: Path, source: str) -> None:
    """Raise NotFoundError where no database is, UnreachableError where we may not look."""
    try:
        if not (database / "CURRENT").is_file():
            raise NotFoundError("no RocksDB database there (no file CURRENT)", source=source)
        next(database.iterdir(), None)
    except OSError as error:
        raise UnreachableError(f"cannot be read: {error.strerror}", source=source) from error


def rocksdb_error(error: Exception, source: str) -> DecodeError | UnreachableError:
    """Return what RocksDB said as our error, in one line that does not name our links to its files."""
    text = without_scratch(" ".join(str(error).split()))
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return UnreachableError(f"cannot be read: {text}", source=source)
    return DecodeError(f"RocksDB: {text}", source=source)


def _open_linked(database: Path, linked: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict

    # In this order: logs that the MANIFEST needs are linked before it is copied, or the newest are cut off
    # as a whole; a log that went before the MANIFEST that names its table would be missed in the middle.
    # Tables that the MANIFEST names are there when they are linked, or vanished since, which is noticed.
    _link(database, LOGS, linked)
    for file in database.iterdir():
        if file.name.startswith(COPIED):
            shutil.copyfile(file, linked / file.name)
    _link(database, TABLES, linked)
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    # Whoever was killed leaves a write-ahead log, which is read with the rest.
    access = AccessType.read_only(error_if_log_file_exist=False)
    return Rdict(str(linked), options, access_type=access)


def _link(database: Path, suffixes: tuple[str, ...], linked: Path) -> None:
    for file in database.iterdir():
        # RocksDB would wait forever for the other end of a pipe.
        if file.suffix in suffixes and file.is_file():
            (linked / file.name).symlink_to(file.absolute())
