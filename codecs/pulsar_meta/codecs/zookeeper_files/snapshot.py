"""ZooKeeper's snapshots and the tree that snapshots and transactions make.

A file has a header of 16 bytes (`ZKSN`, version 2, database id), sessions, numbered access lists, nodes
(path, bytes,
access list, stat) up to the path `/`, and an Adler-32 of all that, followed by the string `/`. Newer servers
add a
digest (20 bytes) and the last zxid (8 bytes), each followed by the string `/`.

A snapshot is written while transactions continue, so it may contain some of the transactions that are
replayed over
it. ZooKeeper replays them anyway, and so does this module.

Sources: apache/zookeeper FileSnap, SnapStream, SerializeUtils, zookeeper.jute, DataTree (serialize,
createNode,
deleteNode, setData, processTxn, setCversionPzxid).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import adler32

from pulsar_meta.codecs.compression import decompress, snappy_size
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.zookeeper_files.log import (
    HEADER,
    VERSION,
    Change,
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
    """A node: its bytes, its versions, its times in milliseconds, the zxids that made and changed it.

    `creations` counts the children ever created (the persisted cversion).
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
        """A node as a transaction makes it."""
        self.data = data
        self.version = self.aversion = self.creations = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.created = self.modified = time
        self.owner = owner


class Tree:
    """Nodes by path; the root's path is `/`."""

    __slots__ = ("_owned", "nodes")

    def __init__(self) -> None:
        """An empty tree, the root in it, as a server makes it that finds no snapshot."""
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            self.nodes[path] = Node(b"", 0, 0)
        self._owned: dict[int, set[str]] = {}

    @classmethod
    def of(cls, nodes: Iterable[tuple[str, Node]]) -> Tree:
        """Return a tree of these nodes; DecodeError where the root is not among them."""
        tree = cls()
        tree.nodes.clear()
        for path, node in nodes:
            tree.add(path, node)
        if "/" not in tree.nodes:
            raise DecodeError("a tree without a root")
        return tree

    def add(self, path: str, node: Node) -> None:
        """Put a node that a snapshot has at its place."""
        self.nodes[path] = node
        if is_ephemeral(node.owner):
            self._owned.setdefault(node.owner, set()).add(path)

    def apply(self, transaction: Transaction) -> None:
        """Make the changes of a transaction; DecodeError where it cannot be read."""
        self.make(changes_of(transaction), transaction.zxid, transaction.time)

    def make(self, changes: Iterable[Change], zxid: int, time: int) -> None:
        """Make changes; those that happened already, or whose node went later, change nothing more."""
        for change in changes:
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
        """The highest zxid that any node carries."""
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
    """Return the path of the parent of a node."""
    return path.rpartition("/")[0] or "/"


MAGIC: Final = b"ZKSN"
SESSION: Final = Struct(">qi")
# Access list; czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeral owner, pzxid.
STAT: Final = Struct(">qqqqqiiiqq")
END: Final = "/"


# A section that is sealed ends with its checksum and the string `/`.
SEAL: Final = 8 + 4 + 1
DIGEST: Final = 8 + 4 + 8 + SEAL
LAST_ZXID: Final = 8 + SEAL
SNAPPY_JAVA: Final = Struct(">8sii")
SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"


class Snapshot(NamedTuple):
    """A tree, the zxid from which its log is replayed, and the last one whose change may be in it already."""

    tree: Tree
    zxid: int
    last_zxid: int


def read_snapshot(data: Buffer, zxid: int) -> Snapshot:
    """Return what an unpacked snapshot holds; DecodeError where it is cut short or damaged.

    `zxid` is the one in the file's name. Servers before 3.8 do not write the last zxid: then it is the
    highest that a node carries, which a node that went while the snapshot was written does not show.
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


def unpack_snappy(data: Buffer) -> bytes:
    """Return what a stream of snappy-java holds: a header, then blocks behind their lengths."""
    jute = Jute(data)
    magic, _, _ = jute.unpack(SNAPPY_JAVA)
    if magic != SNAPPY_MAGIC:
        raise DecodeError("expected a stream of snappy-java", offset=0)
    blocks = []
    while jute.left:
        block = bytes(jute.buffer() or b"")
        blocks.append(decompress("snappy", block, snappy_size(block)))
    return b"".join(blocks)


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
    """Return the last zxid that a newer server wrote behind the tree, None where it did not."""
    if jute.left not in (LAST_ZXID, DIGEST + LAST_ZXID):
        return None
    jute.take(jute.left - LAST_ZXID)
    # The server notes a transaction after making its change: one more may show in the tree.
    return jute.int64() + 1
