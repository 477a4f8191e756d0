"""The file of a snapshot: the lines of paths, and zstd.

Lines are found by binary search if they are sorted, else with an index: in memory if it is small, and in a
temporary file if it is large. Zstd files are read as a stream that notices a truncated file, or with random
access over sized frames.

Source: RFC 8878, 3.1 (frames, block headers).
"""

from __future__ import annotations

import io
import json
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.compression import zstd_header
from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.json_text import read_json
from pulsar_meta.codecs.snapshot_lines import KEYS, SUBTREE_ENDS, Order, by_path

if TYPE_CHECKING:
    import sqlite3

    from _typeshed import WriteableBuffer

# The most memory that an index uses, in KiB.
CACHE: Final = 32 << 10
_SETUP: Final = (
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
        for statement in (f"PRAGMA cache_size = -{cache}", *_SETUP):
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


# Within this many bytes of the target, lines are read one after the other.
NEAR: Final = 1 << 10
# The number of probed lines to remember, because every search starts with the same probes.
REMEMBERED: Final = 1 << 13
# The beginning of a line that `codecs.snapshot_lines` wrote, and a size that contains most paths.
_BEGINNING: Final = b'{"path": "'
_HEAD: Final = 512

_decode_json = json.JSONDecoder().raw_decode


class OrderedLines:
    """The lines of `file` up to the offset `end`, sorted by path in `order`.

    Lines without a path come first. `searches` counts the lookups that were not close to the previous one.
    Every method raises DecodeError if a line has `max_line` bytes or more, or isn't a snapshot line.
    """

    def __init__(self, file: BinaryIO, end: int, order: Order, max_line: int) -> None:
        """Search in a seekable file, which `close` will close."""
        self.file, self.size, self._max_line = file, end, max_line
        self._key, self._after = KEYS[order], SUBTREE_ENDS[order]
        # The result of the previous lookup, because the next one is usually nearby.
        self._last_offset, self._last_key = 0, b""
        self._lines_after: dict[int, tuple[bytes | None, int]] = {}
        self.searches = 0

    def start_of(self, path: str) -> int | None:
        """Return the offset of the line of `path`, or None if there is no such line."""
        return self._last_offset if self._first(self._key(path)) == path else None

    def first_from(self, path: str) -> str | None:
        """Return the first path that is `path` or sorts after it, or None if there is none."""
        return self._first(self._key(path))

    def first_after(self, path: str) -> str | None:
        """Return the first path that sorts after everything below `path`, or None if there is none."""
        return self._first(self._key(path) + self._after)

    def lines_from(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, line) for `path` and everything after it, reading each line on demand."""
        self._first(self._key(path))
        at = self._last_offset
        while at < self.size:
            # Another lookup may have moved the file position since the last line.
            self.file.seek(at)
            line = self._readline()
            yield at, line
            at += len(line)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _first(self, wanted: bytes) -> str | None:
        """Return the first path whose key is at least `wanted`, and remember the offset of its line."""
        low = self._last_offset if self._last_key <= wanted else 0
        low, high = self._around(wanted, low)
        self.searches += high - low > NEAR
        while high - low > NEAR:
            middle = (low + high) // 2
            key, after = self._cached_line_after(middle)
            if key is None or key >= wanted:
                high = middle
            else:
                low = after
        return self._walk(wanted, low)

    def _around(self, wanted: bytes, low: int) -> tuple[int, int]:
        """Return two offsets around the end of the line before `wanted`, starting near `low`."""
        step, look = NEAR, self._line_after
        while low + step < self.size:
            key, after = look(low + step)
            if key is None or key >= wanted:
                return low, low + step
            low, step, look = after, step * 4, self._cached_line_after
        return low, self.size

    def _walk(self, wanted: bytes, at: int) -> str | None:
        self.file.seek(at)
        while at < self.size:
            line = self._readline()
            path = _path_in(line)
            if path is not None and self._key(path) >= wanted:
                self._last_offset, self._last_key = at, self._key(path)
                return path
            at += len(line)
        self._last_offset, self._last_key = self.size, wanted
        return None

    def _cached_line_after(self, offset: int) -> tuple[bytes | None, int]:
        """Do the same as `_line_after`, with a cache."""
        line = self._lines_after.get(offset)
        if line is None:
            if len(self._lines_after) == REMEMBERED:
                self._lines_after.clear()
            line = self._lines_after[offset] = self._line_after(offset)
        return line

    def _line_after(self, offset: int) -> tuple[bytes | None, int]:
        """Return the key of the first line that begins after `offset`, and where that line ends.

        The key is None at the end of the file, or if the line has no path.
        """
        self.file.seek(offset)
        at = offset + len(self._readline())
        if at >= self.size:
            return None, self.size
        line = self._readline()
        path = _path_in(line)
        return None if path is None else self._key(path), at + len(line)

    def _readline(self) -> bytes:
        line = self.file.readline(self._max_line)
        if len(line) == self._max_line:
            limit = f"more than {self._max_line} bytes, which is the limit (decode: --max-size)"
            raise DecodeError(f"a line has {limit}", offset=self.file.tell() - len(line))
        return line


def _path_in(line: bytes) -> str | None:
    """Return the path in a line, or None if it has no path, such as the header."""
    if line.startswith(_BEGINNING):
        with suppress(ValueError):
            return str(_decode_json(line[len(_BEGINNING) - 1 : _HEAD].decode())[0])
    record = read_json(line)
    path = record.get("path") if isinstance(record, dict) else None
    return path if isinstance(path, str) else None


# How many uncompressed frames to keep in memory.
AT_HAND: Final = 4
_LONGEST_HEADER: Final = 18
_RLE: Final = 1


class ZstdFrames(io.RawIOBase):
    """The uncompressed bytes of the first `end` bytes of `file`, with random access."""

    def __init__(self, file: BinaryIO, end: int, largest: int) -> None:
        """Locate the frames.

        Raises DecodeError if a frame doesn't record its uncompressed size, or has more than `largest` bytes.
        """
        self._file, self._at = file, 0
        # For each frame, its range in the file, and its size and its offset in the uncompressed data.
        self._places, self._starts, self.size = list[tuple[int, int, int]](), list[int](), 0
        self._ready = OrderedDict[int, bytes]()
        at = 0
        while at < end:
            header = zstd_header(self._pread(at, _LONGEST_HEADER))
            if header.content_size is None or header.content_size > largest:
                raise DecodeError("a frame is too large, or does not record its size", offset=at)
            after = self._end_of(at + header.size) + 4 * header.has_checksum
            self._places.append((at, after, header.content_size))
            self._starts.append(self.size)
            self.size += header.content_size
            at = after

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in the uncompressed data, and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from one frame, and return the number of bytes, which is 0 at the end."""
        if self._at >= self.size:
            return 0
        number = bisect_right(self._starts, self._at) - 1
        data, start = self._frame(number), self._at - self._starts[number]
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(data) - start)
        target[:size] = memoryview(data)[start : start + size]
        self._at += size
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _frame(self, number: int) -> bytes:
        data = self._ready.get(number)
        if data is None:
            (at, after, size), library = self._places[number], backends.zstd()
            try:
                data = self._ready[number] = library.decompress(self._pread(at, after - at), size)
            except library.error as error:
                raise DecodeError(f"not zstd: {error}", offset=at) from error
            if len(self._ready) > AT_HAND:
                self._ready.popitem(last=False)
        self._ready.move_to_end(number)
        return data

    def _end_of(self, at: int) -> int:
        """Return the end of the blocks that begin at an offset."""
        last = False
        while not last:
            head = self._pread(at, 3)
            if len(head) < 3:
                raise DecodeError("the zstd file ends in the middle of a frame", offset=at)
            block = int.from_bytes(head, "little")
            last = bool(block & 1)
            at += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
        return at

    def _pread(self, at: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)


