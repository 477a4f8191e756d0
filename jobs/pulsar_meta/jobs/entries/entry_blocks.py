"""Read the entries of places in blocks, and report entries that are missing or cannot be read.

Most rows of a block are decoded together (`entry_reader`). The other rows, and every entry of a ledger
that cannot be read in blocks, are read one by one, with the same order, reports and counts. NumPy is
imported with the first block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

from pulsar_meta.entries.base import EntrySource, Outcome, outcome_of, read_each
from pulsar_meta.jobs.entries.entry_choice import Coverage, Place
from pulsar_meta.jobs.entries.entry_reading import Presence, Readable, parts_of
from pulsar_meta.jobs.topics.bookkeeper import EntryFormat
from pulsar_meta.jobs.topics.topic import MAX_ID, Report, SegmentNames
from pulsar_meta.stores.base import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from pulsar_meta.codecs.columns.words import Positions, Rows
    from pulsar_meta.jobs.entry_reader import Block

# Commands read this many entries one by one, so that few entries need no NumPy and the first appear at once.
ONE_BY_ONE: Final = 512


@dataclass(slots=True)
class Patience:
    """The number of entries that a command still reads one by one."""

    left: int = field(default_factory=lambda: ONE_BY_ONE)


@dataclass(frozen=True, slots=True)
class PresentBlock:
    """A block of a range, and a way to read the rows that are not whole one by one."""

    block: Block
    presence: Presence

    @property
    def segment(self) -> SegmentNames:
        """The fields that name the segment of a scalable topic in documents; empty for other topics."""
        return self.presence.part.segment

    def count(self, rows: Rows | Positions) -> None:
        """Count the entries of some rows, which are whole."""
        entry_ids = self.block.entry_ids[rows]
        self.presence.count(len(entry_ids), self.presence.placed.count_of(entry_ids))

    @property
    def is_whole(self) -> bool:
        """True if every row is whole."""
        return bool(self.block.whole.all())

    def entries(self) -> Iterator[Readable]:
        """Read all entries one by one. Unreadable entries are reported."""
        entries = map(self.entry, range(len(self.block.entry_ids)))
        return (entry for entry in entries if entry is not None)

    def entry(self, row: int) -> Readable | None:
        """Read and count the entry of a row. An unreadable entry is reported, and None is returned."""
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
    """Yield the same entries as `read_entries`, at most `count`, most of them in blocks.

    The caller counts the rows of a block that it shows from columns, and reads the others with `entry`.
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
            # Unreadable entries don't count, so each one is read before the next is requested.
            for entry in islice(held.entries(), left):
                left -= 1
                yield entry


@dataclass(frozen=True, slots=True)
class Frames:
    """The data of some entries, each after its size in 4 bytes."""

    entry_ids: Positions
    data: memoryview


def frames_of(held: PresentBlock) -> Iterator[Frames | Readable]:
    """Yield the data of a block's entries in order; rows that are not whole are read one by one."""
    import numpy as np

    from pulsar_meta.codecs.columns.words import SHORTEST, sized_pieces

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


def read_batches(
    places: Iterable[Place],
    source: EntrySource,
    store: Store | None,
    names: Sequence[str],
    report: Report,
    coverage: Coverage,
    *,
    verify: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `names` of the entries of places as Arrow batches, in reading order.

    Unreadable entries have `broken` true. Missing entries are reported and counted. With `verify`, digests
    and checksums are computed. Raises UnreachableError.
    """
    from pulsar_meta.jobs.entry_reader import TOPIC, read_columns, record_batch

    headers = [name for name in names if name != TOPIC]
    for choice, limits in places:
        topic = choice.name if choice.is_topic else None
        for part, ledger in parts_of([(choice, limits)], source, store, report, coverage):
            presence = Presence(part, ledger, source, report, coverage)
            if not presence.begin():
                continue
            digest = ledger.format.digest_type
            for columns in read_columns(
                source, ledger.ledger_id, headers, part.first, part.last, digest_type=digest, verify=verify
            ):
                entry_ids = columns["entry_id"].values
                presence.count(len(entry_ids), presence.placed.count_of(entry_ids))
                yield record_batch(columns, names, topic)
            presence.end()


def read_present(
    presence: Presence, patience: Patience, *, with_headers: bool = True
) -> Iterator[PresentBlock | Readable]:
    """Yield the entries of a range, most of them in blocks; report those that cannot be read."""
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
        entry = presence.entry(*held) if isinstance(held, tuple) else PresentBlock(held, presence)
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
) -> Iterator[Block | tuple[int, Outcome]]:
    """Yield the same entries as `read_each`, in the same order, most of them in blocks.

    If `with_headers` is false, only digests are verified.
    """
    newest = source.last_entry(ledger_id) if _in_blocks(source, ledger_id, first, form) else None
    if newest is None:
        yield from read_each(source, ledger_id, first, last)
        return
    end = newest if last is None else min(last, newest)
    at, width = first, patience.left
    while at <= end and patience.left > 0:
        stop, count = min(end, at + width - 1), 0
        for outcome in read_each(source, ledger_id, at, stop):
            count += 1
            yield outcome
        patience.left -= count
        # If ids are far apart, the next range of ids is wider.
        width = width if count else 2 * width
        at = stop + 1
    if at <= end:
        from pulsar_meta.codecs.columns.headers import HeaderReader
        from pulsar_meta.jobs import entry_reader

        reader = HeaderReader(digest_type=form.digest_type)
        yield from entry_reader.read_blocks(source, ledger_id, at, end, reader, with_headers=with_headers)


def _in_blocks(source: EntrySource, ledger_id: int, first: int, form: EntryFormat) -> bool:
    """True if a ledger's entries are frames with a digest that can be computed for many entries at once."""
    if form.content is not None or form.digest_type not in (None, "CRC32C", "CRC32"):
        return False
    return source.located(ledger_id, first, first) is not None
