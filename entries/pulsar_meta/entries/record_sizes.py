"""Whether records lie where an index says, and what they take there, in columns. Needs NumPy.

Source: apache/bookkeeper EntryLogger: an entry is written behind its size, 4 bytes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.words import Positions, WordReader
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import Located
from pulsar_meta.entries.data_files import DataFiles

_SIZE = 4
_IDS = 16


def record_sizes(files: DataFiles, number: int, offsets: Positions) -> Positions:
    """Return the bytes that records at these offsets take with their sizes, 0 where none fits there.

    DecodeError where the file is gone, UnreachableError where it cannot be read.
    """
    view = files.view(number)
    within = (offsets >= _SIZE) & (offsets <= len(view) - 8)
    sizes = np.zeros(len(offsets), np.int64)
    if within.any():
        sizes[within] = WordReader(view).sizes(offsets[within] - _SIZE)
    files.check(number)
    return np.where((sizes > 0) & (offsets + sizes <= len(view)), sizes + _SIZE, 0)


def within_files(located: Located) -> Positions:
    """Return the entries whose records lie within their files.

    Of each file the last record is looked at, as that is the one in which a file that was cut ends; files
    that are gone have none. UnreachableError where a file cannot be read.
    """
    files, table = located
    locations = np.frombuffer(table.locations, np.int64)
    numbers, kept = locations >> 32, np.zeros(len(locations), np.bool_)
    for number in np.unique(numbers).tolist():
        here = np.flatnonzero(numbers == number)
        kept[here] = _reached(files, number, locations[here] & 0xFFFFFFFF)
    return np.frombuffer(table.entry_ids, np.int64)[kept]


def _reached(files: DataFiles, number: int, offsets: Positions) -> NDArray[np.bool_]:
    try:
        size = len(files.view(number))
    except DecodeError:
        return np.zeros(len(offsets), np.bool_)
    reached = (offsets >= _SIZE) & (offsets + _IDS <= size)
    if reached.any():
        last = int(np.where(reached, offsets, 0).argmax())
        reached[last] = record_sizes(files, number, offsets[last : last + 1])[0] > 0
    return reached
