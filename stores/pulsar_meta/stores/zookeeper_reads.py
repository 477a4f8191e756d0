"""Many nodes in one request: ZooKeeper's `multiRead`, which kazoo does not know.

A request for each node costs kazoo about as much as writing one; this costs a small part of that.
Source: ZooKeeper 3.6's ZooDefs.OpCode.multiRead, MultiOperationRecord, MultiResponse.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

MULTI_READ: Final = 22
GET_DATA: Final = 4
ERROR: Final = -1
NO_NODE: Final = -101
# Nodes in one request; their values come back in one answer.
NODES: Final = 32

_header: Final = struct.Struct(">i?i")
_int: Final = struct.Struct(">i")
_stat: Final = struct.Struct(">qqqqiiiqiiq")
_END: Final = _header.pack(-1, True, -1)
_GET: Final = _header.pack(GET_DATA, False, -1)
_NO_WATCH: Final = b"\0"

# What an answer holds of a node: its value and stat, or the number of an error.
Node = tuple[bytes, Any] | int


class ReadNodes:
    """The request, as kazoo's connection sends it and reads its answer."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths` are whole ones, the chroot in front."""
        self.paths = paths

    def serialize(self) -> bytes:
        """Return the body of the request."""
        parts = []
        for path in self.paths:
            text = path.encode()
            parts += [_GET, _int.pack(len(text)), text, _NO_WATCH]
        return b"".join([*parts, _END])

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Node]:
        """Return what each path holds, in the order of the request."""
        from kazoo.protocol.states import ZnodeStat

        nodes: list[Node] = []
        while True:
            kind, done, _ = _header.unpack_from(data, offset)
            offset += _header.size
            if done:
                return nodes
            if kind == ERROR:
                nodes.append(_int.unpack_from(data, offset)[0])
                offset += _int.size
                continue
            size = max(_int.unpack_from(data, offset)[0], 0)
            offset += _int.size
            value = bytes(data[offset : offset + size])
            offset += size
            nodes.append((value, ZnodeStat._make(_stat.unpack_from(data, offset))))
            offset += _stat.size


def send_read(client: Any, paths: Sequence[str]) -> Any:
    """Send the request for some nodes and return what will have the answer."""
    from kazoo.client import _prefix_root

    pending = client.handler.async_result()
    client._call(ReadNodes([_prefix_root(client.chroot, path) for path in paths]), pending)
    return pending
