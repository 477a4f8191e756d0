"""ZooKeeper's snapshot: every node of its tree, written while transactions went on.

A file has a header of 16 bytes (`ZKSN`, version 2, database id), sessions, access lists by number, nodes
(path, bytes, access list, stat) up to the path `/`, and an Adler-32 of all that, sealed with the string `/`.
Newer servers write a digest behind it (20 bytes), and the last zxid that is in it (8 bytes), each sealed.

Source: apache/zookeeper FileSnap, SnapStream, SerializeUtils, DataTree.serialize, zookeeper.jute.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import adler32

from pulsar_meta.codecs.compression import decompress, snappy_size
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.codecs.zookeeper_files.jute import Jute
from pulsar_meta.codecs.zookeeper_files.log import HEADER, VERSION
from pulsar_meta.codecs.zookeeper_files.tree import Node, Tree

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
