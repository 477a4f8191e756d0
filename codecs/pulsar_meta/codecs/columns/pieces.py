"""Copy many pieces of a buffer into a new one at once. Needs NumPy and PyArrow.

Source: Arrow's columnar format, "Variable-size Binary View Layout".
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pulsar_meta.codecs.columns.words import Positions, WordReader
from pulsar_meta.codecs.reader import Buffer

# Arrow stores shorter pieces inside the views.
SHORTEST: Final = 13
_BITS: Final = 30


def sized_pieces(data: Buffer, starts: Positions, sizes: Positions) -> memoryview:
    """Return the pieces, of SHORTEST bytes at least, each after its size in 4 bytes, big-endian."""
    views = np.zeros((len(starts), 2, 4), np.int32)
    views[:, 0, 0] = 4
    views[:, 0, 1] = sizes.astype(">i4").view("<i4")
    views[:, 1, 0] = sizes
    views[:, 1, 1] = WordReader(data).words(starts).astype(np.uint32).view(np.int32)
    views[:, 1, 2] = starts >> _BITS
    views[:, 1, 3] = starts & ((1 << _BITS) - 1)
    whole = memoryview(data)
    parts = [pa.py_buffer(whole[at:]) for at in range(0, int(starts.max()) + 1, 1 << _BITS)]
    pieces = pa.Array.from_buffers(pa.binary_view(), views.size // 4, [None, pa.py_buffer(views), *parts])
    _, _, joined = pieces.cast(pa.binary()).buffers()
    return memoryview(joined)[: int(sizes.sum()) + 4 * len(sizes)]
