"""Where in a file the line of each path begins: kept in memory while that is little, else on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.snapshot_lines import by_path

if TYPE_CHECKING:
    import sqlite3

# What memory holds of an index at most, in KiB.
CACHE: Final = 32 << 10
_MADE: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "CREATE TABLE lines (path BLOB PRIMARY KEY, start INTEGER NOT NULL) WITHOUT ROWID",
    "BEGIN",
)


class PathIndex:
    """Paths in the order of their code points, each with the offset in bytes where its line begins.

    UnreachableError from any method where the disk for temporary files is full or fails.
    """

    def __init__(self, source: str, cache: int = CACHE) -> None:
        """Begin with no paths; `source` is what errors name, `cache` KiB are what memory holds."""
        import sqlite3

        self._source, self._failure = source, sqlite3.OperationalError
        # The empty name: a file that SQLite makes once it is needed, without a name, gone with the process.
        # One thread after the other may use it.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        for statement in (f"PRAGMA cache_size = -{cache}", *_MADE):
            self._database.execute(statement)

    def add(self, path: str, start: int) -> None:
        """Add a path; DecodeError where it is there."""
        added = self._run("INSERT OR IGNORE INTO lines VALUES (?, ?)", by_path(path), start)
        if not added.rowcount:
            raise DecodeError(f"{path} for the second time")

    def start_of(self, path: str) -> int | None:
        """Return the offset of the line of `path`, None where there is none."""
        found = self._run("SELECT start FROM lines WHERE path = ?", by_path(path)).fetchone()
        return None if found is None else int(found[0])

    def first_from(self, path: str) -> str | None:
        """Return the first path that is `path` or comes after it, None where all come before."""
        found = self._run(
            "SELECT path FROM lines WHERE path >= ? ORDER BY path LIMIT 1", by_path(path)
        ).fetchone()
        return None if found is None else bytes(found[0]).decode("utf-8", "surrogatepass")

    def first_behind(self, path: str) -> str | None:
        """Return the first path that comes after all below `path`, None where there is none."""
        # "0" comes right after the slash.
        return self.first_from(f"{path}0")

    def close(self) -> None:
        """Let go of all of it."""
        self._database.close()

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except self._failure as error:
            problem = f"its index cannot be kept in temporary files: {error}"
            raise UnreachableError(problem, source=self._source) from error
