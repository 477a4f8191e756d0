"""Very many numbers: room for them, in a temporary file if need be, and which of them are among others."""

from __future__ import annotations

import os
import tempfile
from array import array
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import UnreachableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Numbers of 8 bytes that memory holds.
IN_MEMORY: Final = 1 << 20


def room_for(columns: int, rows: int) -> NDArray[np.int64]:
    """Return an array of so many columns of `rows` numbers each; a file goes when nobody has it any more.

    UnreachableError where the directory of temporary files (TMPDIR) has not got the room.
    """
    import numpy as np

    if columns * rows <= IN_MEMORY:
        return np.empty((columns, rows), np.int64)
    with tempfile.TemporaryFile() as file:
        try:
            # A hole in the file would end the process when it is written to and the disk is full.
            os.posix_fallocate(file.fileno(), 0, 8 * columns * rows)
        except OSError as error:
            problem = f"{8 * columns * rows} bytes cannot be kept in temporary files: {error.strerror}"
            raise UnreachableError(problem, source=tempfile.gettempdir()) from error
        return np.asarray(np.memmap(file, np.int64, "r+", shape=(columns, rows)))


def are_among(numbers: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which numbers are among others, which are in order; little memory is taken beside the answer."""
    import numpy as np

    found = np.zeros(len(numbers), bool)
    for at in range(0, len(numbers) if len(ordered) else 0, IN_MEMORY):
        some = numbers[at : at + IN_MEMORY]
        places = ordered.searchsorted(some)
        np.minimum(places, len(ordered) - 1, out=places)
        found[at : at + IN_MEMORY] = ordered[places] == some
    return found


def in_order(numbers: array[int]) -> NDArray[np.int64]:
    """Sort numbers where they are, and return them."""
    import numpy as np

    found = np.asarray(numbers, np.int64)
    found.sort()
    return found
