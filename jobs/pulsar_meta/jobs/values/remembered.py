"""Values by path, on disk: for comparing stores that are larger than the memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self

from pulsar_meta.access.files import ScratchDirectory
from pulsar_meta.stores.base import Versioned

_COLUMNS: Final = "path, value, version, created, modified, ephemeral"


class Remembered:
    """Values in a database of SQLite in the temporary directory (TMPDIR), until `close`.

    It takes as much room as they do. A path is there once: what comes later replaces it.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._directory = ScratchDirectory()
        self._db = sqlite3.connect(self._directory.path / "values", isolation_level=None)
        # Nobody reads it after a crash.
        self._db.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536"
        )
        self._db.execute(
            "CREATE TABLE held (path BLOB PRIMARY KEY, value BLOB, version INTEGER, created INTEGER,"
            " modified INTEGER, ephemeral INTEGER) WITHOUT ROWID"
        )
        # One transaction for good: else each value would be one.
        self._db.execute("BEGIN")

    def add(self, values: Iterable[Versioned]) -> None:
        """Remember these, many in one go."""
        rows = ((_key(held.path), *held[1:]) for held in values)
        self._db.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?)", rows)

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self._db.execute("SELECT count(*) FROM held").fetchone()[0])

    def __contains__(self, path: str) -> bool:
        """Return whether there is a value at `path`."""
        return self._db.execute("SELECT 1 FROM held WHERE path = ?", (_key(path),)).fetchone() is not None

    def take(self, path: str) -> Versioned | None:
        """Return the value at `path` and forget it; None where there is none."""
        found = self._db.execute(
            f"DELETE FROM held WHERE path = ? RETURNING {_COLUMNS}", (_key(path),)
        ).fetchone()
        return None if found is None else _versioned(found)

    def __iter__(self) -> Iterator[Versioned]:
        """Yield what is remembered, by the bytes of the paths."""
        return map(_versioned, self._db.execute(f"SELECT {_COLUMNS} FROM held ORDER BY path"))

    def close(self) -> None:
        """Remove the database. Safe to call twice."""
        self._db.close()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _key(path: str) -> bytes:
    return path.encode("utf-8", "surrogatepass")


def _versioned(row: tuple[bytes, bytes, int, int | None, int | None, int]) -> Versioned:
    path, value, version, created, modified, ephemeral = row
    return Versioned(
        path.decode("utf-8", "surrogatepass"), value, version, created, modified, bool(ephemeral)
    )
