"""Eight bytes at any place of a buffer, for many places at once. Needs NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.checksum import Buffer

Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Rows = NDArray[np.bool_]


class WordReader:
    """Words of 8 bytes at any byte position up to `size - 8` of a buffer."""

    def __init__(self, data: Buffer) -> None:
        self.size = memoryview(data).nbytes
        words = max(0, self.size - 7)
        enough = data if words else b""
        self._numbers: Positions = np.ndarray((words,), ">i8", buffer=enough, strides=(1,))
        self._sizes: NDArray[np.int32] = np.ndarray((words,), ">i4", buffer=enough, strides=(1,))

    def big_endian(self, at: Positions) -> Positions:
        """Return the big-endian int64 at each position."""
        return self._numbers[at].astype(np.int64)

    def sizes(self, at: Positions) -> Positions:
        """Return the big-endian int32 at each position."""
        return self._sizes[at].astype(np.int64)
