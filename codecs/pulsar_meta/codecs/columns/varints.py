"""Decode all varints of a buffer at once, for messages in which every byte belongs to a varint.

Needs NumPy. Source: protobuf encoding (base-128 varints, little-endian groups of seven bits).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.words import LONGEST_VARINT, Positions, Rows


@dataclass(frozen=True, slots=True)
class Varints:
    """The varints of a buffer.

    `values` are int64 as in protobuf, `sizes` are in bytes, `ends` are the offsets after each varint. `odd`
    marks varints that protobuf never writes, because they are too long or padded with zeros.
    """

    values: Positions
    sizes: Positions
    ends: Positions
    odd: Rows


def varints_of(data: bytes) -> Varints:
    """Decode the varints of a buffer, without an incomplete one at its end."""
    buffer = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(buffer < 0x80)
    starts = np.empty_like(last)
    starts[:1] = 0
    starts[1:] = last[:-1] + 1
    sizes = last - starts + 1
    final = buffer[last]
    odd = (sizes > 1) & (final == 0) | (sizes > LONGEST_VARINT) | (sizes == LONGEST_VARINT) & (final > 1)
    return Varints(_numbers(buffer, starts, sizes), sizes, last + 1, odd)


def _numbers(buffer: NDArray[np.uint8], starts: Positions, sizes: Positions) -> Positions:
    values = (buffer[starts] & 0x7F).astype(np.uint64)
    left = np.flatnonzero(sizes > 1)
    for at in range(1, LONGEST_VARINT):
        if not left.size:
            break
        groups = (buffer[starts[left] + at] & 0x7F).astype(np.uint64)
        values[left] |= groups << np.uint64(7 * at)
        left = left[sizes[left] > at + 1]
    return values.view(np.int64)
