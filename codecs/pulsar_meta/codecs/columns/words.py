"""Read words and varints at many places of a buffer, or in the first bytes of many entries, at once.

Each row of an array is an entry, and no code loops over rows. Bytes that are read repeatedly are copied into
a small block (`Heads`), so they stay in the processor's cache. If a place is the same in all entries, it is a
single number instead of one number per row.

Needs NumPy. Sources: protobuf encoding (base-128 varints, little-endian groups of seven bits); Arrow's
columnar format, "Variable-size Binary View Layout".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.backends import has_arrow
from pulsar_meta.codecs.reader import Buffer

Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Rows = NDArray[np.bool_]
# An offset from the start of an entry: a single number for all rows, or one number per row.
Place = int | Positions
# A selection of rows: their numbers, or a slice.
Selection = Positions | slice

EVERY: Final = slice(None)
# A tag and the longest varint after it, read by words from a message's last byte on, end within this.
MARGIN: Final = 24
LONGEST_VARINT: Final = 10
# The length of an invalid varint, which is beyond the end of every entry.
NO_VARINT: Final = 1 << 31

_ONE: Final = np.uint64(1)
_CONTINUES: Final = np.uint64(0x8080808080808080)
# By the length of a varint: its continuation bits, their values, and the bits of its number.
_STOP_BITS: Final = tuple(np.uint64(0x8080808080808080 & ((1 << 8 * size) - 1)) for size in range(9))
_STOPS: Final = tuple(np.uint64(0x8080808080808080 & ((1 << 8 * max(0, size - 1)) - 1)) for size in range(9))
_PAYLOADS: Final = tuple(np.uint64(0x7F7F7F7F7F7F7F7F & ((1 << 8 * size) - 1)) for size in range(9))
# Three steps that close the gaps of one bit between groups of 7, then 14, then 28 bits.
_CLOSE: Final = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(shift))
    for low, high, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)


class WordReader:
    """Words of 8 bytes at any byte position up to `size - 8` of a buffer."""

    def __init__(self, data: Buffer) -> None:
        self.size, self._bytes = memoryview(data).nbytes, data
        words = max(0, self.size - 7)
        enough = data if words else b""
        self._numbers: Positions = np.ndarray((words,), ">i8", buffer=enough, strides=(1,))
        self._sizes: NDArray[np.int32] = np.ndarray((words,), ">i4", buffer=enough, strides=(1,))
        self._words: Words = np.ndarray((words,), "<u8", buffer=enough, strides=(1,))
        self._pairs: NDArray[np.uint16] = np.ndarray((words,), "<u2", buffer=enough, strides=(1,))

    def words(self, at: Positions) -> Words:
        """Return the eight bytes at each position, little-endian."""
        return self._words[at]

    def pairs(self, at: Positions) -> NDArray[np.uint16]:
        """Return the two bytes at each position, little-endian."""
        return self._pairs[at]

    def windows(self, at: Positions, width: int) -> NDArray[np.uint8]:
        """Return the `width` bytes at each position, one row per position. All bytes must exist."""
        every = np.ndarray((self.size - width + 1,), f"V{width}", buffer=self._bytes, strides=(1,))
        return every[at].view(np.uint8).reshape(-1, width)

    def big_endian(self, at: Positions) -> Positions:
        """Return the big-endian int64 at each position."""
        return self._numbers[at].astype(np.int64)

    def sizes(self, at: Positions) -> Positions:
        """Return the big-endian int32 at each position."""
        return self._sizes[at].astype(np.int64)


class Heads:
    """Copies of the first `width` bytes of the entries that begin at `starts` of `data`.

    The caller must make sure that `data` has all these bytes, and that it reads only at places up to
    `width - MARGIN`, and at most `MARGIN - 8` bytes beyond. Nothing is checked.
    """

    def __init__(self, data: Buffer, starts: Positions, width: int) -> None:
        size = memoryview(data).nbytes
        every = np.ndarray((size - width + 1,), f"V{width}", buffer=data, strides=(1,))
        # The distance between rows, which is also the number of bytes that each row has.
        self._even: int | None = width
        self._set(every[starts].view(np.uint8), np.arange(len(starts)) * width, width)

    @classmethod
    def within(cls, data: Buffer, starts: Positions) -> Heads:
        """Return heads that are views; `data` needs MARGIN bytes after the last place that is read."""
        heads = object.__new__(cls)
        heads._even = None
        heads._set(np.frombuffer(data, np.uint8), starts, memoryview(data).nbytes)
        return heads

    def _set(self, data: NDArray[np.uint8], firsts: Positions, width: int) -> None:
        self.width, self.count = width, len(firsts)
        self._bytes, self._firsts = data, firsts
        self._words: Words = np.ndarray((max(0, data.size - 7),), "<u8", buffer=data, strides=(1,))

    def with_rows(self, rows: Positions, others: Heads) -> Heads:
        """Return heads with `others` in some rows. Only these rows are as wide as `others`."""
        joined, firsts = object.__new__(Heads), self._firsts.copy()
        firsts[rows] = others._firsts + self._bytes.size
        joined._even = self._even
        joined._set(np.concatenate([self._bytes, others._bytes]), firsts, others.width)
        return joined

    def of(self, rows: Selection) -> Heads:
        """Return a view of the heads of some rows."""
        if isinstance(rows, slice):
            return self
        some = object.__new__(Heads)
        some._even = None
        some._set(self._bytes, self._firsts[rows], self.width)
        return some

    def words(self, at: Place, rows: Selection = EVERY) -> Words:
        """Return the eight bytes at a place of the rows, little-endian."""
        if isinstance(at, int) and self._even is not None and at + 8 <= self._even:
            column: Words = self._words[at : self.count * self._even : self._even][rows].copy()
        else:
            column = self._words[self._firsts[rows] + at]
        return column

    def byte(self, at: Place, rows: Selection = EVERY) -> NDArray[np.uint8]:
        """Return the byte at a place of the rows."""
        if isinstance(at, int) and self._even is not None and at < self._even:
            column: NDArray[np.uint8] = self._bytes[at : self.count * self._even : self._even][rows].copy()
        else:
            column = self._bytes[self._firsts[rows] + at]
        return column

    def big_endian(self, at: Place) -> Words:
        """Return the eight bytes at a place of each row, big-endian."""
        return self.words(at).byteswap()

    def text(self, row: int, at: int, size: int) -> bytes:
        """Return `size` bytes at a place of one row."""
        first = int(self._firsts[row]) + at
        return self._bytes[first : first + size].tobytes()

    def strings(
        self, rows: Positions, at: Positions, sizes: Positions
    ) -> tuple[NDArray[np.uint8], Positions]:
        """Return a string of each of some rows: the concatenated bytes, and the starts and the total size."""
        places = np.concatenate([[0], np.cumsum(sizes)])
        first = self._firsts[rows] + at - places[:-1]
        return self._bytes[np.repeat(first, sizes) + np.arange(places[-1])], places

    def varints(self, at: Place, rows: Selection, words: Words, known: int) -> tuple[Words, Place]:
        """Return (value, length in bytes) of the varint at a place of the rows; NO_VARINT if there is none.

        `words` has the first `known` bytes at that place, which the caller has already read.
        """
        length = _common_length(words)
        if 0 < length <= known:
            return _close_gaps(words & _PAYLOADS[length], length), length
        values, lengths = short_varints(words)
        return (values, lengths) if (lengths <= known).all() else self._varints_of_all_lengths(at, rows)

    def varint_lengths(self, at: Place, rows: Selection, words: Words, known: int) -> Place:
        """Return only the lengths of varints, which is faster than `varints`."""
        length = _common_length(words)
        if 0 < length <= known:
            return length
        _, lengths = groups_of(words)
        return lengths if (lengths <= known).all() else self._varints_of_all_lengths(at, rows)[1]

    def _varints_of_all_lengths(self, at: Place, rows: Selection) -> tuple[Words, Positions]:
        values, lengths = short_varints(self.words(at, rows))
        long = lengths == NO_VARINT
        if long.any():
            high = self.words(at + 8, rows)
            ninth, tenth = high & np.uint64(0xFF), (high >> np.uint64(8)) & np.uint64(0xFF)
            nine = long & (ninth < 0x80)
            ten = long & (ninth >= 0x80) & (tenth < 2)
            values |= np.where(long, (ninth & np.uint64(0x7F)) << np.uint64(56), np.uint64(0))
            values |= np.where(ten, tenth << np.uint64(63), np.uint64(0))
            lengths[nine] = 9
            lengths[ten] = LONGEST_VARINT
        return values, lengths


def short_varints(words: Words) -> tuple[Words, Positions]:
    """Return (value, length in bytes) of the varint at the start of each word; NO_VARINT if it is longer."""
    groups, lengths = groups_of(words)
    return _close_gaps(groups, min(8, int(lengths.max(initial=1)))), lengths


def groups_of(words: Words) -> tuple[Words, Positions]:
    """Return (groups of seven bits, length in bytes) of each word's varint; NO_VARINT if it is longer."""
    stops = ~words & _CONTINUES
    within = stops ^ (stops - _ONE)
    lengths = (np.bitwise_count(within) >> 3).astype(np.int64)
    if (lengths == 8).any():
        lengths[stops == 0] = NO_VARINT
    within &= words
    within &= ~_CONTINUES
    return within, lengths


