"""Where the entries of an entry log lie, as arrays. Needs NumPy.

Each record's size tells where the next one begins, so this is a chain that one goes along link by link;
where sizes repeat, many links are guessed at once and then looked at. What is no plain chain (padding,
damage, the ledgers map) is left to `entry_log.scan_records`; both find the same records.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.bookie_entry import HEADER
from pulsar_meta.codecs.checksum import Buffer, byte_view
from pulsar_meta.codecs.column_words import Positions, Rows, WordReader
from pulsar_meta.codecs.entry_log import HEADER_SIZE, NO_LEDGER, Record, scan_records

_SIZE: Final = struct.Struct(">i")
# After this many equal sizes the next ones are guessed: as many as were right the last time, doubled.
_EQUAL: Final = 16
_FIRST_GUESS: Final = 64
_LARGEST_GUESS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class RecordOffsets:
    """Entries of a log: `sizes` bytes at `offsets`, which are past the sizes as in a location."""

    offsets: Positions
    sizes: Positions


def find_records(data: Buffer, start: int = HEADER_SIZE) -> RecordOffsets:
    """Return where all entries lie from `start` on, in the order of the file; bad bytes are passed over."""
    view, reader = byte_view(data), WordReader(data)
    found: list[Positions] = []
    at = start
    while at < len(view):
        chain, at = _follow_chain(view, reader, at)
        entry, other = _examine(reader, chain)
        if other.any():
            # Not an entry, not a record of no ledger: the chain was none from here on.
            first = int(np.argmax(other))
            chain, entry, at = chain[:first], entry[:first], int(chain[first]) - 4
        found.append(chain[entry])
        record = next((one for one in scan_records(view, at) if isinstance(one, Record)), None)
        if record is None:
            break
        found.append(np.array([record.offset], np.int64))
        at = record.offset + record.size
    offsets = np.concatenate([*found, np.zeros(0, np.int64)])
    return RecordOffsets(offsets, sizes_at(reader, offsets))


def _follow_chain(view: memoryview, reader: WordReader, at: int) -> tuple[Positions, int]:
    """Return (offsets of the records that follow each other from `at` on, where the chain ends)."""
    chain = array("q")
    end = len(view) - 4 - HEADER.size
    # The tightest loop of a scan: nothing in it that can wait.
    size_at, keep, smallest = _SIZE.unpack_from, chain.append, HEADER.size
    before, equal, guess = 0, 0, _FIRST_GUESS
    while at <= end:
        (size,) = size_at(view, at)
        if size < smallest:
            break
        at += 4
        keep(at)
        at += size
        if size != before:
            before, equal = size, 0
            continue
        equal += 1
        if equal >= _EQUAL:
            right = _guess(reader, at, size, min(guess, (end - at) // (4 + size)))
            chain.frombytes(right.tobytes())
            at += len(right) * (4 + size)
            guess = min(2 * guess, _LARGEST_GUESS) if len(right) == guess else _FIRST_GUESS
            equal = _EQUAL if len(right) else 0
    if at > len(view):
        at = chain.pop() - 4
    return np.frombuffer(chain, np.int64), at


def _guess(reader: WordReader, at: int, size: int, count: int) -> Positions:
    """Return the offsets of the records from `at` on that have `size` bytes too, at most `count`."""
    if count <= 0:
        return np.zeros(0, np.int64)
    offsets = at + 4 + (4 + size) * np.arange(count)
    same = sizes_at(reader, offsets) == size
    return offsets if same.all() else offsets[: int(np.argmin(same))]


def sizes_at(reader: WordReader, offsets: Positions) -> Positions:
    """Return what the records' own sizes say, which stand before `offsets`; those must lie in the log."""
    return reader.big_endian(offsets - 4) >> 32


def _examine(reader: WordReader, chain: Positions) -> tuple[Rows, Rows]:
    """Tell which records are entries, and which are neither entries nor records of no ledger."""
    ledger, entry = reader.big_endian(chain), reader.big_endian(chain + 8)
    confirmed, length = reader.big_endian(chain + 16), reader.big_endian(chain + 24)
    good = (ledger >= 0) & (entry >= 0) & (confirmed >= -1) & (confirmed <= entry) & (length >= 0)
    return good, ~good & (ledger != NO_LEDGER)
