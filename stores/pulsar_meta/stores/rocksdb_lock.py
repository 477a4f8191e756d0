"""Holding a RocksDB database, as RocksDB itself does: an fcntl lock on the file LOCK.

Such a lock belongs to the process and goes when any descriptor of the file is closed, so one process
must not take it twice, and nobody else in it may open LOCK.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from pulsar_meta.codecs.errors import GuardError, UnreachableError

_held: Final[set[Path]] = set()


class DatabaseLock:
    """The lock, from construction until `release`: as long as it is held, no broker lives on the database."""

    def __init__(self, database: Path, url: str) -> None:
        """Take the lock; GuardError where another process holds it, UnreachableError without permission."""
        self._database = database.resolve()
        if self._database in _held:
            raise GuardError("this process has the database open for writing already", source=url)
        try:
            self._file: int | None = os.open(self._database / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnreachableError(f"cannot be written: {error.strerror}", source=url) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise GuardError(
                "another process holds this database; stop the broker, then run this again", source=url
            ) from error
        _held.add(self._database)

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            _held.discard(self._database)
