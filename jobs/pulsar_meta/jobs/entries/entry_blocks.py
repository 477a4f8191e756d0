"""Entries read many at once: blocks of neighbours of one ledger, with their headers decoded together.

A block speaks for most of its rows by columns (`codecs.columns.headers`); the others, and every entry of a
ledger that cannot be read so, come one by one from `entry_dump`, which is the truth for all. Reading
order, what is reported and what is counted are the same as there. NumPy is imported with the first block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.reader import Buffer
from pulsar_meta.entries.base import EntrySource, Located, Outcome, outcome_of, read_each
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place
from pulsar_meta.jobs.entries.entry_reading import Presence, Readable, parts_of
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import MAX_ID, Report, SegmentNames
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    from pulsar_meta.codecs.columns.headers import EntryHeaders, HeaderReader
    from pulsar_meta.codecs.columns.words import Positions, Rows

# So many entries of a command come one by one: what is short needs no NumPy, and what is long begins at once.
ONE_BY_ONE: Final = 512
ROWS_AT_ONCE: Final = 32768
BYTES_AT_ONCE: Final = 64 << 20
# What is between entries is copied with them where it is less than this part of their bytes.
SPARSE: Final = 2


@dataclass(slots=True)
class Patience:
    """How many entries of a command are still to come one by one."""

    left: int = field(default_factory=lambda: ONE_BY_ONE)


@dataclass(frozen=True, slots=True)
class Block:
    """Entries of one ledger in order, at least one. `data` has them at `offsets`, with `sizes` bytes each.

    Rows that are not `whole` are to be read one by one, by their ids. The data of the others begins after
    `data_at` bytes, and their digests fit; `headers` has what they say, None where it was not asked for.
    """

    ledger_id: int
    entry_ids: Positions
    data: Buffer
    offsets: Positions
    sizes: Positions
    whole: Rows
    data_at: int
    headers: EntryHeaders | None


Held = Block | tuple[int, Outcome]


@dataclass(frozen=True, slots=True)
class PresentBlock:
    """A block of a range: for the rows that its headers speak for, and to read the others one by one."""

    block: Block
    presence: Presence

    @property
    def segment(self) -> SegmentNames:
        """Which segment of a scalable topic the entries are in, as documents name it; else nothing."""
        return self.presence.part.segment

    def count(self, rows: Rows | Positions) -> None:
        """Count the entries of some rows, which are whole."""
        entry_ids = self.block.entry_ids[rows]
        self.presence.count(len(entry_ids), self.presence.placed.count_of(entry_ids))

    @property
    def is_whole(self) -> bool:
        """Whether the headers speak for every row."""
        return bool(self.block.whole.all())

    def entries(self) -> Iterator[Readable]:
        """Read all entries one by one, as far as they can be had."""
        found = map(self.entry, range(len(self.block.entry_ids)))
        return (entry for entry in found if entry is not None)

    def entry(self, row: int) -> Readable | None:
        """Read the entry of a row, and count it; None where it cannot be had, which is reported."""
        source, ledger_id = self.presence.source, self.block.ledger_id
        entry_id = int(self.block.entry_ids[row])
        return self.presence.entry(entry_id, outcome_of(source, ledger_id, entry_id))


def read_in_blocks(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    report: Report,
    coverage: Coverage,
    count: int | None = None,
    *,
    with_headers: bool = True,
) -> Iterator[PresentBlock | Readable]:
    """Yield what `read_entries` does, at most `count` entries, most of it in blocks.

    Who takes a block counts the rows that it shows by columns, and reads the others.
    """
    found = _present(places, source, store, report, coverage, with_headers=with_headers)
    left = MAX_ID if count is None else count
    while left > 0 and (held := next(found, None)) is not None:
        if not isinstance(held, PresentBlock):
            left -= 1
            yield held
        elif count is None or (held.is_whole and len(held.block.entry_ids) <= left):
            left -= len(held.block.entry_ids)
            yield held
        else:
            # An entry that cannot be had does not count: how many are left is known only after each.
            for entry in islice(held.entries(), left):
                left -= 1
                yield entry


@dataclass(frozen=True, slots=True)
class Frames:
    """The data of some entries, each after its size in 4 bytes."""

    entry_ids: Positions
    data: memoryview


def frames_of(held: PresentBlock) -> Iterator[Frames | Readable]:
    """Yield the data of a block's entries in order; entries that are to be read one by one come so."""
    import numpy as np

    from pulsar_meta.codecs.columns.pieces import SHORTEST, sized_pieces

    block = held.block
    starts, sizes = block.offsets + block.data_at, block.sizes - block.data_at
    rows = block.whole & (sizes >= SHORTEST)
    held.count(rows)
    changes = np.flatnonzero(np.diff(rows, prepend=~rows[:1])).tolist()
    for first, stop in pairwise([*changes, len(rows)]):
        some = slice(first, stop)
        if rows[first]:
            yield Frames(block.entry_ids[some], sized_pieces(block.data, starts[some], sizes[some]))
        else:
            yield from filter(None, map(held.entry, range(first, stop)))


