"""In which order the values of a snapshot stand, and how a file says that it is the one that was written so.

A foot may have `order`, `bytes_before` and `crc32c_before`: the file has so many bytes before the foot (if
compressed, before the frame that has it alone), this is their CRC-32C, and the paths of its values rise in
that order, none twice: `code-points` (of the whole path), as etcd and RocksDB have them, or `tree`, a parent
before its children and these by name, as ZooKeeper and directories are walked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from pulsar_meta.codecs.json_text import Document

Order = Literal["code-points", "tree"]


def by_path(path: str) -> bytes:
    """Return what orders paths by their code points."""
    # JSON may name half a surrogate pair; bytes of UTF-8 are in the order of the code points.
    return path.encode("utf-8", "surrogatepass")


def by_tree(path: str) -> bytes:
    """Return what orders a path before those below it, and these before its next sibling."""
    return by_path(path).replace(b"/", b"\0")


KEYS: Final[dict[Order, Callable[[str], bytes]]] = {"code-points": by_path, "tree": by_tree}
# Behind the key of a path: before the first key of what comes after all that lies below it.
BEHIND: Final[dict[Order, bytes]] = {"code-points": b"0", "tree": b"\1"}


class OrderSeen:
    """Which orders paths that come one by one have kept so far."""

    def __init__(self) -> None:
        """Begin with no path, which is in every order."""
        self._last: dict[Order, bytes] = {"code-points": b"", "tree": b""}

    def add(self, path: str) -> None:
        """Take the next path."""
        for order, last in list(self._last.items()):
            key = KEYS[order](path)
            # A name with the separator's stand-in could be taken for two.
            if key <= last or (order == "tree" and "\0" in path):
                del self._last[order]
            else:
                self._last[order] = key

    @property
    def order(self) -> Order | None:
        """The order that all have kept, None where there is none."""
        return next(iter(self._last), None)


def order_facts(seen: OrderSeen, size: int, checksum: int) -> Document:
    """Return what a foot says of the order of a file of which `size` bytes stand before it."""
    if seen.order is None:
        return {}
    return {"order": seen.order, "bytes_before": size, "crc32c_before": checksum}
