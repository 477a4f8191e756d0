"""Reading a bookie's RocksDB without leaving a trace in its directory, also while the bookie writes it.

The Python binding writes files beside the ones it reads, even when it only reads. So it is given a
temporary directory: symbolic links to the tables and write-ahead logs, copies of the small files, and
no LOCK (closing a file on which this process holds a lock would let go of it, fcntl(2)).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError

if TYPE_CHECKING:
    from rocksdict import Rdict

LINKED: Final = (".sst", ".log", ".blob")
COPIED: Final = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")
# A bookie that flushes or compacts removes files while they are being linked: look again.
ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.1


class RocksdbShadow:
    """A RocksDB database as it was at the moment of opening."""

    def __init__(self, database: Path) -> None:
        """Open `database`; DecodeError where it is missing or broken."""
        self.path = database
        self._directory, self.db = self._open_patiently()

    def close(self) -> None:
        """Close the database and remove the links. Safe to call twice."""
        self.db.close()
        self._directory.cleanup()

    def _open_patiently(self) -> tuple[tempfile.TemporaryDirectory[str], Rdict]:
        for attempt in range(1, ATTEMPTS):
            try:
                return self._open()
            except DecodeError:
                time.sleep(PAUSE_SECONDS * attempt)
        return self._open()

    def _open(self) -> tuple[tempfile.TemporaryDirectory[str], Rdict]:
        directory = tempfile.TemporaryDirectory(prefix="pulsar-meta-")
        try:
            return directory, _open_links(self.path, Path(directory.name))
        except Exception as error:
            # The binding raises bare Exception for everything that RocksDB says.
            directory.cleanup()
            raise broken(self.path, error) from error


def broken(database: Path, error: Exception) -> DecodeError:
    """Return what RocksDB said as our error."""
    return DecodeError(f"RocksDB: {' '.join(str(error).split())}", source=str(database))


def _open_links(database: Path, shadow: Path) -> Rdict:
    from rocksdict import AccessType, Options, Rdict

    for file in sorted(database.iterdir()):
        if file.suffix in LINKED:
            (shadow / file.name).symlink_to(file.absolute())
        elif file.name.startswith(COPIED):
            shutil.copyfile(file, shadow / file.name)
    if not (shadow / "CURRENT").exists():
        raise FileNotFoundError("no file CURRENT")
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    # A bookie that was killed leaves a write-ahead log, which is read with the rest.
    return Rdict(str(shadow), options, access_type=AccessType.read_only(error_if_log_file_exist=False))
