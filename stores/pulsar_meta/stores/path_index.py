"""An index from paths to the offsets of their lines in a file, in memory if small and on disk if large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.snapshot_lines import by_path

if TYPE_CHECKING:
    import sqlite3

# The most memory that an index uses, in KiB.
CACHE: Final = 32 << 10
_MADE: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "CREATE TABLE lines (path BLOB PRIMARY KEY, start INTEGER NOT NULL) WITHOUT ROWID",
    "BEGIN",
)


class PathIndex:
    """Paths in code point order, each with the byte offset of its line.

    Every method raises UnreachableError if the disk for temporary files is full or fails.
    """

    def __init__(self, source: str, cache: int = CACHE) -> None:
        """Create an empty index that uses up to `cache` KiB of memory; errors name `source`."""
        import sqlite3

        self._source, self._failure = source, sqlite3.OperationalError
        # With an empty name, SQLite creates an unnamed file when it needs one, and the process's end removes
        # it. Different threads may use the connection, one at a time.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        for statement in (f"PRAGMA cache_size = -{cache}", *_MADE):
            self._database.execute(statement)

    def add(self, path: str, start: int) -> None:
        """Add a path. Raises DecodeError if the index has it already."""
        added = self._run("INSERT OR IGNORE INTO lines VALUES (?, ?)", by_path(path), start)
        if not added.rowcount:
            raise DecodeError(f"{path} occurs twice")

    def start_of(self, path: str) -> int | None:
        """Return the offset of the line of `path`, or None if the index doesn't have it."""
        row = self._run("SELECT start FROM lines WHERE path = ?", by_path(path)).fetchone()
        return None if row is None else int(row[0])

    def first_from(self, path: str) -> str | None:
        """Return the first path that is `path` or sorts after it, or None if there is none."""
        row = self._run(
            "SELECT path FROM lines WHERE path >= ? ORDER BY path LIMIT 1", by_path(path)
        ).fetchone()
        return None if row is None else bytes(row[0]).decode("utf-8", "surrogatepass")

    def first_after(self, path: str) -> str | None:
        """Return the first path that sorts after everything below `path`, or None if there is none."""
        # "0" sorts directly after the slash.
        return self.first_from(f"{path}0")

    def close(self) -> None:
        """Discard the index."""
        self._database.close()

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except self._failure as error:
            problem = f"cannot store its index in temporary files: {error}"
            raise UnreachableError(problem, source=self._source) from error
