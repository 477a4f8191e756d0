"""Strings at many places of a buffer as numbers into the few different ones that there are.

Producer names repeat from entry to entry, so each different one is met, compared with all that are left,
and taken out; what is left after many rounds is read one by one. Needs NumPy.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column_words import Positions, Rows, WordReader

# Different strings that are looked for among all rows before the rest is read row by row.
_ROUNDS: Final = 32


def number_texts(
    view: memoryview, reader: WordReader, at: Positions, sizes: Positions, present: Rows
) -> tuple[Positions, tuple[str, ...]]:
    """Return (number of each row's string, the strings); 0 where `present` is false."""
    numbers = np.zeros(len(at), np.int64)
    names: dict[bytes, int] = {}
    left = np.flatnonzero(present)
    for _ in range(_ROUNDS):
        if not left.size:
            break
        first = left[0]
        start, size = int(at[first]), int(sizes[first])
        same = _equal(reader, at[left], sizes[left], start, size)
        numbers[left[same]] = names.setdefault(bytes(view[start : start + size]), len(names))
        left = left[~same]
    for row in left.tolist():
        start = int(at[row])
        numbers[row] = names.setdefault(bytes(view[start : start + int(sizes[row])]), len(names))
    return numbers, tuple(name.decode(errors="replace") for name in names) or ("",)


def _equal(reader: WordReader, at: Positions, sizes: Positions, start: int, size: int) -> Rows:
    """Tell where the same `size` bytes lie as at `start`."""
    same: Rows = sizes == size
    for step in range(0, size, 8):
        # Shifting the bytes past the string out of both words compares the rest.
        past = np.uint64(8 * max(0, step + 8 - size))
        sample = reader.words(np.array([start + step]))[0] << past
        same &= (reader.words(at + step) << past) == sample
        if not same.all():
            return _equal_rest(reader, at, same, start, step + 8, size)
    return same


def _equal_rest(reader: WordReader, at: Positions, same: Rows, start: int, done: int, size: int) -> Rows:
    """Go on with the rows that are still the same."""
    rows = np.flatnonzero(same)
    if done < size and rows.size:
        same[rows] = _equal(
            reader, at[rows] + done, np.full(len(rows), size - done), start + done, size - done
        )
    return same
