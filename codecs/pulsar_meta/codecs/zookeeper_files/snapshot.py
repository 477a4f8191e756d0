"""ZooKeeper's snapshots, and the tree that results from a snapshot and transactions.

A file has a header of 16 bytes (`ZKSN`, version 2, database id), sessions, numbered access lists, nodes
(path, bytes, access list, stat) up to the path `/`, and an Adler-32 of all that, followed by the string `/`.
Newer servers add a digest (20 bytes) and the last zxid (8 bytes), each followed by a checksum and the string
`/`.

A snapshot is written while transactions continue, so it may contain changes of transactions that are replayed
after it. ZooKeeper replays them anyway, and so does this module.

Sources: apache/zookeeper FileSnap, SnapStream, SerializeUtils, zookeeper.jute, DataTree (serialize,
createNode, deleteNode, setData, processTxn, setCversionPzxid).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import adler32

from pulsar_meta.codecs.compression import LIMITS, USUAL_SNAPPY_RATIO, decompress, snappy_size
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.zookeeper_files.log import (
    HEADER,
    VERSION,
    CloseSession,
    Create,
    Delete,
    Jute,
    SetAcl,
    SetData,
    Transaction,
    changes_of,
    is_ephemeral,
)


class Node:
    """A node: its bytes, versions, times in milliseconds, and the zxids that created and changed it.

    `creations` counts all children that were ever created (the persisted cversion).
    """

    __slots__ = (
        "aversion",
        "created",
        "creations",
        "czxid",
        "data",
        "modified",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, time: int, owner: int = 0) -> None:
        """Create a node as a transaction does; `time` is in milliseconds."""
        self.data = data
        self.version = self.aversion = self.creations = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.created = self.modified = time
        self.owner = owner


class Tree:
    """A tree of nodes by path; the root's path is `/`."""

    __slots__ = ("_owned", "nodes")

    def __init__(self) -> None:
        """Create the tree of a server without a snapshot: the root and /zookeeper."""
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            self.nodes[path] = Node(b"", 0, 0)
        self._owned: dict[int, set[str]] = {}

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Node]]) -> Tree:
        """Return a tree of these nodes. Raises DecodeError if there is no root."""
        tree = cls()
        tree.nodes.clear()
        for path, node in nodes:
            tree.add(path, node)
        if "/" not in tree.nodes:
            raise DecodeError("the tree has no root")
        return tree

    def add(self, path: str, node: Node) -> None:
        """Add a node at a path. Raises DecodeError if no server would accept the path."""
        # A node whose path resolves to its own parent would be its own descendant.
        if path != "/" and (path[:1] != "/" or path[-1] == "/" or "//" in path):
            raise DecodeError(f"invalid path of a node: {path[:200]!r}")
        self.nodes[path] = node
        if is_ephemeral(node.owner):
            self._owned.setdefault(node.owner, set()).add(path)

    def apply(self, transaction: Transaction) -> None:
        """Apply the changes of a transaction. Raises DecodeError if it is broken.

        Changes that the snapshot already has, and changes of nodes that are missing, have no effect.
        """
        zxid, time = transaction.zxid, transaction.time
        for change in changes_of(transaction):
            match change:
                case Create():
                    self._create(change, zxid, time)
                case Delete():
                    self._delete(change.path, zxid)
                case SetData():
                    self._set_data(change, zxid, time)
                case SetAcl():
                    self._set_acl(change)
                case CloseSession():
                    self._close(change, zxid)

    @property
    def last_zxid(self) -> int:
        """The highest zxid of any node."""
        return max(max(node.mzxid, node.pzxid, node.czxid) for node in self.nodes.values())

    def _create(self, change: Create, zxid: int, time: int) -> None:
        parent = self.nodes.get(parent_of(change.path))
        if parent is None:
            return
        creations = parent.creations + 1 if change.parent_cversion == -1 else change.parent_cversion
        if creations > parent.creations:
            parent.creations, parent.pzxid = creations, zxid
        if change.path not in self.nodes:
            self.add(change.path, Node(change.data, zxid, time, change.owner))

    def _delete(self, path: str, zxid: int) -> None:
        parent = self.nodes.get(parent_of(path))
        if parent is None:
            return
        parent.pzxid = max(parent.pzxid, zxid)
        node = self.nodes.pop(path, None)
        if node is not None and node.owner in self._owned:
            self._owned[node.owner].discard(path)

    def _set_data(self, change: SetData, zxid: int, time: int) -> None:
        node = self.nodes.get(change.path)
        if node is not None:
            node.data, node.version = change.data, change.version
            node.mzxid, node.modified = zxid, time

    def _set_acl(self, change: SetAcl) -> None:
        node = self.nodes.get(change.path)
        if node is not None:
            node.aversion = change.version

    def _close(self, change: CloseSession, zxid: int) -> None:
        for path in change.paths or ():
            self._delete(path, zxid)
        for path in sorted(self._owned.pop(change.session, ())):
            self._delete(path, zxid)


