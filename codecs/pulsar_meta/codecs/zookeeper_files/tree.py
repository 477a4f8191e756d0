"""ZooKeeper's tree of nodes, and what transactions do to it.

Snapshots are fuzzy: they are written while transactions go on, so those that are replayed over one may have
happened in it already. ZooKeeper replays them all the same, and so does this.

Source: apache/zookeeper DataTree (createNode, deleteNode, setData, processTxn, setCversionPzxid).
"""

from __future__ import annotations

from collections.abc import Iterable

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.zookeeper_files.log import (
    Change,
    CloseSession,
    Create,
    Delete,
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
