"""Strings at many places of a buffer as numbers into the few different ones that there are.

Producer names repeat from entry to entry, so each different one is met, compared with all that are left,
and taken out; what is left after many rounds is read one by one. Needs NumPy.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column_heads import Heads, common
from pulsar_meta.codecs.columns.column_words import Positions, Rows

# Different strings that are looked for among all rows before the rest is read row by row.
_ROUNDS: Final = 32


def number_texts(
    heads: Heads, at: Positions, sizes: Positions, present: Rows
) -> tuple[Positions, tuple[str, ...]]:
    """Return (number of each row's string, the strings); 0 where `present` is false."""
    numbers = np.zeros(heads.count, np.int64)
    names: dict[bytes, int] = {}
    left = np.flatnonzero(present)
    for _ in range(_ROUNDS):
        if not left.size:
            break
        sample = heads.text(int(left[0]), int(at[left[0]]), int(sizes[left[0]]))
        same = _equal(heads, left, at[left], sizes[left], sample)
        numbers[left[same]] = names.setdefault(sample, len(names))
        left = left[~same]
    for row in left.tolist():
        name = heads.text(row, int(at[row]), int(sizes[row]))
        numbers[row] = names.setdefault(name, len(names))
    return numbers, tuple(name.decode(errors="replace") for name in names) or ("",)


def _equal(heads: Heads, rows: Positions, at: Positions, sizes: Positions, sample: bytes) -> Rows:
    """Tell in which of `rows` the bytes at `at` are `sample`."""
    same: Rows = sizes == len(sample)
    place = common(at)
    for step in range(0, len(sample), 8):
        piece = sample[step : step + 8]
        # Shifting the bytes past the sample out of the words compares the rest.
        past = np.uint64(8 * (8 - len(piece)))
        same &= (heads.words(place + step, rows) << past) == int.from_bytes(piece, "little") << int(past)
    return same