def _present(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    report: Report,
    coverage: Coverage,
    *,
    with_headers: bool,
) -> Iterator[PresentBlock | Readable]:
    patience = Patience()
    for part, ledger in parts_of(places, source, store, report, coverage):
        presence = Presence(part, ledger, source, report, coverage)
        if not presence.begin():
            continue
        yield from read_present(presence, patience, with_headers=with_headers)
        presence.end()


def read_present(
    presence: Presence, patience: Patience, *, with_headers: bool = True
) -> Iterator[PresentBlock | Readable]:
    """Yield the entries of a range that can be had, most of them in blocks; report which cannot."""
    part, ledger = presence.part, presence.ledger
    for held in read_blocks(
        presence.source,
        ledger.ledger_id,
        part.first,
        part.last,
        ledger.format,
        patience,
        with_headers=with_headers,
    ):
        entry = PresentBlock(held, presence) if isinstance(held, Block) else presence.entry(*held)
        if entry is not None:
            yield entry


def read_blocks(
    source: EntrySource,
    ledger_id: int,
    first: int,
    last: int | None,
    form: EntryFormat,
    patience: Patience,
    *,
    with_headers: bool = True,
) -> Iterator[Held]:
    """Yield what `read_each` does, in the same order, most of it in blocks.

    Without `with_headers` only digests are checked.
    """
    newest = source.last_entry(ledger_id) if _in_blocks(source, ledger_id, first, form) else None
    if newest is None:
        yield from read_each(source, ledger_id, first, last)
        return
    end = newest if last is None else min(last, newest)
    at, width = first, patience.left if patience.left > 0 else ROWS_AT_ONCE
    reader: HeaderReader | None = None
    while at <= end:
        stop = min(end, at + width - 1)
        if patience.left > 0:
            count = 0
            for held in read_each(source, ledger_id, at, stop):
                count += 1
                yield held
            patience.left -= count
            width = width if count else 2 * width
            if patience.left <= 0:
                width = ROWS_AT_ONCE
        else:
            reader = reader or _reader(form)
            count = 0
            for block in _blocks(source, ledger_id, at, stop, reader, with_headers=with_headers):
                count += 1 if not isinstance(block, Block) else len(block.entry_ids)
                yield block
            # Where ids are far apart more of them are looked at.
            width = 2 * width if count < ROWS_AT_ONCE // 2 else max(ROWS_AT_ONCE, width // 2)
        at = stop + 1


def _in_blocks(source: EntrySource, ledger_id: int, first: int, form: EntryFormat) -> bool:
    """Return whether a ledger's entries are frames under a digest that is computed for many of them."""
    if form.content is not None or form.digest_type not in (None, "CRC32C", "CRC32"):
        return False
    return source.located(ledger_id, first, first) is not None


def _reader(form: EntryFormat) -> HeaderReader:
    from pulsar_meta.codecs.columns.headers import HeaderReader

    return HeaderReader(digest_type=form.digest_type)


