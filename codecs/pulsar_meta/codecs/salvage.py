"""Decompress the part of a damaged value that precedes the damage.

The libraries decompress raw LZ4 and Snappy blocks completely or not at all. But a prefix of a block that ends
after an element is a valid block, so `salvage` searches for the longest prefix that the library accepts.

Sources: lz4_Block_format.md; Snappy's format_description.txt.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

_STEP: Final = 64
# Limits of the search: prefixes tried, bytes decompressed, and elements.
_TRIES: Final = 4096
_WORK: Final = 2**30
_ELEMENTS: Final = 2**20


def salvage(codec: str, data: bytes | memoryview, limit: int) -> bytes:
    """Return the bytes that precede the damage in a compressed stream or block, at most `limit`."""
    if codec == "none":
        return bytes(data[:limit])
    return b"".join(_SALVAGERS[codec](bytes(data), limit))[:limit]


def _zlib(data: bytes, limit: int) -> Iterator[bytes]:
    stream = zlib.decompressobj()
    for at in range(0, len(data), _STEP):
        try:
            piece = stream.decompress(data[at : at + _STEP], limit)
        except zlib.error:
            return
        yield piece
        limit -= len(piece)
        if limit <= 0:
            return


def _zstd(data: bytes, limit: int) -> Iterator[bytes]:
    import zstandard

    with zstandard.ZstdDecompressor().stream_reader(data) as stream:
        while limit > 0:
            try:
                piece = stream.read(min(limit, _STEP))
            except zstandard.ZstdError:
                return
            if not piece:
                return
            yield piece
            limit -= len(piece)


def _lz4(data: bytes, limit: int) -> Iterator[bytes]:
    whole, reached = _lz4_block(data, limit)
    # A prefix beyond the position that the library reports can't be a valid block.
    ends = range(min(reached, len(data)), 0, -1)[: min(_TRIES, _WORK // max(limit, 1) + 1)]
    prefixes = (_lz4_block(data[:end], limit)[0] for end in ends if whole is None)
    yield whole or next((raw for raw in prefixes if raw is not None), b"")


def _lz4_block(data: bytes, limit: int) -> tuple[bytes | None, int]:
    """Return a block's bytes, or None if it is not valid, and how far the library read."""
    import lz4.block

    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=limit)), len(data)
    except lz4.block.LZ4BlockError as error:
        position = re.search(r"Error code: (\d+)", str(error))
        return None, int(position[1]) + 1 if position else len(data)


def _snappy(data: bytes, limit: int) -> Iterator[bytes]:
    import snappy

    start = next((at + 1 for at, byte in enumerate(data[:5]) if byte < 0x80), len(data))
    ends = list(islice(_snappy_elements(data, start, limit), _ELEMENTS))

    def prefix(count: int) -> bytes | None:
        end, size = ends[count - 1]
        try:
            return bytes(snappy.uncompress(_varint(size) + data[start:end]))
        except snappy.UncompressError:
            return None

    good = bisect_left(range(1, len(ends) + 1), True, key=lambda count: prefix(count) is None)
    yield (prefix(good) if good else None) or b""


def _snappy_elements(data: bytes, at: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the end of each element in a block, and the decompressed size up to that point."""
    size = 0
    while at < len(data):
        tag = data[at]
        kind, length = tag & 3, (tag >> 2) + 1
        if kind == 0:
            more = max(length - 60, 0)
            if more:
                length = int.from_bytes(data[at + 1 : at + 1 + more], "little") + 1
            at += 1 + more + length
        else:
            length = (tag >> 2 & 7) + 4 if kind == 1 else length
            at += (2, 3, 5)[kind - 1]
        size += length
        if at > len(data) or size > limit:
            return
        yield at, size


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


_SALVAGERS: Final[dict[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    "zlib": _zlib,
    "zstd": _zstd,
    "lz4": _lz4,
    "snappy": _snappy,
}
