"""ZooKeeper's transaction log: the changes of its tree in order, each with its zxid and time.

A file has a header of 16 bytes (`ZKLG`, version 2, database id), then for each transaction its Adler-32, its
length,
its bytes and `B`. Preallocated space is zeros. A transaction has a header (session, cxid, zxid, time, type),
the
change, and since ZooKeeper 3.6 a digest of the tree, which is skipped. Numbers are big-endian; lengths
precede
strings and buffers.

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
# No list that a snapshot or a transaction holds is longer: it bounds what a damaged length can ask for.
MAX_ITEMS: Final = 100_000_000


class Jute:
    """A cursor over bytes; every method takes the next value. DecodeError where the bytes end before it."""

    __slots__ = ("at", "view")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        """Begin at offset `at` of `data`."""
        self.view = byte_view(data)
        self.at = at

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.view) - self.at

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Take the values of a fixed layout."""
        try:
            found = layout.unpack_from(self.view, self.at)
        except error:
            raise self._short(layout.size) from None
        self.at += layout.size
        return found

    def int32(self) -> int:
        """Take a signed number of 4 bytes."""
        return int(self.unpack(INT)[0])

    def int64(self) -> int:
        """Take a signed number of 8 bytes."""
        return int(self.unpack(LONG)[0])

    def flag(self) -> bool:
        """Take a byte that is 0 or not."""
        return self.take(1)[0] != 0

    def take(self, size: int) -> memoryview:
        """Take `size` bytes as a view."""
        if not 0 <= size <= self.left:
            raise self._short(size)
        self.at += size
        return self.view[self.at - size : self.at]

    def buffer(self) -> memoryview | None:
        """Take bytes behind their length, None for the length -1."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def text(self) -> str:
        """Take a string; the null string, which only damage makes, is a DecodeError."""
        start, data = self.at, self.buffer()
        try:
            return str(data or b"", "utf-8")
        except UnicodeDecodeError:
            raise DecodeError("expected UTF-8 text", offset=start) from None

    def count(self) -> int:
        """Take the length of a list, 0 for the null list."""
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
# The owner that marks a container, and the byte that marks a node with a time to live (EphemeralType).
CONTAINER: Final = -(2**63)
TTL_MASK: Final = 0xFF << 56
MAX_NESTING: Final = 2

CREATE, DELETE, SET_DATA, SET_ACL, CHECK, MULTI, CREATE2, RECONFIG = 1, 2, 5, 7, 13, 14, 15, 16
CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = 19, 20, 21
CREATE_SESSION, CLOSE_SESSION, ERROR = -10, -11, -1


class Transaction(NamedTuple):
    """One transaction as logged: `time` in milliseconds, `body` is what `changes_of` reads."""

    zxid: int
    time: int
    session: int
    type: int
    body: memoryview


class Create(NamedTuple):
    """A node that is made. `parent_cversion` is -1 where the log does not have it (before 3.4)."""

    path: str
    data: bytes
    owner: int
    parent_cversion: int


class Delete(NamedTuple):
    """A node that goes."""

    path: str


class SetData(NamedTuple):
    """A node's new bytes and their version."""

    path: str
    data: bytes
    version: int


class SetAcl(NamedTuple):
    """A node whose access list changed; only its version is kept."""

    path: str
    version: int


class CloseSession(NamedTuple):
    """A session that ended, with its ephemeral nodes where the log names them (since 3.6)."""

    session: int
    paths: tuple[str, ...] | None


Change = Create | Delete | SetData | SetAcl | CloseSession


class LogEnd(NamedTuple):
    """How a log file ended: `torn` says where a transaction breaks off, None for a clean end."""

    offset: int
    torn: str | None


def read_log(data: Buffer) -> Iterator[Transaction | LogEnd]:
    """Yield the transactions of a log file in order, and last of all how it ended.

    A transaction that breaks off, or whose checksum is wrong, ends the log: what was being written while a
    server died was never acknowledged. DecodeError where the file is no transaction log.
    """
    view = byte_view(data)
    jute = Jute(view)
    if not len(view):
        # Made and not yet written to.
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
    """Take the bytes of the next transaction, None at the end of the file or where its zeros begin."""
    if not jute.left:
        return None
    checksum, size = jute.unpack(RECORD)
    if size == 0:
        return None
    body = jute.take(size)
    if jute.take(1)[0] != END_OF_RECORD:
        raise DecodeError("a transaction without its last byte")
    if adler32(body) != checksum:
        raise DecodeError("a transaction whose checksum is wrong")
    return body


def _transaction(body: memoryview) -> Transaction:
    jute = Jute(body)
    session, _, zxid, time, kind = jute.unpack(TRANSACTION)
    return Transaction(zxid, time, session, kind, body[jute.at :])


def changes_of(transaction: Transaction) -> Iterator[Change]:
    """Yield what a transaction changes, in order: nothing for an error or a new session.

    DecodeError for a type that is not known: passing over it would make a wrong tree.
    """
    jute = Jute(transaction.body)
    if transaction.type == MULTI:
        yield from _multi(jute, transaction.session)
    else:
        yield from _change(transaction.type, jute, transaction.session)


def _multi(jute: Jute, session: int) -> Iterator[Change]:
    """Yield the changes of a multi; one that holds an error changed nothing (DataTree.processTxn)."""
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
            raise DecodeError(f"a transaction of type {kind}, which nobody here knows")


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
    """Return the nodes that went with a session, None where the log is older than 3.6 and does not say."""
    return tuple(jute.text() for _ in range(jute.count())) if jute.left >= 4 else None


def is_ephemeral(owner: int) -> bool:
    """Return whether a node with this owner belongs to a session: containers and TTL nodes do not."""
    return owner != 0 and owner != CONTAINER and (owner >> 56) & 0xFF != 0xFF
