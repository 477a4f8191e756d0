"""Find all entries of an entry log, as arrays of places. Needs NumPy.

The size of a record gives the place of the next one, so records form a chain that is followed link by
link. If the chain is long, starts of later records are guessed, followed all at once, and kept if the
pieces meet. Padding, damage and the ledgers map are left to
`entry_log.scan_records`; both find the same records.
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.bookie_files.entry_log import HEADER_SIZE, NO_LEDGER, Damage, Record, scan_records
from pulsar_meta.codecs.columns.words import Heads, Positions, Rows, WordReader
from pulsar_meta.codecs.frames.bookie_entry import HEADER
from pulsar_meta.codecs.reader import Buffer, byte_view

_SIZE: Final = struct.Struct(">i")
# After this many links, the chain is followed at many places at once (at most twice as many as were right the
# last time), each for about _LINKS_TOGETHER records, and only if records are small enough to find.
_LINKS_ALONE: Final = 64
_LINKS_TOGETHER: Final = 64
_FEWEST_PIECES: Final = 64
_MOST_PIECES: Final = 1 << 10
_LARGEST_MEAN: Final = 1 << 15
# The number of records that are processed together, few enough for the processor's cache.
_ROWS_AT_ONCE: Final = 8192
_NO_ENTRIES: Final[Positions] = np.zeros((4, 0), np.int64)


@dataclass(frozen=True, slots=True)
class RecordOffsets:
    """Entries of a log: `sizes` bytes at `offsets`, which are past the sizes as in a location, and their ids.

    `damage` lists the bytes between them that are no record.
    """

    offsets: Positions
    sizes: Positions
    ledgers: Positions
    entry_ids: Positions
    damage: tuple[Damage, ...] = ()


def find_records(data: Buffer) -> RecordOffsets:
    """Return the places of all entries, in the order of the file, and the damage."""
    view, reader = byte_view(data), WordReader(data)
    found = [_NO_ENTRIES]
    damage: list[Damage] = []
    at, most = HEADER_SIZE, len(view)
    while at < len(view):
        chain, chain_end = _follow_chain(view, reader, at, most)
        entry, other, columns = _examine(view, chain)
        if other.any():
            # This is neither an entry nor a record without a ledger, so the chain is wrong from here on.
            first, most = int(np.argmax(other)), _LINKS_ALONE
            entry, columns, chain_end = entry[:first], columns[:, :first], int(chain[first]) - 4
        else:
            # If many records are wrong, chains stay short, because the rest of a chain was followed in vain.
            most = min(2 * most, len(view))
        found.append(columns[:, entry])
        at = len(view)
        for record in scan_records(view, chain_end):
            if isinstance(record, Record):
                row = (record.offset, record.size, record.ledger_id, record.entry_id)
                found.append(np.array(row, np.int64)[:, np.newaxis])
                at = record.offset + record.size
                break
            damage.append(record)
    offsets, sizes, ledgers, entry_ids = np.concatenate(found, axis=1)
    return RecordOffsets(offsets, sizes, ledgers, entry_ids, tuple(damage))


def _follow_chain(view: memoryview, reader: WordReader, at: int, most: int) -> tuple[Positions, int]:
    """Return (offsets of the records that follow each other from `at` on, the end of the chain).

    Stops after `most` records, or a leap more.
    """
    chain = array("q")
    pieces = _FEWEST_PIECES
    while len(chain) < most:
        start, before = at, len(chain)
        at = _follow_links(view, at, chain)
        links = len(chain) - before
        if links < _LINKS_ALONE:
            break
        step = at - chain[-1] + 4
        if all(chain[row + 1] - chain[row] == step for row in range(before, len(chain) - 1)):
            right, end = _follow_equal(reader, at, step, pieces * _LINKS_TOGETHER)
        else:
            starts = _guess_starts(view, at, (at - start) // links, chain[-1], pieces)
            right, end = _follow_pieces(reader, starts), int(starts[-1])
        chain.frombytes(right.tobytes())
        if right.size:
            at = int(right[-1]) + _SIZE.unpack_from(view, int(right[-1]) - 4)[0]
        pieces = min(2 * pieces, _MOST_PIECES) if at == end else _FEWEST_PIECES
    if at > len(view):
        at = chain.pop() - 4
    return np.frombuffer(chain, np.int64), at


def _follow_links(view: memoryview, at: int, chain: array[int]) -> int:
    """Add the offsets of up to _LINKS_ALONE records from `at` on; return the start of the next one."""
    end = len(view) - 4 - HEADER.size
    for _ in range(_LINKS_ALONE):
        if at > end:
            break
        (size,) = _SIZE.unpack_from(view, at)
        if size < HEADER.size:
            break
        chain.append(at + 4)
        at += 4 + size
    return at


def _follow_equal(reader: WordReader, at: int, step: int, most: int) -> tuple[Positions, int]:
    """Return (offsets of the records from `at` on that also take `step` bytes, the end of `most` of them)."""
    count = max(0, min(most, (reader.size - 4 - HEADER.size - at) // step))
    offsets = at + 4 + step * np.arange(count)
    same = reader.sizes(offsets - 4) == step - 4
    return offsets if same.all() else offsets[: int(np.argmin(same))], at + step * count


def _guess_starts(view: memoryview, at: int, mean: int, known: int, pieces: int) -> Positions:
    """Return `at` and places after it, at most `pieces`, that look like the starts of records.

    Looked for is the ledger of the record at `known`, every _LINKS_TOGETHER records of `mean` bytes.
    """
    starts = [at]
    ledger, piece = bytes(view[known : known + 8]), _LINKS_TOGETHER * mean
    last = len(view) - 4 - HEADER.size if mean <= _LARGEST_MEAN else 0
    for near in range(at + piece, min(last, at + pieces * piece) + 1, piece):
        distance = bytes(view[near : near + 4 * mean]).find(ledger, 4)
        if 4 <= distance <= last + 4 - near:
            starts.append(near + distance - 4)
    return np.array(starts, np.int64)


def _follow_pieces(reader: WordReader, starts: Positions) -> Positions:
    """Return the offsets of the records from the first of `starts` on.

    All pieces of the chain are followed together, each until it is past the start of the next one. A guess
    is right if a piece meets that start; the result ends at the first wrong guess.
    """
    at, limits, end = starts[:-1], starts[1:], reader.size - 8
    steps = [at]
    while (at < limits).any():
        sizes = reader.sizes(at)
        at = np.where(sizes < HEADER.size, end, np.minimum(at + 4 + sizes, end))
        steps.append(at)
    links = np.stack(steps, axis=1)
    meets = (links == limits[:, None]).any(axis=1)
    right = links[: len(meets) if meets.all() else int(np.argmin(meets))]
    return right[right < limits[: len(right), None]] + 4


def _examine(view: memoryview, chain: Positions) -> tuple[Rows, Rows, Positions]:
    """Return (records that are entries, records that are neither those nor without a ledger, columns).

    The columns are offsets, sizes, ledgers and entry ids.
    """
    entry, other = np.zeros(len(chain), bool), np.zeros(len(chain), bool)
    columns = np.empty((4, len(chain)), np.int64)
    columns[0] = chain
    for start in range(0, len(chain), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        heads = Heads(view, chain[rows] - 4, 4 + HEADER.size)
        size, ledger, number, confirmed, length = (
            heads.big_endian(at).view(np.int64) for at in (0, 4, 12, 20, 28)
        )
        columns[1, rows], columns[2, rows], columns[3, rows] = size >> 32, ledger, number
        entry[rows] = (ledger | number | length >= 0) & (confirmed >= -1) & (confirmed <= number)
        other[rows] = ~entry[rows] & (ledger != NO_LEDGER)
    return entry, other, columns
