"""CRC-32C (Castagnoli), and the iteration order of a java.util.HashMap with string keys.

Pulsar writes several lists in that order. Buckets that Java turns into trees (eight colliding keys in a table
of 64 or more) are not imitated; their keys keep the order of insertion.

Sources: RFC 3720 B.4 (the CRC-32C of "123456789" is 0xE3069283); java.lang.String.hashCode; OpenJDK
java.util.HashMap (spread, resize).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO, Final, Literal

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.reader import Buffer

# The result of checking a checksum. Digests are "unchecked" without the ledger's password.
Verdict = Literal["ok", "bad", "absent", "unchecked"]

# The library only accepts `bytes`, so views are copied in pieces of this size.
_PIECE: Final = 1 << 20


def crc32c(*parts: Buffer, before: int = 0) -> int:
    """Return the CRC-32C of the concatenated `parts`, continuing from `before`, the CRC of earlier bytes."""
    extend, value = backends.crc32c().extend, before
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            value = extend(value, bytes(view[start : start + _PIECE]))
    return value


def crc32c_of_file(file: BinaryIO, size: int) -> int | None:
    """Return the CRC-32C of the first `size` bytes of a file, or None if it is shorter. Raises OSError."""
    extend, value, at = backends.crc32c().extend, 0, 0
    file.seek(0)
    while at < size:
        piece = file.read(min(_PIECE, size - at))
        if not piece:
            return None
        value = extend(value, piece)
        at += len(piece)
    return value


HASH_MAP_CAPACITY: Final = 16


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned 32-bit number (over the UTF-16 units)."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        number = (31 * number + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return number


def grown_capacity(capacity: int, count: int) -> int:
    """Return the size of a hash table of initial size `capacity` after `count` keys were added."""
    while count * 4 > capacity * 3:
        capacity *= 2
    return capacity


def hash_map_order(keys: Sequence[str], capacity: int) -> list[str]:
    """Return `keys` (in order of insertion) in the iteration order of a table of size `capacity`."""
    return sorted(keys, key=lambda key: _bucket(string_hash(key), capacity))


def _bucket(number: int, capacity: int) -> int:
    return (number ^ number >> 16) & (capacity - 1)
