"""Eight bytes at any place of a buffer, for many places at once, and the varints that begin there.

The rows of an array are entries; nothing here loops over them. Import it only where columns are wanted:
it needs NumPy.

Source: protobuf encoding (base-128 varints, little-endian groups of seven bits).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.checksum import Buffer

Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Rows = NDArray[np.bool_]

# A tag and the longest varint after it, read by words from an entry's last byte on, end within this.
MARGIN: Final = 24
LONGEST_VARINT: Final = 10

_ONE: Final = np.uint64(1)
_CONTINUES: Final = np.uint64(0x8080808080808080)
# Three steps that close the gaps of one bit between groups of 7, then 14, then 28 bits.
_CLOSE: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
# By the length of a varint: the bits that say whether it goes on, what they are, and the bits of its number.
_STOP_BITS: Final = tuple(np.uint64(0x8080808080808080 & ((1 << 8 * size) - 1)) for size in range(9))
_STOPS: Final = tuple(np.uint64(0x8080808080808080 & ((1 << 8 * max(0, size - 1)) - 1)) for size in range(9))
_PAYLOADS: Final = tuple(np.uint64(0x7F7F7F7F7F7F7F7F & ((1 << 8 * size) - 1)) for size in range(9))


class WordReader:
    """Little-endian words of 8 bytes at any byte position of a buffer.

    Positions up to `size - MARGIN` may be read at and `MARGIN - 8` bytes beyond; nothing else is checked.
    """

    def __init__(self, data: Buffer) -> None:
        self.size = memoryview(data).nbytes
        self._words: Words = np.ndarray(
            (max(0, self.size - 7),), dtype="<u8", buffer=data if self.size > 7 else b"", strides=(1,)
        )

    def words(self, at: Positions) -> Words:
        """Return the eight bytes from each position, the first byte lowest."""
        return self._words[at]

    def big_endian(self, at: Positions) -> Positions:
        """Return the big-endian int64 at each position."""
        return self._words[at].byteswap().view(np.int64)

    def varints(self, at: Positions) -> tuple[Words, Positions]:
        """Return (value, length in bytes) of the varint at each position; length 0 where there is none."""
        values, lengths = self.varints_of(self._words[at], at, 8)
        return values, np.broadcast_to(lengths, values.shape)

    def varints_of(self, words: Words, at: Positions, known: int) -> tuple[Words, Positions]:
        """Return what `varints` does, from words already read of which the `known` lowest bytes are valid.

        Where all varints are equally long there is only one length, for all rows.
        """
        length = _first_length(words)
        if length <= known and (words & _STOP_BITS[length] == _STOPS[length]).all():
            return _close_gaps(words & _PAYLOADS[length], length), np.array([length], np.int64)
        stops = ~words & _CONTINUES
        lowest = stops & (~stops + _ONE)
        below = lowest - _ONE
        lengths: Positions = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        values = _close_gaps(words & below & ~_CONTINUES)
        long = (lengths > known) | (stops == 0)
        if long.any():
            values[long], lengths[long] = self._long_varints(at[long])
        return values, lengths

    def _long_varints(self, at: Positions) -> tuple[Words, Positions]:
        low = self._words[at]
        stops = ~low & _CONTINUES
        short = stops != 0
        below = (stops & (~stops + _ONE)) - _ONE
        values = _close_gaps(low & below & ~_CONTINUES)
        lengths: Positions = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        high = self._words[at + 8]
        ninth, tenth = high & np.uint64(0xFF), (high >> np.uint64(8)) & np.uint64(0xFF)
        nine = ~short & (ninth < 0x80)
        ten = ~short & ~nine & (tenth < 2)
        values |= np.where(short, np.uint64(0), (ninth & np.uint64(0x7F)) << np.uint64(56))
        values |= np.where(ten, tenth << np.uint64(63), np.uint64(0))
        lengths[~short] = 0
        lengths[nine] = 9
        lengths[ten] = LONGEST_VARINT
        return values, lengths


def _first_length(words: Words) -> int:
    """Return the length of the first varint, over 8 where it is longer or there is none."""
    if not len(words):
        return LONGEST_VARINT
    stops = ~int(words[0]) & int(_CONTINUES)
    return ((stops & -stops).bit_length() + 7) // 8 if stops else LONGEST_VARINT


def _close_gaps(groups: Words, length: int = 8) -> Words:
    """Return the number whose groups of seven bits lie in the lowest `length` bytes of each word."""
    for low, high, shift in _CLOSE[: (length - 1).bit_length()]:
        groups = (groups & low) | ((groups & high) >> shift)
    return groups
