"""Reading a RocksDB database without leaving a trace in its directory, also while a broker writes it.

RocksDB's Python binding writes files beside the ones it reads, even when it only reads. So it is given a
temporary directory instead, in which the big files are symbolic links to the database's own and the small
ones (CURRENT, MANIFEST, OPTIONS) are copies. LOCK is never opened: closing it would let go of a lock that
this process holds on it (fcntl(2)).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError

if TYPE_CHECKING:
    from rocksdict import Rdict

LOGS: Final = (".log",)
TABLES: Final = (".sst", ".blob", ".ldb")
COPIED: Final = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")
# A broker that flushes or compacts removes files while they are being linked: look again.
ATTEMPTS: Final = 12
PAUSE: Final = 0.03
VANISHED: Final = ("No such file", "Can't access")


class Shadow:
    """A database opened read-only through a directory of links, as it was at that moment."""

    def __init__(self, database: Path, url: str) -> None:
        """Open; NotFoundError where no database is, DecodeError where it is broken."""
        self._url = url
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self.db = self._open(database)

    def close(self) -> None:
        """Close the database and remove the links. Safe to call twice."""
        if self._directory is not None:
            self.db.close()
            self._directory.cleanup()
            self._directory = None

    def _open(self, database: Path) -> Rdict:
        check_database(database, self._url)
        for attempt in range(1, ATTEMPTS + 1):
            directory = tempfile.TemporaryDirectory(prefix="pulsar-meta-")
            try:
                opened = _open_linked(database, Path(directory.name))
            except Exception as error:
                # rocksdict raises bare Exception for everything RocksDB says.
                directory.cleanup()
                if attempt == ATTEMPTS or not any(words in str(error) for words in VANISHED):
                    raise _told(error, self._url) from error
                time.sleep(PAUSE * attempt)
            else:
                self._directory = directory
                return opened
        raise AssertionError("unreachable")


def check_database(database: Path, url: str) -> None:
    """Raise NotFoundError where no database is, UnreachableError where we may not look."""
    try:
        if not (database / "CURRENT").is_file():
            raise NotFoundError("no RocksDB database there (no file CURRENT)", source=url)
        next(database.iterdir(), None)
    except OSError as error:
        raise UnreachableError(f"cannot be read: {error.strerror}", source=url) from error


def _open_linked(database: Path, shadow: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict

    # In this order: logs that the MANIFEST needs are linked before it is copied, or the newest are cut off
    # as a whole; a log that went before the MANIFEST that names its table would be missed in the middle.
    # Tables that the MANIFEST names are there when they are linked, or vanished since, which is noticed.
    _link(database, LOGS, shadow)
    for file in database.iterdir():
        if file.name.startswith(COPIED):
            shutil.copyfile(file, shadow / file.name)
    _link(database, TABLES, shadow)
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    return Rdict(str(shadow), options, access_type=AccessType.read_only())


def _link(database: Path, suffixes: tuple[str, ...], shadow: Path) -> None:
    for file in database.iterdir():
        if file.suffix in suffixes:
            (shadow / file.name).symlink_to(file)


def _told(error: Exception, url: str) -> DecodeError | UnreachableError:
    text = " ".join(str(error).split())
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return UnreachableError(f"cannot be read: {text}", source=url)
    return DecodeError(f"RocksDB: {text}", source=url)
