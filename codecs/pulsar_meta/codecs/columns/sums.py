"""The CRC-32C of many entries: the library computes each payload's, and the rest is computed together.

A bookie's digest covers the bytes of the frame's checksum and a few bytes before them. A CRC is linear
over bits, so the digest is computed from the checksum, without a second pass over the payload.

Needs NumPy. Sources: RFC 3720 B.4; `crc32_combine` of zlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.words import Positions, Words
from pulsar_meta.codecs.reader import Buffer

Sums = NDArray[np.uint32]

_POLYNOMIAL: Final = 0x82F63B78
_BYTE: Final = 256


def crc32c_of(data: Buffer, starts: Positions, ends: Positions) -> Sums:
    """Return the CRC-32C of the bytes in each [start, end)."""
    # The library refuses a view, whose bytes would have to be copied, but takes a part of an array as it is.
    sum_of, whole = google_crc32c.value, np.frombuffer(data, np.uint8)
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter([sum_of(whole[start:end]) for start, end in places], np.uint32, len(starts))


def crc32c_of_words(words: Sequence[Words], size: int) -> Sums:
    """Return the CRC-32C of each row's first `size` bytes, which are those of `words` one after the other."""
    steps = _after_zeros(size)
    first = b"".join(int(word[0]).to_bytes(8, "little") for word in words)[:size]
    sums: Sums = np.full(len(words[0]), google_crc32c.value(first), np.uint32)
    # The difference of two rows determines that of their sums, and most bytes are equal in all rows.
    for start, word in zip(range(0, size, 8), words, strict=True):
        changes = word ^ word[0]
        anywhere, octets = int(np.bitwise_or.reduce(changes)), changes.view(np.uint8).reshape(-1, 8)
        for at in range(min(8, size - start)):
            if anywhere >> 8 * at & 0xFF:
                sums ^= steps[size - 1 - start - at][octets[:, at]]
    return sums


def joined(first: Sums, second: Sums, sizes: Positions) -> Sums:
    """Return the CRC-32C of two concatenated texts of each row; `sizes` are those of the second."""
    left, place = sizes.copy(), 0
    while left.any():
        first = _shifted(_shifts(place), first, left % _BYTE)
        left, place = left // _BYTE, place + 1
    return first ^ second


@cache
def _table() -> Sums:
    """Return the register after one byte, by the byte."""
    table = np.arange(_BYTE, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


def _zero(register: Sums) -> Sums:
    """Return the register after one more byte that is zero."""
    after: Sums = _table()[register & 0xFF] ^ register >> 8
    return after


@cache
def _after_zeros(count: int) -> list[Sums]:
    """Return the tables of a byte that 0, 1 … `count` - 1 zeros follow."""
    tables = [_table()]
    while len(tables) < count:
        tables.append(_zero(tables[-1]))
    return tables


@cache
def _shifts(place: int) -> NDArray[np.uint32]:
    """Return each byte of a register after 0 to 255 times 256 ** `place` zeros."""
    bytes_of = np.arange(_BYTE, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, np.newaxis]
    tables = [bytes_of.astype(np.uint32)]
    whole = None if place == 0 else _shifts(place - 1)
    while len(tables) < _BYTE:
        last = tables[-1]
        if whole is None:
            tables.append(_zero(last))
        else:
            most, one = np.full(last.size, _BYTE - 1), np.ones(last.size, np.int64)
            further = _shifted(whole, _shifted(whole, last.ravel(), most), one)
            tables.append(further.reshape(last.shape))
    return np.stack(tables)


def _shifted(tables: NDArray[np.uint32], register: Sums, times: Positions) -> Sums:
    """Return each register after as many zeros as `tables` have for its number of `times`."""
    flat, base = tables.ravel(), times * (4 * _BYTE)
    shifted = flat[base + (register & 0xFF)]
    for at in range(1, 4):
        shifted ^= flat[base + (at * _BYTE) + (register >> np.uint32(8 * at) & 0xFF)]
    return shifted
