"""ZooKeeper's transaction log: the changes of its tree in order, each with its zxid and time.

A file has a header of 16 bytes (`ZKLG`, version 2, database id), then for each transaction its Adler-32, its
length, its bytes and `B`. Preallocated space is zeros. A transaction has a header (session, cxid, zxid, time,
type), the change, and since ZooKeeper 3.6 a digest of the tree, which is skipped. Numbers are big-endian.
Strings and buffers are prefixed with their length.

Sources: apache/zookeeper FileTxnLog, SerializeUtils, zookeeper.jute, BinaryInputArchive, ZooDefs.OpCode.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any, Final, NamedTuple
from zlib import adler32

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, byte_view

INT: Final = Struct(">i")
LONG: Final = Struct(">q")
# Lists in snapshots and transactions are never longer. The limit protects from damaged lengths.
MAX_ITEMS: Final = 100_000_000


class Jute:
    """Reads values of ZooKeeper's Jute encoding in order. Methods raise DecodeError if bytes are missing."""

    __slots__ = ("at", "view")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        """Start at offset `at` of `data`."""
        self.view = byte_view(data)
        self.at = at

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self.view) - self.at

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Read the values of a fixed layout."""
        try:
            values = layout.unpack_from(self.view, self.at)
        except error:
            raise self._short(layout.size) from None
        self.at += layout.size
        return values

    def int32(self) -> int:
        """Read a signed number of 4 bytes."""
        return int(self.unpack(INT)[0])

    def int64(self) -> int:
        """Read a signed number of 8 bytes."""
        return int(self.unpack(LONG)[0])

    def flag(self) -> bool:
        """Read a boolean of one byte."""
        return self.take(1)[0] != 0

    def take(self, size: int) -> memoryview:
        """Read `size` bytes as a view."""
        if not 0 <= size <= self.left:
            raise self._short(size)
        self.at += size
        return self.view[self.at - size : self.at]

    def buffer(self) -> memoryview | None:
        """Read bytes that are prefixed with their length; None for the length -1."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def text(self) -> str:
        """Read a string; null becomes empty. Raises DecodeError if it is not UTF-8."""
        start, data = self.at, self.buffer()
        try:
            return str(data or b"", "utf-8")
        except UnicodeDecodeError:
            raise DecodeError("expected UTF-8 text", offset=start) from None

    def count(self) -> int:
        """Read the length of a list; 0 for the null list."""
        start, number = self.at, self.int32()
        if not -1 <= number <= min(MAX_ITEMS, self.left):
            raise DecodeError(f"expected the length of a list, found {number}", offset=start)
        return max(number, 0)

    def _short(self, size: int) -> DecodeError:
        return DecodeError(f"expected {size} bytes, found {self.left}", offset=self.at)


MAGIC: Final = b"ZKLG"
VERSION: Final = 2
HEADER: Final = Struct(">4siq")
# Adler-32 of the transaction as a long, and its length.
RECORD: Final = Struct(">qi")
TRANSACTION: Final = Struct(">qiqqi")
END_OF_RECORD: Final = 0x42
# The owner of containers, and the byte in the owner of nodes with a time to live (EphemeralType).
CONTAINER: Final = -(2**63)
TTL_MASK: Final = 0xFF << 56

CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI, CREATE2, RECONFIG = 1, 2, 5, 7, 13, 14, 15, 16
CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 19, 20, 21
CREATE_SESSION, CLOSE_SESSION, ERROR = -10, -11, -1


class Transaction(NamedTuple):
    """A logged transaction: `time` is in milliseconds, `changes_of` decodes `body`."""

    zxid: int
    time: int
    session: int
    type: int
    body: memoryview


class Create(NamedTuple):
    """Create a node. `parent_cversion` is -1 if the log does not have it (before ZooKeeper 3.4)."""

    path: str
    data: bytes
    owner: int
    parent_cversion: int


class Delete(NamedTuple):
    """Delete a node."""

    path: str


class SetData(NamedTuple):
    """Set a node's bytes and version."""

    path: str
    data: bytes
    version: int


class SetAcl(NamedTuple):
    """Change a node's access list, of which only the version is decoded."""

    path: str
    version: int


class CloseSession(NamedTuple):
    """End a session. `paths` are its ephemeral nodes, if the log has them (since ZooKeeper 3.6)."""

    session: int
    paths: tuple[str, ...] | None


Change = Create | Delete | SetData | SetAcl | CloseSession


