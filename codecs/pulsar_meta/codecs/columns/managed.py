"""Convert many cursors' records, or a large record of a cursor or a managed ledger, to JSON text at once.

Cursors are supported if they have the usual form, with nothing but positions and ranges. Then every byte
belongs to a varint, so a block of records is decoded together. All other records (other orders or forms,
batches, properties, ranges over several ledgers, numbers that a double would round) are left to the codec for
a single record.

Managed ledgers are supported up to the first ledger that has more than an id, entries, a size and a time, or
that is not in the order of ids. All closed ledgers that were never offloaded have this form.

Needs NumPy and PyArrow. Sources: MLDataFormats.proto (ManagedCursorInfo, ManagedLedgerInfo); protobuf
encoding (base-128 varints, little-endian groups of seven bits); `codecs.metadata.managed_meaning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pulsar_meta.codecs.columns.words import LONGEST_VARINT, Positions, Rows
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD
from pulsar_meta.codecs.metadata.managed_meaning import SNAPSHOT_ONLY
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo


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


# The tags of cursorsLedgerId, markDeleteLedgerId, markDeleteEntryId and lastActive.
_CURSORS_LEDGER, _MARK_LEDGER, _MARK_ENTRY, _LAST_ACTIVE = 0x08, 0x10, 0x18, 0x30
# The varints of a range: tag and size; for each end tag and size, ledger, entry. -1 stands for any number.
_RANGE: Final = (0x22, -1, 0x0A, -1, 0x08, -1, 0x10, -1, 0x12, -1, 0x08, -1, 0x10, -1)
_TOKENS: Final = len(_RANGE)
_TAGS: Final = np.array([at for at, tag in enumerate(_RANGE) if tag >= 0])
_TAG_VALUES: Final = np.array([tag for tag in _RANGE if tag >= 0])
_RANGE_SIZE, _LOWER_SIZE, _UPPER_SIZE = 1, 3, 9
_LOWER_LEDGER, _LOWER_ENTRY, _UPPER_LEDGER, _UPPER_ENTRY = 5, 7, 11, 13
# The sum of as many entries over a block fits into an int64.
_LONGEST: Final = 1 << 40


def cursor_texts(payloads: Sequence[bytes]) -> list[str | None]:
    """Return `"value": …, "meaning": …` of each record, or None if the record is not supported."""
    complete = [bool(payload) and payload[-1] < 0x80 for payload in payloads]
    supported = [payload for payload, is_complete in zip(payloads, complete, strict=True) if is_complete]
    if not supported:
        return [None] * len(payloads)
    texts = iter(_texts(_columns(supported)))
    return [next(texts) if is_complete else None for is_complete in complete]


@dataclass(frozen=True, slots=True)
class _Columns:
    """One row per record, with the number of its ranges in `counts`.

    `ledgers`, `before` and `last` have one row per range: its ledger, the entry before it, and its last
    entry.
    """

    good: Rows
    cursors_ledger: Positions
    mark_ledger: Positions
    has_mark_ledger: Rows
    mark_entry: Positions
    has_mark_entry: Rows
    last_active: Positions
    has_last_active: Rows
    counts: Positions
    ledgers: Positions
    before: Positions
    last: Positions


def _columns(payloads: Sequence[bytes]) -> _Columns:
    read = varints_of(b"".join(payloads))
    ends = np.searchsorted(read.ends, np.cumsum([len(payload) for payload in payloads])) + 1
    starts = np.concatenate([[0], ends[:-1]])
    unsafe = read.odd | (read.values > MAX_SAFE_INTEGER) | (read.values < -MAX_SAFE_INTEGER)
    good = ~_any_of(unsafe, starts, ends)
    at, cursors_ledger, has_cursors_ledger = _optional(read, starts, ends, _CURSORS_LEDGER)
    good &= has_cursors_ledger
    at, mark_ledger, has_mark_ledger = _optional(read, at, ends, _MARK_LEDGER)
    at, mark_entry, has_mark_entry = _optional(read, at, ends, _MARK_ENTRY)
    has_more = (ends - at) % _TOKENS == 2
    _, last_active, has_last_active = _optional(read, np.where(has_more, ends - 2, ends), ends, _LAST_ACTIVE)
    left = ends - at - 2 * has_last_active
    good &= left % _TOKENS == 0
    counts = np.where(good, left // _TOKENS, 0)
    table, rows = _ranges(read, at, counts)
    good &= ~_marked(~_is_range(read, table), rows, len(payloads))
    ledgers, before, last = (
        read.values[table[:, place]] for place in (_LOWER_LEDGER, _LOWER_ENTRY, _UPPER_ENTRY)
    )
    plain = (ledgers == read.values[table[:, _UPPER_LEDGER]]) & (before < last) & (last - before < _LONGEST)
    plain[1:] &= (rows[1:] != rows[:-1]) | (ledgers[1:] >= ledgers[:-1])
    good &= ~_marked(~plain, rows, len(payloads))
    kept = good[rows]
    return _Columns(
        good, cursors_ledger, mark_ledger, has_mark_ledger, mark_entry, has_mark_entry, last_active,
        has_last_active, np.where(good, counts, 0), ledgers[kept], before[kept], last[kept],
    )  # fmt: skip


def _any_of(marks: Rows, starts: Positions, ends: Positions) -> Rows:
    """Find the runs from `starts` to `ends`, none of them empty, that contain a mark."""
    sums = np.concatenate([[0], np.cumsum(marks)])
    return sums[ends] > sums[starts]


def _marked(marks: Rows, rows: Positions, count: int) -> Rows:
    """Find the rows (of `count`) that have a mark."""
    marked = np.zeros(count, bool)
    marked[rows[marks]] = True
    return marked


def _optional(read: Varints, at: Positions, ends: Positions, tag: int) -> tuple[Positions, Positions, Rows]:
    """Read an optional field. Returns (place of the next field, the field's values, rows that have it)."""
    place = np.minimum(at, len(read.values) - 2)
    present = (at + 2 <= ends) & (read.values[place] == tag)
    return at + 2 * present, read.values[place + 1], present


def _ranges(read: Varints, at: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """Return (places of each range's varints, the number of each range's record)."""
    rows = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    begins = at[rows] + _TOKENS * (np.arange(len(rows)) - first[rows])
    return begins[:, None] + np.arange(_TOKENS), rows


def _is_range(read: Varints, table: Positions) -> Rows:
    values, sizes = read.values, read.sizes
    right: Rows = (values[table[:, _TAGS]] == _TAG_VALUES).all(axis=1)
    inner = []
    for size, ledger, entry in (
        (_LOWER_SIZE, _LOWER_LEDGER, _LOWER_ENTRY), (_UPPER_SIZE, _UPPER_LEDGER, _UPPER_ENTRY),
    ):  # fmt: skip
        claimed = values[table[:, size]]
        right &= claimed == 2 + sizes[table[:, ledger]] + sizes[table[:, entry]]
        inner.append(claimed)
    # The ends are preceded by two tags and two sizes.
    right &= values[table[:, _RANGE_SIZE]] == 4 + inner[0] + inner[1]
    return right


def _texts(columns: _Columns) -> Iterator[str | None]:
    """Yield the text of each record, or None if the record is not supported."""
    c = columns
    numbers = (
        c.cursors_ledger, c.mark_ledger, c.has_mark_ledger, c.mark_entry, c.has_mark_entry, c.last_active,
        c.has_last_active, c.counts,
    )  # fmt: skip
    rows: Iterator[tuple[int, int, bool, int, bool, int, bool, int]] = zip(
        *(column.tolist() for column in numbers), strict=True
    )
    for good, row, (ranges, acked, entries) in zip(
        columns.good.tolist(), rows, _range_texts(columns), strict=True
    ):
        yield _text(*row, ranges, acked, entries) if good and entries <= MAX_SAFE_INTEGER else None


def _text(
    cursors_ledger: int, mark_ledger: int, has_mark_ledger: bool, mark_entry: int, has_mark_entry: bool,
    last_active: int, has_last_active: bool, count: int, ranges: str, acked: str, entries: int,
) -> str:  # fmt: skip
    """Return the value of a record, and its meaning, equal to `cursor_meaning`."""
    value = f'"cursorsLedgerId": {cursors_ledger}'
    if has_mark_ledger:
        value += f', "markDeleteLedgerId": {mark_ledger}'
    if has_mark_entry:
        value += f', "markDeleteEntryId": {mark_entry}'
    if count:
        value += f', "individualDeletedMessages": [{ranges}]'
    in_record = cursors_ledger == STATE_IN_RECORD
    meaning = '"state": "record"' if in_record else _ELSEWHERE % cursors_ledger
    if has_mark_ledger and has_mark_entry:
        meaning += f', "mark_delete": "{mark_ledger}:{mark_entry}"'
    if count or in_record:
        meaning += f', "acked_entries": {entries}, "acked_ranges": {count}'
    if count:
        meaning += f', "acked": [{acked}]'
    if has_last_active:
        value += f', "lastActive": {last_active}'
        moment = iso_time(last_active)
        meaning += ', "last_active": ' + (f'"{moment}"' if moment else "null")
    return f'"value": {{{value}}}, "meaning": {{{meaning}}}'


_ELSEWHERE: Final = (
    f'"state": "cursor-ledger", "cursor_ledger": %s, "snapshot_only": true, "note": "{SNAPSHOT_ONLY}"'
)


def _range_texts(columns: _Columns) -> Iterator[tuple[str, str, int]]:
    """Yield for each record the text of its ranges, of its acknowledgements, and the number of entries."""
    counts, ledgers, before, last = columns.counts, columns.ledgers, columns.before, columns.last
    rows = np.repeat(np.arange(len(counts)), counts)
    ledger, lower, upper = digits(ledgers), digits(before), digits(last)
    end = (ledger, ', "entryId": ')
    ranges = joined(
        '{"lowerEndpoint": {"ledgerId": ', *end, lower, '}, "upperEndpoint": {"ledgerId": ', *end, upper, "}}"
    )
    runs = joined("[", digits(before + 1), ", ", upper, "]")
    begins = np.ones(len(rows), bool)
    begins[1:] = (rows[1:] != rows[:-1]) | (ledgers[1:] != ledgers[:-1])
    groups = np.flatnonzero(begins)
    entries = listed(runs, np.append(groups, len(rows)))
    acked = joined('{"ledger_id": ', digits(ledgers[groups]), ', "entries": [', entries, "]}")
    offsets = np.concatenate([[0], np.cumsum(counts)])
    acked = listed(acked, np.searchsorted(groups, offsets))
    sums = np.concatenate([[0], np.cumsum(last - before)])
    totals = sums[offsets[1:]] - sums[offsets[:-1]]
    return zip(listed(ranges, offsets).to_pylist(), acked.to_pylist(), totals.tolist(), strict=True)


def digits(numbers: Positions) -> Any:
    """Convert numbers to text."""
    return pa.array(numbers).cast(pa.string())


def joined(*parts: Any) -> Any:
    """Concatenate the parts of each row; a part is a text for all rows, or a column."""
    return pc.binary_join_element_wise(*parts, "")


def listed(texts: Any, offsets: Positions) -> Any:
    """Join the texts from each offset to the next one with commas."""
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts), ", ")


