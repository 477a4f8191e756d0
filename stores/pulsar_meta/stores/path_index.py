"""Where in a file the line of each path begins: kept in memory while that is little, else on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError

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
        added = self._run("INSERT OR IGNORE INTO lines VALUES (?, ?)", _key(path), start)
        if not added.rowcount:
            raise DecodeError(f"{path} for the second time")

    def start_of(self, path: str) -> int | None:
        """Return the offset of the line of `path`, None where there is none."""
        found = self._run("SELECT start FROM lines WHERE path = ?", _key(path)).fetchone()
        return None if found is None else int(found[0])

    def first_from(self, path: str) -> str | None:
        """Return the first path that is `path` or comes after it, None where all come before."""
        found = self._run(
            "SELECT path FROM lines WHERE path >= ? ORDER BY path LIMIT 1", _key(path)
        ).fetchone()
        return None if found is None else bytes(found[0]).decode("utf-8", "surrogatepass")

    def close(self) -> None:
        """Let go of all of it."""
        self._database.close()

    def _run(self, statement: str, *values: object) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except self._failure as error:
            problem = f"its index cannot be kept in temporary files: {error}"
            raise UnreachableError(problem, source=self._source) from error


def _key(path: str) -> bytes:
    # JSON may name half a surrogate pair; bytes of UTF-8 are in the order of the code points.
    return path.encode("utf-8", "surrogatepass")
