"""Find the entries of a block that have no fault, all at once. Needs NumPy.

`entry_check` defines the faults, and checks every row that is not `sound` here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.batches import whole_batches
from pulsar_meta.codecs.columns.headers import EntryHeaders
from pulsar_meta.codecs.columns.words import Positions, Rows
from pulsar_meta.codecs.compression import CODECS, decompress
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.jobs.entry_reader import Block, bounded

# The number of batches to split at once: many, to save calls, but few enough for the processor's cache.
BATCHES_AT_ONCE: Final = 2048


@dataclass(frozen=True, slots=True)
class State:
    """The state after the entries before a block: the next entry's id, the sum of bytes, the last index.

    The last two are None if they are unknown; then every value is accepted.
    """

    expected: int
    length: int | None
    index: int | None


@dataclass(frozen=True, slots=True)
class Soundness:
    """For each row of a block, whether it is sound, its sum of bytes, its index and the index before it.

    The other fields of unsound rows have no meaning. `numbered` marks the rows with an index.
    """

    sound: Rows
    lengths: Positions
    numbered: Rows
    indexes: Positions
    before: Positions


def check_block(block: Block, state: State, max_size: int) -> Soundness:
    """Find the rows that continue the row before them and have no fault."""
    headers = block.headers
    assert headers is not None
    good = block.whole & _payloads_fit(block, headers, max_size)
    index = headers.fields["index"]
    indexes = index.values.view(np.int64)
    before = indexes - headers.index_widths()
    lengths = headers.header(24)
    sound = good & _lengths_go_on(block, lengths, good, state)
    sound &= ~index.present | _indexes_go_on(indexes, before, index.present, good, state)
    return Soundness(sound, lengths, index.present, indexes, before)


def _lengths_go_on(block: Block, lengths: Positions, good: Rows, state: State) -> Rows:
    """Find the rows whose sum of bytes continues that of a good entry right before them."""
    starts = lengths - (block.sizes - block.data_at)
    goes_on = np.zeros(len(starts), bool)
    goes_on[0] = block.entry_ids[0] == state.expected and state.length in (None, int(starts[0]))
    goes_on[1:] = good[:-1] & (np.diff(block.entry_ids) == 1) & (starts[1:] == lengths[:-1])
    return goes_on


def _indexes_go_on(indexes: Positions, before: Positions, numbered: Rows, good: Rows, state: State) -> Rows:
    """Find the rows whose index continues the last one before them, with only good entries in between."""
    rows = np.arange(len(indexes))
    last = np.maximum.accumulate(np.where(numbered & good, rows, -1))
    bad = np.maximum.accumulate(np.where(good, -1, rows))
    last, bad = np.concatenate([[-1], last[:-1]]), np.concatenate([[-1], bad[:-1]])
    known = np.where(last >= 0, before == indexes[last], state.index is None or before == state.index)
    goes_on: Rows = known & (bad <= last)
    return goes_on


def _payloads_fit(block: Block, headers: EntryHeaders, max_size: int) -> Rows:
    """Find the rows whose payload can be decompressed and is the batch that the entry claims."""
    fields = headers.fields
    batch, packed = fields["num_messages_in_batch"].present, fields["compression"].values > 0
    fit = np.ones(len(block.sizes), bool)
    chosen = np.flatnonzero(block.whole & (batch | packed) & ~closed_rows(headers))
    counts = headers.message_counts()
    sizes = opened_sizes(block, headers)
    for start in range(0, len(chosen), BATCHES_AT_ONCE):
        some = chosen[start : start + BATCHES_AT_ONCE]
        for part in bounded(sizes[some]):
            fit[some[part]] = _opened_fit(block, headers, some[part], batch, counts, max_size)
    return fit


def _opened_fit(
    block: Block, headers: EntryHeaders, rows: Positions, batch: Rows, counts: Positions, max_size: int
) -> Rows:
    """Find those of `rows` whose payload can be decompressed, and is a complete batch if it is a `batch`."""
    payloads = opened_payloads(block, headers, rows, max_size)
    fit = np.array([payload is not None for payload in payloads], bool)
    split = fit & batch[rows]
    batches = [payload for payload in compress(payloads, split.tolist()) if payload is not None]
    fit[split] = whole_batches(batches, counts[rows[split]])
    return fit


def closed_rows(headers: EntryHeaders) -> Rows:
    """Find the entries whose payload cannot be opened alone (markers, encrypted entries, chunks)."""
    fields = headers.fields
    chunked = fields["num_chunks_from_msg"].present & (headers.int32("num_chunks_from_msg") > 1)
    closed: Rows = fields["marker_type"].present | fields["encryption_keys"].present | chunked
    return closed


def opened_sizes(block: Block, headers: EntryHeaders) -> Positions:
    """Return the size of each payload in bytes, as the entry claims it if it is compressed."""
    packed = headers.fields["compression"].values > 0
    claimed = headers.fields["uncompressed_size"].values.astype(np.uint32)
    return np.where(packed, claimed, block.sizes - headers.payload_at)


def opened_payloads(
    block: Block, headers: EntryHeaders, rows: Positions, max_size: int
) -> list[Buffer | None]:
    """Return the payloads of some rows, decompressed up to `max_size` bytes; None if that fails."""
    view, fields = memoryview(block.data), headers.fields
    starts, ends = (block.offsets + headers.payload_at)[rows], (block.offsets + block.sizes)[rows]
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    payloads: list[Buffer | None] = [view[start:end] for start, end in places]
    packed = np.flatnonzero(fields["compression"].values[rows])
    codecs = fields["compression"].values[rows[packed]].tolist()
    sizes = fields["uncompressed_size"].values[rows[packed]].astype(np.uint32).tolist()
    for at, codec, size in zip(packed.tolist(), codecs, sizes, strict=True):
        payloads[at] = _decompressed(CODECS[codec], view[starts[at] : ends[at]], size, max_size)
    return payloads


def _decompressed(codec: str, payload: memoryview, size: int, max_size: int) -> Buffer | None:
    try:
        return decompress(codec, payload, size, max_size=max_size)
    except DecodeError:
        return None
