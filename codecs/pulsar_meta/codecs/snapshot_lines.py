"""The lines of a snapshot file: a header, one value per line, a footer with sums over all values.

Header and footer are JSON objects without `path`. The header names the store and the time. The footer has the
number
of values and two sums that do not depend on the order of values: each adds up, modulo 2^256, SHA-256(length
of path,
path, length of value, value) with big-endian lengths of four bytes. One sum covers every value, the other
leaves out
those that stores create themselves (ephemeral ones, and empty ones that only have children), so that copies
of one
cluster in different stores have the same sum.

A footer may also have `order`, `bytes_before` and `crc32c_before`: the number of bytes before the footer (or,
if the
file is compressed, before the frame with the footer) and their CRC-32C. Paths then rise in that order without
duplicates: `code-points`, as in etcd and RocksDB, or `tree` (parents before their children, these by name),
as in
ZooKeeper and directories.
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


# What a head says it is; the number is that of the form.
HEAD: Final = "snapshot"
FOOT: Final = "values"
FORM: Final = 1
_MODULUS: Final = 1 << 256


class SumsDocument(TypedDict):
    """How many values, and the sums over all and over the lasting ones, in hex."""

    values: int
    sum: str
    sum_lasting: str


class SnapshotFoot(SumsDocument):
    """The last line of a snapshot; `changed_meanwhile` counts values of a store that did not stand still.

    What `order` and the two after it say stands in `codecs.snapshot_order`.
    """

    changed_meanwhile: NotRequired[int]
    order: NotRequired[Order]
    bytes_before: NotRequired[int]
    crc32c_before: NotRequired[int]


class SnapshotValue(TypedDict):
    """The line of a value; `value` is base64, times are in milliseconds."""

    path: str
    version: int
    value: str
    created: NotRequired[int]
    modified: NotRequired[int]
    ephemeral: NotRequired[bool]


class Sums:
    """The number of values and both sums, value by value. A parent has to come before what is below it."""

    def __init__(self) -> None:
        """Start with no values."""
        self.values = 0
        self._all = 0
        self._lasting = 0
        # Empty values of which nothing below was seen yet, with what they add.
        self._childless: dict[str, int] = {}
        self._parent = ""

    def add(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        """Take one more value."""
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
        """Return the foot's part that says so."""
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
    """Return the line of a value; times are in milliseconds, None where they are not known."""
    text = f'{{"path": {json.dumps(path)}, "version": {version}, "value": "'
    more = "" if created is None else f', "created": {created}'
    more += "" if modified is None else f', "modified": {modified}'
    more += ', "ephemeral": true' if ephemeral else ""
    return text.encode() + b2a_base64(value, newline=False) + b'"' + more.encode() + b"}\n"


def head_line(facts: Document) -> bytes:
    """Return the first line: `facts` about the store, marked as a snapshot's head."""
    return dumps({HEAD: FORM, **facts}).encode() + b"\n"


def foot_line(sums: Sums, facts: Document) -> bytes:
    """Return the last line: the sums, and `facts` about how the values were read."""
    return dumps({**sums.document(), **facts}).encode() + b"\n"


def is_head(line: Document) -> bool:
    """Return whether a line is a head; DecodeError for a form that is not known."""
    if "path" in line or HEAD not in line:
        return False
    if line[HEAD] != FORM:
        raise DecodeError(f"a snapshot of form {line[HEAD]!r}; known is {FORM}")
    return True


def is_foot(line: Document) -> bool:
    """Return whether a line is a foot."""
    return "path" not in line and HEAD not in line and type(line.get(FOOT)) is int


def check_foot(foot: Document, values: int, sums: Sums | None = None) -> None:
    """Raise DecodeError where a foot counts another number of values, or has other sums where they are known.

    The number of values is that of the lines before the foot.
    """
    if foot[FOOT] != values:
        raise DecodeError(f"the foot counts {foot[FOOT]} values, there are {values}")
    if sums is not None and (foot.get("sum"), foot.get("sum_lasting")) != (sums.everything, sums.lasting):
        raise DecodeError("the sums of the values are not those of the foot: values were changed")
