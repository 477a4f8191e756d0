"""Decompress the part of a damaged value that precedes the damage.

LZ4 and Snappy are decoded in Python, because their libraries decompress a block completely or not at all.

Sources: LZ4 block format (lz4/lz4, doc/lz4_Block_format.md), Snappy format (google/snappy,
format_description.txt).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

from pulsar_meta.codecs import backends

_MORE: Final = 15
_SHORTEST_MATCH: Final = 4
_LONGEST_VARINT: Final = 5


def salvage(codec: str, data: bytes | memoryview, limit: int) -> bytes:
    """Return the bytes that precede the damage in a compressed stream or block, at most `limit`."""
    if codec == "none":
        return bytes(data[:limit])
    return _SALVAGERS[codec](bytes(data), limit)[:limit]


def _zlib(data: bytes, limit: int) -> bytes:
    stream, out = zlib.decompressobj(), bytearray()
    # Byte by byte, because an error discards what the same call has decompressed.
    for at in range(len(data)):
        try:
            out += stream.decompress(data[at : at + 1], limit)
        except zlib.error:
            break
        if len(out) >= limit:
            break
    return bytes(out)


def _zstd(data: bytes, limit: int) -> bytes:
    library = backends.zstd()
    stream, out, at = library.stream(), bytearray(), 0
    while at < len(data) and len(out) < limit and not stream.eof:
        try:
            out += stream.decompress(data[at : at + 1])
        except library.error:
            break
        at += 1
    return bytes(out)


def _lz4(data: bytes, limit: int) -> bytes:
    out = bytearray()
    for literals, offset, size in _lz4_sequences(data):
        out += literals
        if not _copy(out, offset, size, limit):
            break
    return bytes(out)


def _lz4_sequences(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield the sequences of a block: literals, and offset and size of the match after them (0 for none)."""
    at = 0
    while at < len(data):
        token = data[at]
        count, at = _lz4_size(data, at + 1, token >> 4)
        literals, at = data[at : at + count], at + count
        if at + 2 > len(data):
            yield literals, 0, 0
            return
        offset = int.from_bytes(data[at : at + 2], "little")
        size, at = _lz4_size(data, at + 2, token & _MORE)
        # A size that is cut off is too small, but the fields before it are right.
        yield literals, offset, size + _SHORTEST_MATCH if at <= len(data) else 0


def _lz4_size(data: bytes, at: int, size: int) -> tuple[int, int]:
    """Read the rest of a size; the position is beyond the data if it is cut off."""
    if size < _MORE:
        return size, at
    while at < len(data):
        size, at = size + data[at], at + 1
        if data[at - 1] != 0xFF:
            return size, at
    return size, len(data) + 1


def _snappy(data: bytes, limit: int) -> bytes:
    out = bytearray()
    at = next((end for end, byte in enumerate(data[:_LONGEST_VARINT], 1) if byte < 0x80), len(data))
    while at < len(data) and len(out) < limit:
        tag = data[at]
        extra = (max(0, (tag >> 2) - 59), 1, 2, 4)[tag & 3]
        number, at = int.from_bytes(data[at + 1 : at + 1 + extra], "little"), at + 1 + extra
        if at > len(data):
            break
        if tag & 3 == 0:
            size = (number if extra else tag >> 2) + 1
            out += data[at : at + size]
            at += size
        elif tag & 3 == 1:
            if not _copy(out, tag >> 5 << 8 | number, (tag >> 2 & 7) + 4, limit):
                break
        elif not _copy(out, number, (tag >> 2) + 1, limit):
            break
    return bytes(out)


def _copy(out: bytearray, offset: int, size: int, limit: int) -> bool:
    """Append `size` bytes that begin `offset` bytes before the end; return False if that is impossible."""
    if not size or not 0 < offset <= len(out) or len(out) >= limit:
        return False
    size = min(size, limit - len(out))
    start = len(out) - offset
    piece = bytes(out[start : start + size])
    out += (piece * (size // len(piece) + 1))[:size]
    return True


_SALVAGERS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "zlib": _zlib,
    "zstd": _zstd,
    "lz4": _lz4,
    "snappy": _snappy,
}