def common(places: Positions) -> Place:
    """Return a single number if all places are equal, else all places."""
    first = int(places[0])
    return first if (places == first).all() else places


def nearer(one: Place, other: Place) -> Place:
    """Return the smaller of two places."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return common(np.minimum(one, other))


def picked(place: Place, numbers: Positions) -> Place:
    """Return a place for some of its rows only, by their numbers."""
    return place if isinstance(place, int) else place[numbers]


def replaced(values: NDArray[Any], rows: Positions, others: Any) -> NDArray[Any]:
    """Return a copy with other values in some rows."""
    changed = values.copy()
    changed[rows] = others
    return changed


def anywhere(mask: Rows | bool) -> bool:
    """Return True if any row is true; `mask` may be a single value for all rows."""
    return mask if isinstance(mask, bool) else bool(mask.any())


def everywhere(mask: Rows | bool) -> bool:
    """Return True if all rows are true; `mask` may be a single value for all rows."""
    return mask if isinstance(mask, bool) else bool(mask.all())


def _common_length(words: Words) -> int:
    """Return the length of the varints at the start of all words; 0 if it differs or exceeds 8."""
    stops = ~int(words[0]) & int(_CONTINUES)
    length = (stops & -stops).bit_length() // 8
    return length if length and (words & _STOP_BITS[length] == _STOPS[length]).all() else 0


def _close_gaps(groups: Words, length: int = 8) -> Words:
    """Return the numbers whose groups of seven bits are in the lowest `length` bytes of each word."""
    for low, high, shift in _CLOSE[: (length - 1).bit_length()]:
        upper = groups & high
        upper >>= shift
        groups = groups & low
        groups |= upper
    return groups


def number_texts(
    heads: Heads, at: Positions, sizes: Positions, present: Rows
) -> tuple[Positions, tuple[str, ...]]:
    """Return (number of each row's string, the strings); the number is 0 if `present` is false."""
    numbers, firsts = number_strings(heads, at, sizes, present)
    names = (heads.text(row, int(at[row]), int(sizes[row])) for row in firsts.tolist())
    return numbers, tuple(name.decode(errors="replace") for name in names) or ("",)


def number_strings(
    heads: Heads, at: Positions, sizes: Positions, present: Rows
) -> tuple[Positions, Positions]:
    """Return (number of each row's string, a row that has the string of each number).

    The number is 0 if `present` is false.
    """
    numbers, rows = np.zeros(heads.count, np.int64), np.flatnonzero(present)
    if not rows.size:
        return numbers, rows
    if rows.size < heads.count:
        heads, at, sizes = heads.of(rows), at[rows], sizes[rows]
    words = list(_string_words(heads, at, sizes))
    sums = sizes.view(np.uint64).copy()
    for some, word in words:
        mixed = (sums[some] ^ word) * _MIXER
        sums[some] = mixed ^ mixed >> np.uint64(29)
    known, found = np.unique(sums, return_inverse=True)
    firsts = np.empty(len(known), np.int64)
    firsts[found] = np.arange(rows.size)
    same = sizes == sizes[firsts[found]]
    for some, word in words:
        column = np.zeros(rows.size, np.uint64)
        column[some] = word
        same &= column == column[firsts[found]]
    # Other strings with the same sum, which are rare unless they were made on purpose.
    names: dict[bytes, int] = {}
    others: list[int] = []
    for row in np.flatnonzero(~same).tolist():
        name = heads.text(row, int(at[row]), int(sizes[row]))
        found[row] = names.setdefault(name, len(firsts) + len(names))
        if len(names) > len(others):
            others.append(row)
    numbers[rows] = found
    return numbers, rows[np.concatenate([firsts, others]).astype(np.int64)]


def _string_words(heads: Heads, at: Positions, sizes: Positions) -> Iterator[tuple[Selection, Words]]:
    """Yield strings eight bytes at a time: the rows that are long enough, and words padded with zeros."""
    for step in range(0, int(sizes.max()), 8):
        longer = sizes > step
        some: Selection = EVERY if longer.all() else np.flatnonzero(longer)
        past = np.maximum(8 - (sizes[some] - step), 0).astype(np.uint64) * np.uint64(8)
        yield some, heads.words(common(at[some]) + step, some) << past


# Arrow stores shorter pieces inside the views.
SHORTEST: Final = 13
_BITS: Final = 30


def sized_pieces(data: Buffer, starts: Positions, sizes: Positions) -> memoryview:
    """Concatenate pieces of at least SHORTEST bytes, each prefixed with its size (4 bytes, big-endian)."""
    whole = memoryview(data)
    if not has_arrow():
        places = zip(starts.tolist(), sizes.tolist(), strict=True)
        pieces = [part for at, size in places for part in (size.to_bytes(4, "big"), whole[at : at + size])]
        return memoryview(b"".join(pieces))
    # Imported late, because the other functions don't need PyArrow.
    import pyarrow as pa

    views = np.zeros((len(starts), 2, 4), np.int32)
    views[:, 0, 0] = 4
    views[:, 0, 1] = sizes.astype(">i4").view("<i4")
    views[:, 1, 0] = sizes
    views[:, 1, 1] = WordReader(data).words(starts).astype(np.uint32).view(np.int32)
    views[:, 1, 2] = starts >> _BITS
    views[:, 1, 3] = starts & ((1 << _BITS) - 1)
    parts = [pa.py_buffer(whole[at:]) for at in range(0, int(starts.max()) + 1, 1 << _BITS)]
    array = pa.Array.from_buffers(pa.binary_view(), views.size // 4, [None, pa.py_buffer(views), *parts])
    _, _, joined = array.cast(pa.binary()).buffers()
    return memoryview(joined)[: int(sizes.sum()) + 4 * len(sizes)]
