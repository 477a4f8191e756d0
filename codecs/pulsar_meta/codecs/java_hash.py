"""In which order a java.util.HashMap with string keys hands them out.

Pulsar writes lists in that order in several places. Lists in a bucket that became trees (eight keys that
collide in a table of 64) are not imitated: those keys keep the order of their insertion here.
Source: the specification of java.lang.String.hashCode; OpenJDK java.util.HashMap (spread, resize).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HASH_MAP_CAPACITY: Final = 16


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned 32-bit number (over the UTF-16 units)."""
    number = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        number = (31 * number + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return number


def grown_capacity(capacity: int, count: int) -> int:
    """Return the size of the table after `count` keys were put into one of size `capacity`."""
    while count * 4 > capacity * 3:
        capacity *= 2
    return capacity


def hash_map_order(keys: Sequence[str], capacity: int) -> list[str]:
    """Return keys, given in the order of their insertion, in that of a table of size `capacity`."""
    return sorted(keys, key=lambda key: _bucket(string_hash(key), capacity))


def _bucket(number: int, capacity: int) -> int:
    return (number ^ number >> 16) & (capacity - 1)
