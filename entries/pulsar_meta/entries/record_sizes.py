"""The sizes of records at the locations in an index, as NumPy columns.

Source: apache/bookkeeper EntryLogger. An entry follows its size of 4 bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.words import Positions, WordReader
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import Located

_SIZE = 4
_IDS = 16


def record_sizes(files: DataFiles, number: int, offsets: Positions) -> Positions:
    """Return the size of each record including its size field, or 0 if no record fits at the offset.

    Raises DecodeError if the file is missing, UnreachableError if it can't be read.
    """
    view = files.view(number)
    within = (offsets >= _SIZE) & (offsets <= len(view) - 8)
    sizes = np.zeros(len(offsets), np.int64)
    if within.any():
        sizes[within] = WordReader(view).sizes(offsets[within] - _SIZE)
    files.check(number)
    return np.where((sizes > 0) & (offsets + sizes <= len(view)), sizes + _SIZE, 0)


def within_files(located: Located) -> Positions:
    """Return the ids of the entries whose records are completely within their files.

    Only the last record of each file is read, because a truncated file ends in it. A missing file has no
    entries. Raises UnreachableError if a file can't be read.
    """
    files, table = located
    locations = np.frombuffer(table.locations, np.int64)
    numbers, kept = locations >> 32, np.zeros(len(locations), np.bool_)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        kept[rows] = _is_within(files, number, locations[rows] & 0xFFFFFFFF)
    return np.frombuffer(table.entry_ids, np.int64)[kept]


def _is_within(files: DataFiles, number: int, offsets: Positions) -> NDArray[np.bool_]:
    try:
        size = len(files.view(number))
    except DecodeError:
        return np.zeros(len(offsets), np.bool_)
    within = (offsets >= _SIZE) & (offsets + _IDS <= size)
    if within.any():
        last = int(np.where(within, offsets, 0).argmax())
        within[last] = record_sizes(files, number, offsets[last : last + 1])[0] > 0
    return within