# A block of four bytes can expand to 128 KiB, so small pieces limit how much is uncompressed at once.
PIECE = 1 << 10


class ZstdStream(io.RawIOBase):
    """The uncompressed bytes of `file`. Reading raises DecodeError for invalid or truncated data."""

    def __init__(self, file: BinaryIO, *, partial: bool = False) -> None:
        """Read from the current position of `file`. With `partial`, a truncated frame is not an error."""
        self._file, self._partial = file, partial
        self._library = backends.zstd()
        self._frame = self._library.stream()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer`, and return the number of bytes, which is 0 at the end."""
        while not self._ready:
            piece = self._file.read(PIECE)
            if not piece:
                if not self._partial:
                    self._check_end()
                return 0
            self._ready = memoryview(self._unpack(piece))
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        # An empty slice would keep the complete buffer alive.
        target[:size], self._ready = self._ready[:size], self._ready[size:] or memoryview(b"")
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _unpack(self, piece: bytes) -> bytes:
        out = b""
        while piece:
            if self._frame.eof:
                self._frame = self._library.stream()
            try:
                out += self._frame.decompress(piece)
            except self._library.error as error:
                raise DecodeError(f"not zstd: {error}", offset=self._file.tell() - len(piece)) from error
            piece = self._frame.unused_data if self._frame.eof else b""
        return out

    def _check_end(self) -> None:
        if not self._frame.eof:
            raise DecodeError("the zstd file ends in the middle of a frame", offset=self._file.tell())
