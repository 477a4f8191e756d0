"""`snapshot:FILE[?partial]`: a store written as NDJSON, one value per line, plain or zstd; read-only.

A line is `{"path", "version", "value" (base64)}` and can have `created`, `modified` (ms) and `ephemeral`. A
header and a footer (`codecs.snapshot_lines`) can surround the lines. A file with a header and no footer is
truncated, which is an error unless the URL has `?partial`. Scans stream. If the footer records the order of
the values and its checksum matches, lookups use binary search; otherwise the store builds an index of line
offsets.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, cast

from pulsar_meta.access.files import open_regular
from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs import backends
from pulsar_meta.codecs.backends import crc32c, crc32c_of_file
from pulsar_meta.codecs.compression import LIMITS, MAX_UNPACKED, ZSTD_MAGIC, zstd_header
from pulsar_meta.codecs.errors import (
    DecodeError,
    LimitError,
    NotFoundError,
    UnreachableError,
    decoding,
)
from pulsar_meta.codecs.json_text import Document, read_json
from pulsar_meta.codecs.snapshot_lines import KEYS, Sums, check_footer, is_footer, is_header
from pulsar_meta.stores.base import ReadOnlyStore, Store, Versioned, split_prefix
from pulsar_meta.stores.snapshot_file import OrderedLines, PathIndex, ZstdFrames, ZstdStream

# A footer is a few hundred bytes long.
LONGEST_FOOTER: Final = 1 << 12
# The size of the read buffer, which holds a few lines.
AHEAD: Final = 1 << 13


def ordered_lines(file: BinaryIO, max_line: int) -> OrderedLines | None:
    """Return a binary search over the lines of a snapshot, which takes over `file`.

    Returns None, and leaves `file` open, if the footer doesn't record that the lines are sorted, or if the
    bytes of the file don't match the footer's checksum. Raises OSError.
    """
    packed = os.pread(file.fileno(), len(ZSTD_MAGIC), 0) == ZSTD_MAGIC
    footer = _footer_of(file, packed=packed)
    order, before = footer.get("order"), footer.get("bytes_before")
    if type(order) is not str or order not in KEYS or type(before) is not int:
        return None
    if crc32c_of_file(file, before) != footer.get("crc32c_before"):
        return None
    if not packed:
        return OrderedLines(file, before, order, max_line)
    try:
        frames = ZstdFrames(file, before, largest=2 * max_line)
    except DecodeError:
        return None
    unpacked = cast(BinaryIO, io.BufferedReader(frames, AHEAD))
    return OrderedLines(unpacked, frames.size, order, max_line)


def _footer_of(file: BinaryIO, *, packed: bool) -> Document:
    """Return the footer at the end of a file, which records its own offset, or {} if there is none."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - LONGEST_FOOTER)
    end = os.pread(file.fileno(), LONGEST_FOOTER, start)
    at = _before(end, len(end), packed=packed)
    while at >= 0:
        footer = _read_footer(end[at:], packed=packed)
        if footer.get("bytes_before") == start + at:
            return footer
        at = _before(end, at, packed=packed) if packed else -1
    return {}


def _before(end: bytes, at: int, *, packed: bool) -> int:
    """Return where a footer could begin before an offset: a zstd frame, or the last line."""
    return end.rfind(ZSTD_MAGIC, 0, at) if packed else end.rfind(b"\n", 0, at - 1) + 1


def _read_footer(data: bytes, *, packed: bool) -> Document:
    try:
        line = _unpacked(data) if packed else data
        footer = json.loads(line) if line.startswith(b"{") and line.endswith(b"\n") else {}
    except (DecodeError, ValueError, RecursionError):
        return {}
    return footer if is_footer(footer) else {}


def _unpacked(frame: bytes) -> bytes:
    library = backends.zstd()
    try:
        if (zstd_header(frame).content_size or 0) > LONGEST_FOOTER:
            return b""
        return library.decompress(frame, LONGEST_FOOTER)
    except library.error as error:
        raise DecodeError(f"not zstd: {error}") from error


# Reading a line takes several times its size in memory, because it exists as bytes, text and a value.
MAX_LINE = 64 << 20
# The number of binary searches that cost as much as indexing one byte. Indexing 300 MB takes five seconds,
# and one search takes 0.2 ms.
SEARCHES_PER_BYTE: Final = 1 / 12_000
FEW_SEARCHES: Final = 1000

