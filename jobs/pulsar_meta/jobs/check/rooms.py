"""Room for many numbers: in memory while they are few, else in a temporary file without a name."""

from __future__ import annotations

import os
import tempfile
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
