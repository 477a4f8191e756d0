"""Oxia's keys: their order, ranges of them, and which shard holds one.

Keys compare part by part between slashes, and the last part of a key comes before all parts that have
something below them; the low 32 bits of XXH3-64 say which shard holds a key.
Source: oxia-db/oxia common/compare, common/hash.
"""

from __future__ import annotations

from pulsar_meta.stores.base import prefixed

# The least character: a part with it at its end is the next one after that part.
NEXT = "\0"


def order(key: str) -> list[tuple[bool, bytes]]:
    """Return what sorts `key` among others as Oxia does."""
    parts = key.encode().split(b"/")
    last = len(parts) - 1
    return [(at < last, part) for at, part in enumerate(parts)]


def children_range(path: str) -> tuple[str, str]:
    """Return the range of the keys directly below `path`."""
    _, below = prefixed(path)
    return below, below + "/"


def subtree_range(path: str) -> tuple[str, str]:
    """Return the range of all keys below `path`, however deep."""
    _, below = prefixed(path)
    return below, f"{below[:-1]}{NEXT}/"


def next_key(key: str) -> str:
    """Return the first key that could come after `key`."""
    return key + NEXT


def key_hash(key: str) -> int:
    """Return the number that says which shard holds `key`."""
    import xxhash

    return xxhash.xxh3_64_intdigest(key.encode()) & 0xFFFFFFFF