# `raw_decode` is faster than `json.loads`, which guesses the encoding and strips whitespace.
_decode_json = json.JSONDecoder().raw_decode


class SnapshotStore(ReadOnlyStore):
    """A snapshot file as a store. DecodeErrors name the line that is invalid."""

    has_consistent_scans = True
    read_only = "a snapshot is read-only; write to the store that it was taken from"

    def __init__(self, url: str, *, read_only: bool = True, max_line: int = MAX_LINE) -> None:
        """Open a file whose lines have at most `max_line` bytes. Raises NotFoundError if it doesn't exist.

        Raises GuardError if it is opened for writing.
        """
        self.url = url
        self._path, self._partial = _file_of(url)
        if not read_only:
            self.refuse()
        if not self._path.exists():
            raise NotFoundError("no such file", source=url)
        self._max_line = max_line
        self._unpacked: BinaryIO | None = None
        self._paths: PathIndex | OrderedLines | None = None
        self._ordered: OrderedLines | None = None
        self._order_known = False
        self._footer: Document = {}

    @property
    def origin(self) -> Document:
        """The header, and after a complete read also the footer; empty if the file has no header."""
        with self._open() as file, self._lines(file) as lines:
            _, line = next(lines, (0, b""))
            header = None if not line or _usual_value(line) else self._header_or_footer(line, 1)
        return {} if header is None else {**header, **self._footer}

    @property
    def is_indexed(self) -> bool:
        """Whether the values are known to be sorted."""
        return self._in_order() is not None

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Check whether the values are sorted, and build the index if they are not."""
        self._index(advance)

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        with self._searching():
            offset = self._index().start_of(path)
            if offset is None or self._unpacked is None:
                raise NotFoundError(f"nothing at {path}", source=self.url)
            self._unpacked.seek(offset)
            return self._value(self._parse(self._unpacked.readline(), path), path)

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`."""
        _, below = split_prefix(path)
        names = []
        with self._searching():
            paths = self._index()
            path_below = paths.first_from(below)
            while path_below is not None and path_below.startswith(below):
                name, slash, _ = path_below[len(below) :].partition("/")
                names.append(name)
                # Skip everything below this child.
                path_below = paths.first_after(below + name) if slash else paths.first_from(f"{path_below}\0")
        return sorted(set(names))

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix` in the file's order.

        Reads the complete file as a stream, unless the values are sorted and `prefix` is not the root.
        """
        bare, below = split_prefix(prefix)
        ordered = self._in_order() if bare != below else None
        if ordered is None:
            return self._stream(bare, below, after)
        return self._search(ordered, bare, below, after)

    def _search(self, ordered: OrderedLines, bare: str, below: str, after: str | None) -> Iterator[Versioned]:
        """Yield the values at and below a path, which is located by binary search."""
        with self._searching():
            if after is None:
                yield from (own for own in self.read_many([bare]) if own is not None)
            elif ordered.start_of(after) is None:
                raise _cannot_resume(after, self.url)
            for at, line in ordered.lines_from(below if after in (None, bare) else str(after)):
                where = f"the line at byte {at}"
                value = _usual_value(line) or self._value(self._parse(line, where), where)
                if value.path != after and not value.path.startswith(below):
                    return
                if value.path != after:
                    yield value

    def _stream(self, bare: str, below: str, after: str | None) -> Iterator[Versioned]:
        ends, number = _Ends(), 0
        complete = bare == below and after is None and not self._partial
        # The checksum of a sorted file was verified already.
        sums = Sums() if complete and self._in_order() is None else None
        with self._open() as file, self._lines(file) as lines:
            for number, line in lines:
                value = _usual_value(line) or self._careful_value(line, number, ends)
                if after is not None:
                    # Skip everything up to and including that path.
                    after = None if value is not None and value.path == after else after
                elif value is not None and (value.path.startswith(below) or value.path == bare):
                    if sums is not None:
                        sums.add(value.path, value.value, ephemeral=value.ephemeral)
                    yield value
        self._finish(ends, number, sums)
        if after is not None:
            raise _cannot_resume(after, self.url)

    def next_sequence(self, parent: str) -> int | None:
        """Return the counter of `parent` that the header records, or None if it records none."""
        counters = self.origin.get("counters")
        number = counters.get(parent) if isinstance(counters, dict) else None
        return number if type(number) is int else None

    def close(self) -> None:
        """Close the file and its index."""
        for opened in (self._unpacked, self._paths, self._ordered):
            if opened is not None:
                opened.close()
        self._unpacked, self._paths, self._ordered, self._order_known = None, None, None, False

    def _open(self) -> BinaryIO:
        try:
            file = open_regular(self._path)
            magic = file.read(len(ZSTD_MAGIC))
            file.seek(0)
        except OSError as error:
            raise UnreachableError(f"cannot read the file: {error.strerror}", source=self.url) from error
        return (
            io.BufferedReader(ZstdStream(file, partial=self._partial), 1 << 18)
            if magic == ZSTD_MAGIC
            else file
        )

    @contextmanager
    def _searching(self) -> Iterator[None]:
        """Add the file's name to errors that occur during a search."""
        try:
            with decoding(self.url):
                yield
        except OSError as error:
            raise UnreachableError(f"cannot read the file: {error.strerror}", source=self.url) from error

    @contextmanager
    def _lines(self, file: BinaryIO) -> Iterator[Iterator[tuple[int, bytes]]]:
        """Provide (number, line) pairs; errors while reading a line name its number."""
        numbers = count(1)
        try:
            # A generator would be slower, and this loop determines the speed of scans.
            yield zip(numbers, iter(partial(file.readline, self._max_line), b""), strict=False)
        except OSError as error:
            raise UnreachableError(f"cannot read the file: {error.strerror}", source=self.url) from error
        except DecodeError as error:
            if error.source is not None:
                raise
            if self._partial:
                return
            raise error.within(self.url, what=f"line {next(numbers) - 1}") from error

    def _careful_value(self, line: bytes, number: int, ends: _Ends) -> Versioned | None:
        """Return the value in a line, or None if it holds no value. Raises DecodeError if it is invalid."""
        if line.isspace() or (self._partial and not line.endswith(b"\n")):
            # A line without a newline is where the file was truncated.
            ends.take({})
            return None
        end = self._header_or_footer(line, number)
        if end is not None:
            ends.take(end, crc32c(line))
            return None
        where = f"line {number}"
        return self._value(self._parse(line, where), where)

    def _header_or_footer(self, line: bytes, number: int) -> Document | None:
        """Return the header or footer in a line, or None for every other line."""
        if b'"path"' in line or not line.startswith(b"{"):
            return None
        with decoding(self.url, what=f"line {number}"):
            record = read_json(line)
            return record if is_header(record) or is_footer(record) else None

    def _finish(self, ends: _Ends, lines: int, sums: Sums | None = None) -> None:
        """Check the end of the file after a complete read.

        Raises DecodeError if the file has a header but no footer, or if the footer doesn't match.
        """
        values = lines - ends.without_value
        self._footer = ends.footer
        if self._partial:
            return
        with decoding(self.url):
            if ends.header and not ends.footer:
                raise DecodeError(
                    f"truncated after {values} values: no footer; add ?partial to read them anyway"
                )
            if ends.footer:
                check_footer(ends.footer, values, sums if "sum" in ends.footer else None)
                if ends.footer.get("crc32c_header", ends.header_checksum) != ends.header_checksum:
                    raise DecodeError("the header does not match its checksum, so it was changed")

    def _parse(self, line: bytes, where: str) -> dict[str, object]:
        if len(line) >= self._max_line:
            limit = f"more than {self._max_line} bytes, which is the limit (decode: --max-size)"
            raise DecodeError(f"{where}: {limit}", source=self.url)
        with decoding(self.url, what=where):
            record = read_json(line)
        if not isinstance(record, dict) or not str(record.get("path", "")).startswith("/"):
            raise DecodeError(f"{where}: expected an object with path, version and value", source=self.url)
        return record

    def _value(self, record: dict[str, object], where: str) -> Versioned:
        version, value = record.get("version"), record.get("value")
        times = [record.get("created"), record.get("modified")]
        if type(version) is not int or not isinstance(value, str) or not all(map(_is_time, times)):
            raise DecodeError(f"{where}: expected path, version (a number) and value", source=self.url)
        try:
            data = a2b_base64(value, strict_mode=True)
        except (Base64Error, ValueError) as error:
            raise DecodeError(f"{where}: the value is not base64: {error}", source=self.url) from error
        created, modified = cast(list[int | None], times)
        ephemeral = record.get("ephemeral") is True
        return Versioned(str(record["path"]), data, version, created, modified, ephemeral)

    def _index(self, advance: Callable[[int], None] = lambda count: None) -> PathIndex | OrderedLines:
        """Return the lookup of line offsets; their file is `_unpacked`."""
        ordered = self._in_order()
        if ordered is not None and ordered.searches < FEW_SEARCHES + ordered.size * SEARCHES_PER_BYTE:
            self._unpacked, self._paths = ordered.file, ordered
        elif self._paths is None or self._paths is ordered:
            self._unpacked, self._paths = self._indexed(advance)
        return self._paths

    def _in_order(self) -> OrderedLines | None:
        """Return a binary search over the lines, or None if they are not known to be sorted."""
        if not self._order_known and not self._partial:
            with ExitStack() as unfinished, self._searching():
                file = unfinished.enter_context(open_regular(self._path))
                self._ordered = ordered_lines(file, self._max_line)
                if self._ordered is not None:
                    unfinished.pop_all()
        self._order_known = True
        return self._ordered

    def _indexed(self, advance: Callable[[int], None]) -> tuple[BinaryIO, PathIndex]:
        with ExitStack() as unfinished:
            file = unfinished.enter_context(self._seekable())
            paths = PathIndex(self.url)
            unfinished.callback(paths.close)
            self._fill(paths, file, advance)
            unfinished.pop_all()
        return file, paths

    def _fill(self, paths: PathIndex, file: BinaryIO, advance: Callable[[int], None]) -> None:
        offset, number, ends = 0, 0, _Ends()
        with self._lines(file) as lines:
            for number, line in lines:
                value = _usual_value(line) or self._careful_value(line, number, ends)
                if value is not None:
                    with decoding(self.url, what=f"line {number}"):
                        paths.add(value.path, offset)
                    advance(1)
                offset += len(line)
        self._finish(ends, number)

    def _seekable(self) -> BinaryIO:
        file = self._open()
        if file.seekable():
            return file
        with ExitStack() as unfinished, file, self._lines(file) as lines:
            # The copy exists until `close`. It has no name, so a killed process leaves nothing behind.
            spool = cast(BinaryIO, unfinished.enter_context(tempfile.TemporaryFile()))
            ends = _Ends()
            with decoding(self.url):
                for _, line in lines:
                    # Otherwise the copy of a small file could fill the disk with empty lines.
                    if line[:1].isspace() and line.isspace():
                        ends.take({})
                    spool.write(line)
            spool.seek(0)
            unfinished.pop_all()
        return spool


def check_sums(store: Store, sums: Sums) -> None:
    """Raise DecodeError if a completely scanned copy doesn't match the checksums in its footer."""
    footer = store.origin
    if "sum" in footer:
        with decoding(store.url):
            check_footer(footer, sums.values, sums)


class _Ends:
    """The header and footer of a file, and how many lines without a value it has."""

    def __init__(self) -> None:
        self.header: Document = {}
        self.footer: Document = {}
        self.header_checksum: int | None = None
        self.without_value = 0

    def take(self, line: Document, checksum: int | None = None) -> None:
        """Record a line without a value: the header, the footer or an empty line."""
        self.without_value += 1
        if self.without_value > LIMITS.max_unpacked >> 9:
            # A few KB of zstd contain billions of empty lines.
            lines = f"more than {self.without_value - 1} lines without a value"
            raise LimitError(f"{lines} (raise the limit with {MAX_UNPACKED})")
        if is_header(line):
            self.header, self.header_checksum = line, checksum
        elif line:
            self.footer = line


def _file_of(url: str) -> tuple[Path, bool]:
    """Return the file that a URL names, and whether it has `?partial`."""
    name = split_scheme(url)[1]
    bare = name.removesuffix("?partial")
    return Path(bare), bare != name


def _usual_value(line: bytes) -> Versioned | None:
    """Parse a line in the usual form, quickly. Returns None for any other line."""
    try:
        text = line.decode()
        record, end = _decode_json(text)
        path, version = record["path"], record["version"]
        value = a2b_base64(record["value"], strict_mode=True)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if type(path) is not str or path[:1] != "/" or type(version) is not int or text[end:] != "\n":
        return None
    if len(record) == 3:
        return Versioned(path, value, version)
    created, modified = record.get("created"), record.get("modified")
    if not (_is_time(created) and _is_time(modified)):
        return None
    return Versioned(path, value, version, created, modified, record.get("ephemeral") is True)


def _cannot_resume(after: str, url: str) -> NotFoundError:
    return NotFoundError(f"cannot resume the scan: nothing at {after}", source=url)


def _is_time(value: object) -> bool:
    return value is None or type(value) is int
