"""A column: the same value of many entries. Needs NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.column_words import Rows

_SIGN: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Column:
    """Values, and where they are there at all. Text is a number into `names`.

    Integers are int64; an unsigned number over 2⁶³-1 wraps, as it does in Java.
    """

    values: NDArray[Any]
    present: Rows
    names: tuple[str, ...] | None = None

    def tolist(self) -> list[Any]:
        """Return plain Python values, None where there is none."""
        values = self.values.tolist()
        if self.names is not None:
            values = [self.names[value] for value in values]
        return [value if there else None for value, there in zip(values, self.present.tolist(), strict=True)]

    def with_values(self, rows: Sequence[int], values: Sequence[int | bool | str | None]) -> Column:
        """Return the column with other values in some rows, None for none."""
        changed, present = self.values.copy(), self.present.copy()
        names = list(self.names or ())
        numbers = {name: number for number, name in enumerate(names)}
        for row, value in zip(rows, values, strict=True):
            present[row] = value is not None
            if isinstance(value, str):
                if value not in numbers:
                    numbers[value] = len(names)
                    names.append(value)
                changed[row] = numbers[value]
            else:
                changed[row] = wrapped(value or 0)
        return Column(changed, present, None if self.names is None else tuple(names) or ("",))

    def chosen(self, rows: Rows) -> Column:
        """Return the column with only the rows where `rows` is true."""
        return Column(self.values[rows], self.present[rows], self.names)


def wrapped(value: int) -> int:
    """Return an unsigned 64-bit number as Java's long has it."""
    return value - 2 * _SIGN if value >= _SIGN else value


def join_columns(parts: Sequence[Column]) -> Column:
    """Return one column that has the rows of all `parts`; all are text or none is."""
    if len(parts) == 1:
        return parts[0]
    present = np.concatenate([part.present for part in parts])
    if parts[0].names is None:
        return Column(np.concatenate([part.values for part in parts]), present)
    numbers: dict[str, int] = {}
    values = []
    for part in parts:
        renumbered = [numbers.setdefault(name, len(numbers)) for name in part.names or ("",)]
        values.append(np.array(renumbered, np.int64)[part.values])
    return Column(np.concatenate(values), present, tuple(numbers))