# The varints of a ledger: tag and size; id, entries, bytes, time. -1 stands for any number.
_LEDGER: Final = (0x0A, -1, 0x08, -1, 0x10, -1, 0x18, -1, 0x20, -1)
_LEDGER_TOKENS: Final = len(_LEDGER)
_LEDGER_TAGS: Final = slice(0, None, 2)
_LEDGER_TAG_VALUES: Final = np.array(_LEDGER[_LEDGER_TAGS])
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
    whole = len(read.values) // _LEDGER_TOKENS * _LEDGER_TOKENS
    table, sizes = (column[:whole].reshape(-1, _LEDGER_TOKENS) for column in (read.values, read.sizes))
    numbers = table[:, _NUMBERS]
    right = (table[:, _LEDGER_TAGS] == _LEDGER_TAG_VALUES).all(axis=1)
    right &= table[:, _SIZE] == 4 + sizes[:, _NUMBERS].sum(axis=1)
    right &= ((numbers <= MAX_SAFE_INTEGER) & (numbers >= -MAX_SAFE_INTEGER)).all(axis=1)
    right &= ~read.odd[:whole].reshape(-1, _LEDGER_TOKENS).any(axis=1)
    right[1:] &= numbers[1:, 0] > numbers[:-1, 0]
    count = len(right) if right.all() else int(np.argmin(right))
    return _leading(numbers[:count], int(read.ends[count * _LEDGER_TOKENS - 1])) if count else None


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
