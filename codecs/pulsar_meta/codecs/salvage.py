"""What a damaged compressed value holds before the damage, as far as the libraries give it away.

Raw LZ4 and Snappy blocks are decompressed whole or not at all. But a beginning of a block that ends where an
element does is a block of its own, so the longest one that is accepted is looked for.

Sources: the LZ4 block format and Snappy's format description (lz4_Block_format.md, format_description.txt).
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

_STEP: Final = 64
# How often a beginning of a block is tried, and how many bytes are decompressed for that.
_TRIES: Final = 4096
_WORK: Final = 2**30
_ELEMENTS: Final = 2**20


def salvage(codec: str, data: bytes | memoryview, limit: int) -> bytes:
    """Return what comes out of a damaged stream or block before the damage, at most `limit` bytes."""
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
    found, reached = _lz4_block(data, limit)
    # Nothing after the place that the library names can be a whole block.
    ends = range(min(reached, len(data)), 0, -1)[: min(_TRIES, _WORK // max(limit, 1) + 1)]
    tried = (_lz4_block(data[:end], limit)[0] for end in ends if found is None)
    yield found or next((block for block in tried if block is not None), b"")


def _lz4_block(data: bytes, limit: int) -> tuple[bytes | None, int]:
    """Return what a whole block stands for, None for what is none, and how far the library came."""
    import lz4.block

    try:
        return bytes(lz4.block.decompress(data, uncompressed_size=limit)), len(data)
    except lz4.block.LZ4BlockError as error:
        found = re.search(r"Error code: (\d+)", str(error))
        return None, int(found[1]) + 1 if found else len(data)


def _snappy(data: bytes, limit: int) -> Iterator[bytes]:
    import snappy

    start = next((at + 1 for at, byte in enumerate(data[:5]) if byte < 0x80), len(data))
    ends = list(islice(_snappy_elements(data, start, limit), _ELEMENTS))

    def first(count: int) -> bytes | None:
        end, size = ends[count - 1]
        try:
            return bytes(snappy.uncompress(_varint(size) + data[start:end]))
        except snappy.UncompressError:
            return None

    good = bisect_left(range(1, len(ends) + 1), True, key=lambda count: first(count) is None)
    yield (first(good) if good else None) or b""


def _snappy_elements(data: bytes, at: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield where each element of a block ends and how many bytes the block stands for up to there."""
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