class LogEnd(NamedTuple):
    """The end of a log file: `torn` is the error in an incomplete transaction, None for a clean end."""

    offset: int
    torn: str | None


def read_log(data: Buffer) -> Iterator[Transaction | LogEnd]:
    """Yield the transactions of a log file in order, then a LogEnd.

    A truncated transaction, or one with a wrong checksum, ends the log, because a server that crashed while
    writing it never acknowledged it. Raises DecodeError if the file is not a transaction log.
    """
    view = byte_view(data)
    jute = Jute(view)
    if not len(view):
        # The file was created, but not yet written to.
        yield LogEnd(0, None)
        return
    magic, version, _ = jute.unpack(HEADER)
    if magic != MAGIC or version != VERSION:
        raise DecodeError(f"expected a transaction log ({MAGIC!r}, version {VERSION})", offset=0)
    while True:
        start = jute.at
        try:
            body = _record(jute)
            if body is None:
                yield LogEnd(start, None)
                return
            transaction = _transaction(body)
        except DecodeError as error:
            yield LogEnd(start, error.message)
            return
        yield transaction


def _record(jute: Jute) -> memoryview | None:
    """Read the bytes of the next transaction; None at the end of the file or at preallocated zeros."""
    if not jute.left:
        return None
    checksum, size = jute.unpack(RECORD)
    if size == 0:
        return None
    body = jute.take(size)
    if jute.take(1)[0] != END_OF_RECORD:
        raise DecodeError("a transaction lacks its last byte")
    if adler32(body) != checksum:
        raise DecodeError("a transaction has a wrong checksum")
    return body


def _transaction(body: memoryview) -> Transaction:
    jute = Jute(body)
    session, _, zxid, time, kind = jute.unpack(TRANSACTION)
    return Transaction(zxid, time, session, kind, body[jute.at :])


def changes_of(transaction: Transaction) -> Iterator[Change]:
    """Yield the changes of a transaction in order; none for errors and new sessions.

    Raises DecodeError for unknown types, because skipping them would result in a wrong tree.
    """
    jute = Jute(transaction.body)
    if transaction.type == MULTI:
        yield from _multi(jute, transaction.session)
    else:
        yield from _change(transaction.type, jute, transaction.session)


def _multi(jute: Jute, session: int) -> Iterator[Change]:
    """Yield the changes of a multi. If it contains an error, it changed nothing (DataTree.processTxn)."""
    parts = []
    for _ in range(jute.count()):
        kind = jute.int32()
        parts.append((kind, jute.buffer() or memoryview(b"")))
    if any(kind == ERROR for kind, _ in parts):
        return
    for kind, body in parts:
        yield from _change(kind, Jute(body), session)


def _change(kind: int, jute: Jute, session: int) -> Iterator[Change]:
    match kind:
        case 1 | 15 | 19 | 21:
            yield _create(kind, jute, session)
        case 2 | 20:
            yield Delete(jute.text())
        case 5 | 16:
            yield SetData(jute.text(), bytes(jute.buffer() or b""), jute.int32())
        case 7:
            path = jute.text()
            _skip_acls(jute)
            yield SetAcl(path, jute.int32())
        case -11:
            yield CloseSession(session, _closed_paths(jute))
        case -10 | -1 | 13:
            return
        case _:
            raise DecodeError(f"unknown transaction type {kind}")


def _create(kind: int, jute: Jute, session: int) -> Create:
    path, data = jute.text(), bytes(jute.buffer() or b"")
    _skip_acls(jute)
    owner = CONTAINER if kind == CREATE_CONTAINER else 0
    if kind in (CREATE, CREATE2):
        owner = session if jute.flag() else 0
    cversion = jute.int32() if jute.left >= 4 else -1
    if kind == CREATE_TTL:
        owner = _signed(TTL_MASK | jute.int64())
    return Create(path, data, owner, cversion)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _skip_acls(jute: Jute) -> None:
    for _ in range(jute.count()):
        jute.int32()
        jute.buffer()
        jute.buffer()


def _closed_paths(jute: Jute) -> tuple[str, ...] | None:
    """Return the nodes deleted with a session, or None in logs from before ZooKeeper 3.6."""
    return tuple(jute.text() for _ in range(jute.count())) if jute.left >= 4 else None


def is_ephemeral(owner: int) -> bool:
    """Return True if a node with this owner belongs to a session. Containers and TTL nodes don't."""
    return owner != 0 and owner != CONTAINER and (owner >> 56) & 0xFF != 0xFF
