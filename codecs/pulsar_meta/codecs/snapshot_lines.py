"""The lines of a snapshot file: a header, one value per line, a footer with sums over all values.

Header and footer are JSON objects without `path`. The header names the store and the time. The footer has the
number of values and two sums that do not depend on the order of values. Each sum adds up, modulo 2^256,
SHA-256(length of path, path, length of value, value) with big-endian lengths of four bytes. One sum covers
all values. The other leaves out values that stores create themselves (ephemeral ones, and empty ones that
only have children), so copies of one cluster in different stores have the same sum.

A footer may also have `order`, `bytes_before` and `crc32c_before`: the number of bytes before the footer (or,
if the file is compressed, before the footer's frame) and their CRC-32C. Paths then rise in that order without
duplicates. The order is `code-points`, as in etcd and RocksDB, or `tree` (parents before their children,
children by name), as in ZooKeeper and directories. `crc32c_header` is the CRC-32C of the header's line.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document, dumps

Order = Literal["code-points", "tree"]


def by_path(path: str) -> bytes:
    """Return a sort key that orders paths by code point."""
    # UTF-8 sorts like code points. JSON paths may contain half of a surrogate pair.
    return path.encode("utf-8", "surrogatepass")


def by_tree(path: str) -> bytes:
    """Return a sort key that orders each path before its descendants, and these before its next sibling."""
    return by_path(path).replace(b"/", b"\0")


KEYS: Final[dict[Order, Callable[[str], bytes]]] = {"code-points": by_path, "tree": by_tree}
# Appended to a path's sort key: sorts after all descendants of the path and before every later path.
SUBTREE_ENDS: Final[dict[Order, bytes]] = {"code-points": b"0", "tree": b"\1"}


class OrderTracker:
    """Tracks which orders a stream of paths follows."""

    def __init__(self) -> None:
        """Start with no paths, which follow every order."""
        self._last: dict[Order, bytes] = {"code-points": b"", "tree": b""}

    def add(self, path: str) -> None:
        """Add the next path."""
        for order, last in list(self._last.items()):
            key = KEYS[order](path)
            # `by_tree` replaces separators with NUL, so it would split a name that contains NUL.
            if key <= last or (order == "tree" and "\0" in path):
                del self._last[order]
            else:
                self._last[order] = key

    @property
    def order(self) -> Order | None:
        """An order that all paths follow, or None."""
        return next(iter(self._last), None)


def order_fields(tracker: OrderTracker, size: int, checksum: int) -> Document:
    """Return the footer's fields about order, for a file that has `size` bytes before the footer."""
    if tracker.order is None:
        return {}
    return {"order": tracker.order, "bytes_before": size, "crc32c_before": checksum}


# The members that identify a header and a footer; the header's is the number of the format.
_HEADER: Final = "snapshot"
_FOOTER: Final = "values"
_FORMAT: Final = 1
_MODULUS: Final = 1 << 256


class SumsDocument(TypedDict):
    """The number of values, and the sums over all values and over lasting values, in hex."""

    values: int
    sum: str
    sum_lasting: str


class SnapshotFooter(SumsDocument):
    """The last line of a snapshot; `changed_meanwhile` counts values that changed while they were read.

    If `order` is there, paths rise in that order, and `crc32c_before` is the CRC-32C of the `bytes_before`
    bytes before the footer (if the file is compressed, before the footer's frame). `crc32c_header` is the
    CRC-32C of the first line.
    """

    changed_meanwhile: NotRequired[int]
    order: NotRequired[Order]
    bytes_before: NotRequired[int]
    crc32c_before: NotRequired[int]
    crc32c_header: NotRequired[int]


class SnapshotValue(TypedDict):
    """The line of one value; `value` is base64, times are in milliseconds."""

    path: str
    version: int
    value: str
    created: NotRequired[int]
    modified: NotRequired[int]
    ephemeral: NotRequired[bool]


class Sums:
    """Counts values and computes both sums. Parents must be added before their children."""

    def __init__(self) -> None:
        """Start with no values."""
        self.values = 0
        self._all = 0
        self._lasting = 0
        # The terms of empty values that have no children so far.
        self._childless: dict[str, int] = {}
        self._parent = ""

    def add(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Add a value."""
        name = path.encode("utf-8", "surrogatepass")
        digest = sha256(len(name).to_bytes(4, "big") + name + len(value).to_bytes(4, "big"))
        digest.update(value)
        term = int.from_bytes(digest.digest(), "big")
        self.values += 1
        self._all += term
        self._see_parent(path)
        if not ephemeral:
            if value:
                self._lasting += term
            else:
                self._childless[path] = term

    def _see_parent(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent == self._parent:
            return
        self._parent = parent
        while parent and self._childless:
            self._childless.pop(parent, None)
            parent = parent.rpartition("/")[0]

    @property
    def everything(self) -> str:
        """The sum over every value, in hex."""
        return f"{self._all % _MODULUS:064x}"

    @property
    def lasting(self) -> str:
        """The sum without ephemeral values and empty parents, in hex."""
        return f"{(self._lasting + sum(self._childless.values())) % _MODULUS:064x}"

    def document(self) -> SumsDocument:
        """Return the footer's fields for the count and the sums."""
        return {"values": self.values, "sum": self.everything, "sum_lasting": self.lasting}


def value_line(
    path: str,
    value: bytes,
    version: int,
    created: int | None = None,
    modified: int | None = None,
    *,
    ephemeral: bool = False,
) -> bytes:
    """Return the line of a value; times are in milliseconds, or None if they are not known."""
    text = f'{{"path": {json.dumps(path)}, "version": {version}, "value": "'
    more = "" if created is None else f', "created": {created}'
    more += "" if modified is None else f', "modified": {modified}'
    more += ', "ephemeral": true' if ephemeral else ""
    return text.encode() + b2a_base64(value, newline=False) + b'"' + more.encode() + b"}\n"


def header_line(facts: Document) -> bytes:
    """Return the first line, with `facts` about the store."""
    return dumps({_HEADER: _FORMAT, **facts}).encode() + b"\n"


def footer_line(sums: Sums, facts: Document) -> bytes:
    """Return the last line, with the sums and `facts` about how the values were read."""
    return dumps({**sums.document(), **facts}).encode() + b"\n"


def is_header(line: Document) -> bool:
    """Return True if a line is a header. Raises DecodeError if its format is unknown."""
    if "path" in line or _HEADER not in line:
        return False
    if line[_HEADER] != _FORMAT:
        raise DecodeError(f"unknown snapshot format {line[_HEADER]!r}; this version reads format {_FORMAT}")
    return True


def is_footer(line: Document) -> bool:
    """Return True if a line is a footer."""
    return "path" not in line and _HEADER not in line and type(line.get(_FOOTER)) is int


def check_footer(footer: Document, values: int, sums: Sums | None = None) -> None:
    """Compare a footer with the number of values before it, and with their sums if given.

    Raises DecodeError if they differ.
    """
    if footer[_FOOTER] != values:
        raise DecodeError(f"the footer counts {footer[_FOOTER]} values, but the file has {values}")
    if sums is not None and (footer.get("sum"), footer.get("sum_lasting")) != (sums.everything, sums.lasting):
        raise DecodeError("the sums in the footer do not match the values, so values were changed")
