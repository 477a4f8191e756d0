"""Decode the first ledgers of a large managed ledger's record at once.

Supports ledgers with an id, entries, a size and a time, in the order of their ids. All closed ledgers that
were never offloaded have this form. The rest of the record is left to the codec. Needs NumPy and PyArrow.

Source: MLDataFormats.proto (ManagedLedgerInfo).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.cursors import digits, joined, listed
from pulsar_meta.codecs.columns.varints import varints_of
from pulsar_meta.codecs.columns.words import Positions
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

# The varints of a ledger: tag and size; id, entries, bytes, time. -1 stands for any number.
_LEDGER: Final = (0x0A, -1, 0x08, -1, 0x10, -1, 0x18, -1, 0x20, -1)
_TOKENS: Final = len(_LEDGER)
_TAGS: Final = slice(0, None, 2)
_TAG_VALUES: Final = np.array(_LEDGER[_TAGS])
_SIZE, _NUMBERS = 1, slice(3, None, 2)


@dataclass(frozen=True, slots=True)
class LeadingLedgers:
    """The first `count` ledgers of a record, up to byte `end`: JSON text, and the sums of entries and bytes.

    `ends` has the first and the last ledger, and the ledgers that were closed first and last.
    """

    end: int
    count: int
    text: str
    entries: int
    size: int
    ends: ManagedLedgerInfo


def leading_ledgers(payload: bytes) -> LeadingLedgers | None:
    """Return the first ledgers of a record, or None if the first one is not supported."""
    read = varints_of(payload)
    whole = len(read.values) // _TOKENS * _TOKENS
    table, sizes = (column[:whole].reshape(-1, _TOKENS) for column in (read.values, read.sizes))
    numbers = table[:, _NUMBERS]
    right = (table[:, _TAGS] == _TAG_VALUES).all(axis=1)
    right &= table[:, _SIZE] == 4 + sizes[:, _NUMBERS].sum(axis=1)
    right &= ((numbers <= MAX_SAFE_INTEGER) & (numbers >= -MAX_SAFE_INTEGER)).all(axis=1)
    right &= ~read.odd[:whole].reshape(-1, _TOKENS).any(axis=1)
    right[1:] &= numbers[1:, 0] > numbers[:-1, 0]
    count = len(right) if right.all() else int(np.argmin(right))
    return _leading(numbers[:count], int(read.ends[count * _TOKENS - 1])) if count else None


def _leading(numbers: Positions, end: int) -> LeadingLedgers:
    ids, entries, sizes, times = (np.ascontiguousarray(column) for column in numbers.T)
    each = joined(
        '{"ledgerId": ', digits(ids), ', "entries": ', digits(entries), ', "size": ', digits(sizes),
        ', "timestamp": ', digits(times), "}",
    )  # fmt: skip
    text = listed(each, np.array([0, len(ids)]))[0].as_py()
    # Summed in Python, because a sum may exceed an int64.
    return LeadingLedgers(end, len(ids), text, sum(entries.tolist()), sum(sizes.tolist()), _ends(numbers))


def _ends(numbers: Positions) -> ManagedLedgerInfo:
    closed = np.flatnonzero(numbers[:, 3] > 0)
    places = {0, len(numbers) - 1}
    if closed.size:
        times = numbers[closed, 3]
        places |= {int(closed[times.argmin()]), int(closed[times.argmax()])}
    info = ManagedLedgerInfo()
    for ledger, entries, size, time in numbers[sorted(places)].tolist():
        info.ledgerInfo.add(ledgerId=ledger, entries=entries, size=size, timestamp=time)
    return info
