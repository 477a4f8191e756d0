"""`rocksdb:PATH`: the metadata database of a standalone (RocksdbMetadataStore, raw keys and values).

A reader sees the database at the moment of opening. Ephemeral values from an earlier run of the broker have
`ephemeral=True`, and the next broker ignores and removes them.

Opening for writing takes the database's lock, which no broker can hold at the same time. Nothing in the
directory changes before the first `put` or `delete`, which creates a checkpoint (`checkpoint` names it) and
opens the database read-write. Before `close` returns, a second reader reads back everything that was written.

A value follows a header of big-endian numbers: int32 header size (41; later versions may only make it
longer), int32 format (1 or more), int64 version, owner, created ms, modified ms, and one byte "ephemeral".
The last twelve bytes of a table are its format (uint32) and a magic number (uint64), little-endian. An older
RocksDB can't open newer formats.

Sources: apache/pulsar RocksdbMetadataStore.MetaValue; facebook/rocksdb table/format.cc (Footer).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pulsar_meta.access.files import Stamps
from pulsar_meta.access.rocksdb import ReadOnlyDatabase, check_database, rocksdb_error
from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.errors import ConflictError, DecodeError, GuardError, NotFoundError, UnreachableError
from pulsar_meta.stores.base import ABSENT, Deletion, Store, Versioned, Write, key_text, split_prefix
from pulsar_meta.stores.rocksdb_writer import DatabaseLock, DatabaseWriter

if TYPE_CHECKING:
    from rocksdict import Rdict


AFTER_SLASH: Final = b"0"
# Read writes back after this many, which bounds the memory for their digests.
READ_BACK: Final = 10_000


class RocksdbStore(Store):
    """A standalone's metadata database."""

    counts_sequences = True
    is_indexed = True
    locks_out_brokers = True
    has_consistent_scans = True
    batches_requests = True

    def __init__(self, url: str, *, read_only: bool = True) -> None:
        """Open the database.

        Raises NotFoundError if it doesn't exist, DecodeError if it is damaged, and GuardError if it is opened
        for writing while another process holds its lock.
        """
        self.url = url
        self.writable = not read_only
        self.path = database_of(url)
        check_database(self.path, url)
        self._lock = None if read_only else DatabaseLock(self.path, url)
        self._writer: DatabaseWriter | None = None
        self._unchecked: dict[str, bytes | None] = {}
        self._stamps = Stamps([self.path, *self.path.glob("*.log")])
        try:
            self._reading = ReadOnlyDatabase(self.path, url)
        except BaseException:
            self._release()
            raise

    @property
    def checkpoint(self) -> Path | None:
        """The directory with a copy of the database from before the first write, or None before that."""
        return self._writer.checkpoint if self._writer else None

    @property
    def is_stale(self) -> bool:
        """Whether a broker has written since the database was opened for reading."""
        return not self.writable and self._stamps.changed

    @property
    def may_be_live(self) -> bool:
        """Whether the database is open for reading, which does not exclude a running broker."""
        return not self.writable

    @property
    def _db(self) -> Rdict:
        return self._writer.db if self._writer else self._reading.db

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        raw = self._get(path.encode()) if path.startswith("/") else None
        if raw is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self._versioned(path, raw)

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`, skipping each child's subtree."""
        below = split_prefix(path)[1].encode()
        names: set[str] = set()
        rows: Any = self._db.iter()
        rows.seek(below)
        while rows.valid() and (key := rows.key()).startswith(below):
            name, slash, _ = key[len(below) :].partition(b"/")
            names.add(key_text(name, self.url))
            if slash:
                rows.seek(below + name + AFTER_SLASH)
            else:
                rows.next()
        self._check(rows)
        return sorted(names)

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, sorted by the bytes of their paths."""
        bare, below = (part.encode() for part in split_prefix(prefix))
        rows: Any = self._db.iter()
        if after is None and bare != below and (raw := self._get(bare)) is not None:
            yield self._versioned(split_prefix(prefix)[0], raw)
        rows.seek(below if after is None else max(below, after.encode() + b"\0"))
        # Bound methods, because this loop determines the speed of scans.
        is_valid, key_of, value_of, advance = rows.valid, rows.key, rows.value, rows.next
        while is_valid() and (key := key_of()).startswith(below):
            yield self._versioned(key_text(key, self.url), value_of())
            advance()
        self._check(rows)

    def next_sequence(self, parent: str) -> int | None:
        """Return the only counter, which all sequential nodes share."""
        raw = self._get(SEQUENTIAL_ID)
        return int.from_bytes(raw, "big") if raw is not None and len(raw) == 8 else None

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Raise the only counter to at least `floor`."""
        self.check_write(parent)
        number = self.next_sequence(parent) or 0
        if number < floor:
            self._write({SEQUENTIAL_ID.decode(): floor.to_bytes(8, "big")})
        return max(number, floor)

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected`, and return the next version, as Pulsar counts it."""
        self.check_write(path, value)
        after = self._after(path, value, expected)
        self._write({path: after.encode()})
        return after.version

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does, in one batch that is synced once."""
        for path, value, _ in writes:
            self.check_write(path, value)
        batch: dict[str, bytes | None] = {}
        versions: list[int | None] = []
        for path, value, expected in writes:
            if path in batch:
                # The first write of this path must be in the database before the second is compared with it.
                self._write(batch)
                batch = {}
            try:
                after = self._after(path, value, expected)
            except ConflictError:
                versions.append(None)
            else:
                batch[path] = after.encode()
                versions.append(after.version)
        self._write(batch)
        return versions

    def _after(self, path: str, value: bytes, expected: int) -> MetaValue:
        """Return the record to store. Raises ConflictError if the version is not `expected`."""
        current = self._expect(path, expected)
        now, owner = time.time_ns() // 1_000_000, self._instance()
        if current is None:
            return MetaValue(0, owner, now, now, False, bytes(value))
        return current.followed_by(bytes(value), owner, now)

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        self.check_write(path)
        self.read(path)
        self._expect(path, expected)
        self._write({path: None})

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Delete each (path, expected) as `delete` does, in one batch that is synced once."""
        for path, _ in deletions:
            self.check_write(path)
        batch: dict[str, None] = {}
        results: list[bool] = []
        for path, expected in deletions:
            results.append(path not in batch and self._exists(path, expected))
            if results[-1]:
                batch[path] = None
        self._write(batch)
        return results

    def close(self) -> None:
        """Read back what was written, close the database, and remove temporary links.

        Raises UnreachableError if a value doesn't read back; the checkpoint then has the earlier values.
        """
        try:
            if self._writer is not None:
                self._finish(self._writer)
        finally:
            self._writer = None
            self._reading.close()
            self._release()

    def _finish(self, writer: DatabaseWriter) -> None:
        # This comes before the writer closes, because closing releases the database's lock.
        try:
            writer.flush()
            self._read_back(writer.checkpoint)
        finally:
            writer.close()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _get(self, key: bytes) -> bytes | None:
        try:
            raw: bytes | None = self._db.get(key)
        except Exception as error:
            # rocksdict raises a bare Exception for every error of RocksDB.
            raise rocksdb_error(error, self.url) from error
        return raw

    def _check(self, rows: Any) -> None:
        """Raise DecodeError if an iterator stopped at a damaged block before the end."""
        try:
            rows.status()
        except Exception as error:
            raise rocksdb_error(error, self.url) from error

    def _expect(self, path: str, expected: int) -> MetaValue | None:
        """Return the current value, which must have the version `expected` and not be ephemeral."""
        raw = self._get(path.encode())
        current = None if raw is None else self._decode(path, raw)
        version = ABSENT if current is None else current.version
        if version != expected:
            raise ConflictError(f"{path}: expected version {expected}, found {version}", source=self.url)
        if current is not None and current.ephemeral:
            text = f"refusing to write {path}: it is ephemeral and belongs to a broker"
            raise GuardError(text, source=self.url)
        return current

    def _exists(self, path: str, expected: int) -> bool:
        """Whether there is a value of that version. Raises GuardError if it is ephemeral."""
        try:
            return self._expect(path, expected) is not None
        except ConflictError:
            return False

    def _instance(self) -> int:
        raw = self._get(INSTANCE_ID)
        return int.from_bytes(raw, "big") if raw is not None and len(raw) == 8 else 0

    def _write(self, values: Mapping[str, bytes | None]) -> None:
        if not values:
            return
        if self._writer is None:
            self._writer = DatabaseWriter(self.path, self.url)
        self._writer.write({path.encode(): raw for path, raw in values.items()})
        for path, raw in values.items():
            self._unchecked[path] = None if raw is None else sha256(raw).digest()
        if len(self._unchecked) >= READ_BACK:
            self._read_back(self._writer.checkpoint)

    def _read_back(self, checkpoint: Path) -> None:
        written = ReadOnlyDatabase(self.path, self.url)
        try:
            for path, digest in self._unchecked.items():
                raw = written.db.get(path.encode())
                if (None if raw is None else sha256(raw).digest()) != digest:
                    text = f"{path} does not read back as written; the earlier values are in {checkpoint}"
                    raise UnreachableError(text, source=self.url)
        finally:
            written.close()
            self._unchecked.clear()

    def _decode(self, path: str, raw: bytes) -> MetaValue:
        try:
            return MetaValue.decode(raw)
        except DecodeError as error:
            raise error.within(self.url, what=path) from error

    def _versioned(self, path: str, raw: bytes) -> Versioned:
        if len(raw) >= HEADER.size:
            size, form, version, _, created, modified, ephemeral = HEADER.unpack_from(raw)
            if size == HEADER.size and form == FORMAT:
                # The usual case is decoded here because it determines the speed of scans.
                return Versioned(path, raw[size:], version, created, modified, ephemeral > 0)
        value = self._decode(path, raw)
        return Versioned(path, value.data, value.version, value.created, value.modified, value.ephemeral)


def database_of(url: str) -> Path:
    """Return the directory that a URL names."""
    return Path(split_scheme(url)[1].removeprefix("//")).absolute()


HEADER: Final = struct.Struct(">iiqqqqb")
FORMAT: Final = 1

# Keys of bare 8-byte numbers: how often the store was opened, and the counter of sequential nodes.
INSTANCE_ID: Final = b"__metadata_instanceId_key"
SEQUENTIAL_ID: Final = b"__metadata_sequentialId_key"


@dataclass(frozen=True, slots=True)
class MetaValue:
    """A stored value with its header. `owner` is the instance of the store that wrote it last."""

    version: int
    owner: int
    created: int
    modified: int
    ephemeral: bool
    data: bytes = field(repr=False)
    extra: bytes = b""

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Parse a stored value. Raises DecodeError if its header is invalid."""
        if len(raw) < HEADER.size:
            raise DecodeError(f"expected a header of {HEADER.size} bytes, found {len(raw)}", offset=0)
        size, form, version, owner, created, modified, ephemeral = HEADER.unpack_from(raw)
        if not HEADER.size <= size <= len(raw):
            raise DecodeError(f"invalid header size: {size} bytes in a value of {len(raw)} bytes", offset=0)
        if form < FORMAT:
            raise DecodeError(f"expected format 1 or later, found {form}", offset=4)
        extra = raw[HEADER.size : size]
        return cls(version, owner, created, modified, ephemeral > 0, raw[size:], extra)

    def encode(self) -> bytes:
        """Encode the stored form, keeping the additional bytes of a longer header."""
        size = HEADER.size + len(self.extra)
        numbers = (self.version, self.owner, self.created, self.modified, self.ephemeral)
        return HEADER.pack(size, FORMAT, *numbers) + self.extra + self.data

    def followed_by(self, data: bytes, owner: int, now: int) -> Self:
        """Return the record that Pulsar would store next: the next version, modified at `now` (ms)."""
        return replace(self, version=self.version + 1, owner=owner, modified=now, data=data)


_FOOTER: Final = struct.Struct("<IQ")
_MAGIC: Final = 0x88E241B785F4CFF7


def table_formats(directory: Path) -> frozenset[int]:
    """Return the formats of all tables in a directory. Raises UnreachableError if one can't be read."""
    formats = set()
    for table in sorted(directory.glob("*.sst")):
        try:
            with table.open("rb") as file:
                file.seek(-_FOOTER.size, 2)
                form, magic = _FOOTER.unpack(file.read(_FOOTER.size))
        except OSError as error:
            raise UnreachableError(f"cannot read the table: {error.strerror}", source=str(table)) from error
        if magic == _MAGIC:
            formats.add(form)
    return frozenset(formats)
