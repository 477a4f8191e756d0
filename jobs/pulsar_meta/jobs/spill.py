"""Collections that may be larger than memory. Their contents are in temporary files (TMPDIR)."""

from __future__ import annotations

import heapq
import os
import pickle
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from types import TracebackType
from typing import IO, Any, Final, Generic, Self, TypeVar

from pulsar_meta.access.files import ScratchDirectory
from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.stores.base import Versioned

# A spool has this many items in memory, counted by their weights.
SPOOL_BLOCK: Final = 2000
# The number of lines that are sorted at once, and the number that are read back at once from each run.
RUN: Final = 1 << 16
RUN_BLOCK: Final = 1 << 9
HASH_BYTES: Final = 12
Item = TypeVar("Item")


class Dedup:
    """Recognises strings that were seen before, using 12 bytes of memory per string."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def is_new(self, text: str) -> bool:
        """Add a string. Returns True the first time it is seen."""
        before = len(self._hashes)
        self._hashes.add(_hash(text))
        return len(self._hashes) > before

    def __contains__(self, text: str) -> bool:
        return _hash(text) in self._hashes


def _hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class _Blocks:
    """Pickled lists in a temporary file, which is created when the first list is written."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def write(self, items: Sequence[Any]) -> tuple[int, int]:
        """Append a list. Returns its (offset, length) in the file. Raises UnreachableError."""
        data = pickle.dumps(items, pickle.HIGHEST_PROTOCOL)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see `close`
            place = self._file.tell(), len(data)
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            why = f"cannot write a temporary file: {error.strerror}; set TMPDIR to another directory"
            raise UnreachableError(why, source=tempfile.gettempdir()) from error
        return place

    def read(self, place: tuple[int, int]) -> Any:
        assert self._file is not None
        return pickle.loads(os.pread(self._file.fileno(), place[1], place[0]))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Spool(Generic[Item]):
    """Items that are collected once and can be iterated several times, in the same order."""

    def __init__(self, items: Iterable[Item], weight: Callable[[Item], int] = lambda item: 1) -> None:
        """Collect all items. `weight` is the share of an item in SPOOL_BLOCK. Raises UnreachableError."""
        self._blocks, self._places = _Blocks(), list[tuple[int, int]]()
        self._last: list[Item] = []
        try:
            self._collect(items, weight)
        except BaseException:
            self._blocks.close()
            raise

    def _collect(self, items: Iterable[Item], weight: Callable[[Item], int]) -> None:
        total = 0
        for item in items:
            self._last.append(item)
            total += weight(item)
            if total >= SPOOL_BLOCK:
                self._places.append(self._blocks.write(self._last))
                self._last, total = [], 0

    def __iter__(self) -> Iterator[Item]:
        """Yield the items. Several iterators can be used at the same time."""
        for place in self._places:
            yield from self._blocks.read(place)
        yield from self._last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.close()


def sorted_lines(lines: Iterable[str], key: Callable[[str], str]) -> Iterator[str]:
    """Sort lines by `key`, stably. Up to RUN lines are sorted in memory. Raises UnreachableError."""
    rest = iter(lines)
    run = sorted(islice(rest, RUN), key=key)
    if len(run) < RUN:
        yield from run
        return
    blocks, runs = _Blocks(), list[list[tuple[int, int]]]()
    try:
        while run:
            runs.append([blocks.write(run[at : at + RUN_BLOCK]) for at in range(0, len(run), RUN_BLOCK)])
            run = sorted(islice(rest, RUN), key=key)
        yield from heapq.merge(*(_lines(blocks, places) for places in runs), key=key)
    finally:
        blocks.close()


def _lines(blocks: _Blocks, places: Iterable[tuple[int, int]]) -> Iterator[str]:
    for place in places:
        yield from blocks.read(place)


_COLUMNS: Final = "path, value, version, created, modified, ephemeral"


class DiskMap:
    """Values by path, in an SQLite database that is removed by `close`. Later values replace earlier ones."""

    def __init__(self) -> None:
        """Create an empty database."""
        self._directory = ScratchDirectory()
        self._db = sqlite3.connect(self._directory.path / "values", isolation_level=None)
        # The database is never read after a crash.
        self._db.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536"
        )
        self._db.execute(
            "CREATE TABLE stored (path BLOB PRIMARY KEY, value BLOB, version INTEGER, created INTEGER,"
            " modified INTEGER, ephemeral INTEGER) WITHOUT ROWID"
        )
        # A single transaction, because a transaction per value would be slow.
        self._db.execute("BEGIN")

    def add(self, values: Iterable[Versioned]) -> None:
        """Add values."""
        rows = ((_key(value.path), *value[1:]) for value in values)
        self._db.executemany("INSERT OR REPLACE INTO stored VALUES (?, ?, ?, ?, ?, ?)", rows)

    def __len__(self) -> int:
        """The number of values."""
        return int(self._db.execute("SELECT count(*) FROM stored").fetchone()[0])

    def __contains__(self, path: str) -> bool:
        """True if there is a value at `path`."""
        return self._db.execute("SELECT 1 FROM stored WHERE path = ?", (_key(path),)).fetchone() is not None

    def pop(self, path: str) -> Versioned | None:
        """Remove the value at `path` and return it; None if there is none."""
        row = self._db.execute(
            f"DELETE FROM stored WHERE path = ? RETURNING {_COLUMNS}", (_key(path),)
        ).fetchone()
        return None if row is None else _versioned(row)

    def __iter__(self) -> Iterator[Versioned]:
        """Yield the values, ordered by the bytes of their paths."""
        return map(_versioned, self._db.execute(f"SELECT {_COLUMNS} FROM stored ORDER BY path"))

    def close(self) -> None:
        """Remove the database. Can be called twice."""
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
