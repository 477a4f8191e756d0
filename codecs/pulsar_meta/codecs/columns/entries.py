"""The headers of many entries as columns, decoded all at once: no Python object per entry.

    columns = decode_entry_columns(log, offsets, sizes, ["ledger_id", "entry_id", "last_index"])
    columns["last_index"].values, columns["last_index"].present

What the columns are and mean stands in `column`; both agree on every entry. Import this module only
where columns are wanted: it needs NumPy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import COLUMN_TYPES, VERDICTS, Column, decode_row, join_columns
from pulsar_meta.codecs.columns.frames import EntryRun, Layout
from pulsar_meta.codecs.columns.words import Heads, Positions, Rows
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.reader import Buffer, byte_view

# Rows that are worked on together: enough to forget the calls, few enough for the processor's cache.
ROWS_AT_ONCE: Final = 8192

# So many bytes of each entry are looked at; the next number where more than one entry in LONG_ONE_IN has
# longer metadata, else those few are read one by one.
WIDTHS: Final = (192, 768, 3072)
LONG_ONE_IN: Final = 32

_VERDICTS: Final = frozenset({"digest", "frame_checksum"})


def decode_entry_columns(
    data: Buffer,
    offsets: Positions,
    sizes: Positions,
    columns: Iterable[str] = tuple(COLUMN_TYPES),
    *,
    bookie: bool = True,
    digest_type: DigestType | None = None,
    verify: bool = False,
) -> dict[str, Column]:
    """Return the wanted columns of the entries that lie at `offsets` of `data` with `sizes` bytes each.

    Entries are bookie entries, or frames where `bookie` is false. Without `digest_type` it is detected.
    What no wanted column needs is not looked at: ask for `broken` to have MessageMetadata examined.
    Checksums are computed with `verify` only. UsageError for an unknown column.
    """
    wanted = tuple(dict.fromkeys(columns))
    for name in wanted:
        if name not in COLUMN_TYPES:
            raise UsageError(f"no such column: {name!r}; there are {', '.join(COLUMN_TYPES)}")
    decoder = _Decoder(byte_view(data), Layout(bookie, digest_type), wanted, verify)
    starts = range(0, max(1, len(offsets)), ROWS_AT_ONCE)
    runs = [decoder.decode(offsets[at : at + ROWS_AT_ONCE], sizes[at : at + ROWS_AT_ONCE]) for at in starts]
    return {name: join_columns([run[name] for run in runs]) for name in wanted}


class _Decoder:
    """Decodes runs of entries, and again by the codec for one entry what stands out."""

    def __init__(self, view: memoryview, layout: Layout, wanted: tuple[str, ...], verify: bool) -> None:
        self._view, self._layout = view, layout
        self._wanted, self._verify = wanted, verify
        self._widths: tuple[int, ...] = WIDTHS

    def decode(self, offsets: Positions, sizes: Positions) -> dict[str, Column]:
        safe = self._safe(offsets, sizes)
        if not safe.any():
            columns = {name: _nothing(name, len(offsets)) for name in self._wanted}
            return self._reread(columns, offsets, sizes, ~safe, self._wanted)
        run = self._run(offsets, sizes, safe)
        if len(self._widths) > 1 and np.count_nonzero(run.frames.long) * LONG_ONE_IN > len(offsets):
            self._widths = self._widths[1:]
            return self.decode(offsets, sizes)
        columns = {name: run.column(name) for name in self._wanted}
        columns = self._reread(columns, offsets, sizes, ~safe | run.odd, self._wanted)
        if self._verify:
            columns = self._reread(columns, offsets, sizes, run.every, _VERDICTS.intersection(self._wanted))
        return columns

    def _safe(self, offsets: Positions, sizes: Positions) -> Rows:
        """Return which entries are long enough, and have enough bytes after them, to be read together."""
        needed = np.maximum(sizes, self._widths[0])
        safe: Rows = (sizes >= self._layout.head + 4) & (offsets + needed <= len(self._view))
        return safe

    def _run(self, offsets: Positions, sizes: Positions, safe: Rows) -> EntryRun:
        """Decode the safe rows together; one that is not is read as if it were the first that is."""
        if not safe.all():
            known = np.where(safe, np.arange(len(safe)), np.argmax(safe))
            offsets, sizes = offsets[known], sizes[known]
        return EntryRun(self._layout, Heads(self._view, offsets, self._widths[0]), sizes, self._wanted)

    def _reread(
        self,
        columns: dict[str, Column],
        offsets: Positions,
        sizes: Positions,
        rows: Rows,
        names: Collection[str],
    ) -> dict[str, Column]:
        """Take the columns `names` of some rows from the codec for one entry."""
        numbers = np.flatnonzero(rows).tolist()
        if not numbers or not names:
            return columns
        bookie, digest = self._layout.bookie, self._layout.digest_type
        read = [
            decode_row(self._view[at : at + size], bookie=bookie, digest_type=digest, verify=self._verify)
            for at, size in zip(offsets[rows].tolist(), sizes[rows].tolist(), strict=True)
        ]
        changed = {name: columns[name].with_values(numbers, [row[name] for row in read]) for name in names}
        return columns | changed


def _nothing(name: str, count: int) -> Column:
    """Return a column of the right type without a value."""
    kind = COLUMN_TYPES[name]
    names = None if kind != "text" else VERDICTS if name in _VERDICTS else ("",)
    return Column(np.zeros(count, bool if kind == "boolean" else np.int64), np.zeros(count, bool), names)
