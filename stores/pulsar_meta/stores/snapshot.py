"""`snapshot:FILE`: a store written down as NDJSON, one value a line, plain or zstd; read-only.

A line is `{"path", "version", "value" (base64)}` and may have `created`, `modified` (ms) and `ephemeral`.
Scanning streams; the first `read` or `children` makes an index of where each path's line begins.
"""

from __future__ import annotations

import io
import json
import tempfile
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from pulsar_meta.codecs.errors import DecodeError, GuardError, NotFoundError, UnreachableError
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.guarded import GuardedStore
from pulsar_meta.stores.paths import is_within, prefixed
from pulsar_meta.stores.url import split_scheme
from pulsar_meta.stores.zstd_stream import MAGIC, ZstdStream

MAX_LINE = 256 << 20


class SnapshotStore(GuardedStore):
    """A snapshot file as a store. DecodeError names the line that is not as it should be."""

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Open the file; NotFoundError where it is not there, GuardError for writing."""
        self.url = url
        self.writable = False
        self._path = Path(split_scheme(url)[1])
        if not read_only:
            raise GuardError("a snapshot is only read; `restore` puts it into a store", source=url)
        if not self._path.exists():
            raise NotFoundError("no such file", source=url)
        self._unpacked: BinaryIO | None = None
        self._offsets: dict[str, int] | None = None

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        offset = self._index().get(path)
        if offset is None or self._unpacked is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        self._unpacked.seek(offset)
        return self._value(self._parse(self._unpacked.readline(), path), path)

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""
        _, below = prefixed(path)
        size = len(below)
        return sorted({other[size:].split("/", 1)[0] for other in self._index() if other.startswith(below)})

    def scan(self, prefix: str = "/") -> Iterator[Versioned]:
        """Yield every value at and below `prefix` in the order of the file, which is read as a stream."""
        with self._open() as file:
            for number, line, _ in self._lines(file):
                record = self._parse(line, f"line {number}")
                if is_within(str(record["path"]), prefix):
                    yield self._value(record, f"line {number}")

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Refuse: GuardError."""
        self._refuse()

    def delete(self, path: str, expected: int) -> None:
        """Refuse: GuardError."""
        self._refuse()

    def close(self) -> None:
        """Close the file behind the index."""
        if self._unpacked is not None:
            self._unpacked.close()
        self._unpacked, self._offsets = None, None

    def _refuse(self) -> NoReturn:
        raise GuardError("a snapshot is only read", source=self.url)

    def _open(self) -> BinaryIO:
        try:
            file = self._path.open("rb")
            magic = file.read(len(MAGIC))
            file.seek(0)
        except OSError as error:
            raise UnreachableError(f"cannot be read: {error.strerror}", source=self.url) from error
        return io.BufferedReader(ZstdStream(file), 1 << 18) if magic == MAGIC else file

    def _lines(self, file: BinaryIO) -> Iterator[tuple[int, bytes, int]]:
        number, offset = 1, 0
        while line := self._line(file, number):
            if line.strip():
                yield number, line, offset
            number, offset = number + 1, offset + len(line)

    def _line(self, file: BinaryIO, number: int) -> bytes:
        try:
            line = file.readline(MAX_LINE)
        except OSError as error:
            raise UnreachableError(f"cannot be read: {error.strerror}", source=self.url) from error
        except DecodeError as error:
            raise DecodeError(f"line {number}: {error.message}", source=self.url) from error
        if len(line) >= MAX_LINE:
            raise DecodeError(f"line {number}: over {MAX_LINE} bytes", source=self.url)
        return line

    def _parse(self, line: bytes, where: str) -> dict[str, object]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DecodeError(f"{where}: not JSON: {error}", source=self.url) from error
        if not isinstance(record, dict) or not str(record.get("path", "")).startswith("/"):
            raise DecodeError(f"{where}: expected an object with path, version and value", source=self.url)
        return record

    def _value(self, record: dict[str, object], where: str) -> Versioned:
        version, value = record.get("version"), record.get("value")
        times = [record.get("created"), record.get("modified")]
        if type(version) is not int or not isinstance(value, str) or not all(map(_is_time, times)):
            raise DecodeError(f"{where}: expected path, version (a number) and value", source=self.url)
        try:
            data = b64decode(value, validate=True)
        except (Base64Error, ValueError) as error:
            raise DecodeError(f"{where}: value is not base64: {error}", source=self.url) from error
        created, modified = cast(list[int | None], times)
        ephemeral = record.get("ephemeral") is True
        return Versioned(str(record["path"]), data, version, created, modified, ephemeral)

    def _index(self) -> dict[str, int]:
        if self._offsets is None:
            with ExitStack() as unfinished:
                file = unfinished.enter_context(self._seekable())
                self._offsets = self._find_offsets(file)
                self._unpacked = file
                unfinished.pop_all()
        return self._offsets

    def _find_offsets(self, file: BinaryIO) -> dict[str, int]:
        offsets: dict[str, int] = {}
        for number, line, offset in self._lines(file):
            path = str(self._parse(line, f"line {number}")["path"])
            if path in offsets:
                raise DecodeError(f"line {number}: {path} for the second time", source=self.url)
            offsets[path] = offset
        return offsets

    def _seekable(self) -> BinaryIO:
        file = self._open()
        if file.seekable():
            return file
        with ExitStack() as unfinished, file:
            # It lives until `close`, and has no name that could be left behind.
            spool = cast(BinaryIO, unfinished.enter_context(tempfile.TemporaryFile()))
            for number in count(1):
                if not spool.write(self._line(file, number)):
                    break
            spool.seek(0)
            unfinished.pop_all()
        return spool


def _is_time(value: object) -> bool:
    return value is None or type(value) is int