def parent_of(path: str) -> str:
    """Return the path of a node's parent."""
    return path.rpartition("/")[0] or "/"


MAGIC: Final = b"ZKSN"
SESSION: Final = Struct(">qi")
# Access list; czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral owner, pzxid.
STAT: Final = Struct(">qqqqqiiiqq")
END: Final = "/"


# The size of a section's end: its checksum and the string `/`.
SEAL: Final = 8 + 4 + 1
DIGEST: Final = 8 + 4 + 8 + SEAL
LAST_ZXID: Final = 8 + SEAL
SNAPPY_JAVA: Final = Struct(">8sii")
SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
# A block begins with its uncompressed size in at most so many bytes.
SNAPPY_SIZE: Final = 5


class Snapshot(NamedTuple):
    """A tree, the zxid after which logs are replayed, and the last zxid whose change may be in the tree."""

    tree: Tree
    zxid: int
    last_zxid: int


def read_snapshot(data: Buffer, zxid: int) -> Snapshot:
    """Decode an uncompressed snapshot. Raises DecodeError if it is truncated or damaged.

    `zxid` is from the file's name. Servers before 3.8 do not write the last zxid, so the highest zxid of any
    node is used, which misses deletions while the snapshot was written.
    """
    jute = Jute(data)
    magic, version, _ = jute.unpack(HEADER)
    if magic != MAGIC or version != VERSION:
        raise DecodeError(f"expected a snapshot of ZooKeeper ({MAGIC!r}, version {VERSION})", offset=0)
    for _ in range(jute.count()):
        jute.unpack(SESSION)
    _skip_access_lists(jute)
    tree = Tree.of(_nodes(jute))
    _check_seal(jute)
    return Snapshot(tree, zxid, max(zxid, _last_zxid(jute) or tree.last_zxid))


def unpack_snappy(data: Buffer) -> bytearray:
    """Decompress a stream of snappy-java: a header, then blocks that are prefixed with their lengths.

    Raises DecodeError if it is broken, or if the blocks claim to unpack to more than the limit on
    uncompressed files. No block is decompressed before all claims are known.
    """
    jute = Jute(data)
    magic, _, _ = jute.unpack(SNAPPY_JAVA)
    if magic != SNAPPY_MAGIC:
        raise DecodeError("expected a stream of snappy-java", offset=0)
    blocks, size = [], 0
    while jute.left:
        blocks.append(jute.buffer() or b"")
        size += snappy_size(bytes(blocks[-1][:SNAPPY_SIZE]))
        LIMITS.check_file(len(data), size, ratio=USUAL_SNAPPY_RATIO)
    unpacked = bytearray()
    for block in blocks:
        packed = bytes(block)
        unpacked += decompress("snappy", packed, snappy_size(packed))
    return unpacked


def _nodes(jute: Jute) -> Iterator[tuple[str, Node]]:
    while (path := jute.text()) != END:
        yield path or "/", _node(jute)


def _skip_access_lists(jute: Jute) -> None:
    for _ in range(jute.count()):
        jute.int64()
        for _ in range(jute.count()):
            jute.int32()
            jute.buffer()
            jute.buffer()


def _node(jute: Jute) -> Node:
    data = bytes(jute.buffer() or b"")
    _, czxid, mzxid, created, modified, version, creations, aversion, owner, pzxid = jute.unpack(STAT)
    node = Node(data, czxid, created, owner)
    node.mzxid, node.pzxid, node.modified = mzxid, pzxid, modified
    node.version, node.creations, node.aversion = version, creations, aversion
    return node


def _check_seal(jute: Jute) -> None:
    sealed, start = adler32(jute.view[: jute.at]), jute.at
    if jute.int64() != sealed or jute.text() != END:
        raise DecodeError("the checksum is wrong", offset=start)


def _last_zxid(jute: Jute) -> int | None:
    """Return the last zxid after the tree, which servers write since 3.8, or None."""
    if jute.left not in (LAST_ZXID, DIGEST + LAST_ZXID):
        return None
    jute.take(jute.left - LAST_ZXID)
    # The server records the last zxid after the change, so the tree may already have the next transaction.
    return jute.int64() + 1