def _blocks(
    source: EntrySource, ledger_id: int, first: int, last: int, reader: HeaderReader, *, with_headers: bool
) -> Iterator[Held]:
    """Yield the entries within [first, last], in order."""
    import numpy as np

    from pulsar_meta.codecs.columns.words import WordReader

    parts = [part for part in source.located(ledger_id, first, last) or () if part[1].entry_ids]
    if not parts:
        return
    entry_ids = np.concatenate([np.frombuffer(table.entry_ids, np.int64) for _, table in parts])
    locations = np.concatenate([np.frombuffer(table.locations, np.int64) for _, table in parts])
    owners = np.repeat(np.arange(len(parts)), [len(table.entry_ids) for _, table in parts])
    if len(parts) > 1:
        order = np.argsort(entry_ids, kind="stable")
        entry_ids, locations, owners = entry_ids[order], locations[order], owners[order]
    for start in range(0, len(entry_ids), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        files = _Files(parts, owners[rows], locations[rows])
        for some in files.pieces():
            data, offsets, sizes = files.lent(some)
            here = entry_ids[rows][some]
            if with_headers:
                headers = reader.read(data, offsets, sizes)
                ledgers, ids, right = headers.header(0), headers.header(8), headers.whole
            else:
                words, headers, right = WordReader(data), None, reader.digests_fit(data, offsets, sizes)
                ledgers, ids = words.big_endian(offsets), words.big_endian(offsets + 8)
            right = right & (ledgers == ledger_id) & (ids == here) & files.readable(some)
            yield Block(ledger_id, here, data, offsets, sizes, right, reader.data_at, headers)


class _Files:
    """Where some entries lie: in runs of neighbours of the same file. What cannot be read has no bytes."""

    def __init__(self, parts: Sequence[Located], owners: Positions, locations: Positions) -> None:
        import numpy as np

        self._parts = parts
        self._offsets = locations & 0xFFFFFFFF
        self._sizes = np.zeros(len(locations), np.int64)
        self._last = np.zeros(len(locations), bool)
        numbers = locations >> 32
        changes = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(owners) != 0)) + 1
        starts = [0, *changes.tolist(), len(locations)]
        self._runs = [
            (parts[int(owners[start])][0], int(numbers[start]), start, end) for start, end in pairwise(starts)
        ]
        for files, number, start, end in self._runs:
            with suppress(DecodeError, UnreachableError):
                self._measure(files.view(number), slice(start, end))

    def pieces(self) -> Iterator[slice]:
        """Yield the rows, so many at a time as are not too many bytes.

        The last ones of a file, which have to be copied for what is to follow them, come by themselves.
        """
        import numpy as np

        for some in bounded(self._sizes):
            cut = some.start + int(np.argmax(self._last[some]))
            if self._last[cut] and cut > some.start:
                yield slice(some.start, cut)
                yield slice(cut, some.stop)
            else:
                yield some

    def lent(self, rows: slice) -> tuple[Buffer, Positions, Positions]:
        """Return bytes with some rows in them, PADDING after each, where each entry lies, and its size.

        They are a file's own where all rows lie in it, else a copy.
        """
        from pulsar_meta.codecs.columns.headers import PADDING

        offsets, sizes = self._offsets[rows].copy(), self._sizes[rows].copy()
        offsets[sizes == 0] = 0
        parts = [part for part in self._within(rows) if sizes[part[2]].any()]
        if len(parts) == 1:
            view = parts[0][0].view(parts[0][1])
            if int((offsets + sizes).max()) + PADDING <= len(view):
                return view, offsets, sizes
        pieces: list[bytes] = []
        length = 0
        for files, number, here in parts:
            pieces.append(_copied(files.view(number), offsets[here], sizes[here]))
            offsets[here] += length
            length += len(pieces[-1])
        offsets[sizes == 0] = 0
        return b"".join([*pieces, bytes(PADDING)]), offsets, sizes

    def readable(self, rows: slice) -> Rows:
        """Return of which of these rows the files gave every byte; to be asked after they were read."""
        import numpy as np

        readable = np.ones(rows.stop - rows.start, bool)
        for files, number, here in self._within(rows):
            try:
                files.check(number)
            except (DecodeError, UnreachableError):
                readable[here] = False
        return readable

    def _within(self, rows: slice) -> Iterator[tuple[DataFiles, int, slice]]:
        """Yield the runs of some rows: their files, the number of one, which of the rows lie in it."""
        for files, number, first, stop in self._runs:
            start, end = max(first, rows.start) - rows.start, min(stop, rows.stop) - rows.start
            if start < end:
                yield files, number, slice(start, end)

    def _measure(self, view: memoryview, rows: slice) -> None:
        """Read the sizes before some entries; those that are none stay 0."""
        import numpy as np

        from pulsar_meta.codecs.columns.headers import PADDING
        from pulsar_meta.codecs.columns.words import WordReader

        offsets = self._offsets[rows]
        within = np.flatnonzero((offsets >= 4) & (offsets <= len(view) - 8))
        sizes = np.zeros(len(offsets), np.int64)
        sizes[within] = WordReader(view).sizes(offsets[within] - 4)
        self._sizes[rows] = np.where((sizes > 0) & (offsets + sizes <= len(view)), sizes, 0)
        self._last[rows] = offsets + self._sizes[rows] + PADDING > len(view)


def bounded(sizes: Positions) -> Iterator[slice]:
    """Yield the rows, so many at a time as are not more than BYTES_AT_ONCE together, one at least."""
    import numpy as np

    ends = np.cumsum(sizes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + BYTES_AT_ONCE, "right")))
        yield slice(start, end)
        start = end


def _copied(view: memoryview, offsets: Positions, sizes: Positions) -> bytes:
    """Return the bytes of some entries, whose places `offsets` become those in what is returned.

    Neighbours are copied in one piece, with what is between them.
    """
    import numpy as np

    there = sizes > 0
    first, last = int(offsets[there].min()), int((offsets + sizes)[there].max())
    total = int(sizes.sum())
    if last - first <= total + total // SPARSE:
        offsets -= first
        return bytes(view[first:last])
    places = zip(offsets.tolist(), sizes.tolist(), strict=True)
    data = b"".join([view[at : at + size] for at, size in places])
    offsets[:] = np.cumsum(sizes) - sizes
    return data
