"""Ranges: the first and the last index of every ledger, which say where an index can be.

Inside a ledger indexes do not step back, so that its entries hold no index outside its range. An index that
no ledger's range includes is absent.

Ranges can be kept in a Parquet file, so that a later run need not read them again. A kept range counts only
while its ledger has as many entries as when it was read. Ranges that rest on entries that are missing or
unreadable are not kept, because another source may have these entries.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.jobs.seek.readings import (
    AFTER_LAST,
    BEFORE_FIRST,
    GAP,
    MAX_LEDGERS,
    NO_INDEX,
    PATIENCE,
    LedgerRange,
    Reading,
    ReadingOrder,
    State,
    Status,
    by_index,
    obstacle_of,
    out_of_patience,
    too_many_ledgers,
    value_of,
    worst,
)

# Reads the ordinals [first, last]: (ordinal, reading, number of entries that are like it).
ReadOrdinals = Callable[[int, int], Sequence[tuple[int, Reading, int]]]


class IndexRange(NamedTuple):
    """The first and the last index of a ledger with `entries` entries, None if no entry has an index.

    `head` is the obstacle among the entries before the first one that has an index, `tail` that of the
    entries after the last one; a ledger without any index has only a `head`. `is_complete` is False if the
    reading ended at a limit, so that the ledger may hold other indexes, too.
    """

    ledger_id: int
    entries: int
    low: int | None
    high: int | None
    head: Status | None = None
    tail: Status | None = None
    is_complete: bool = True

    def may_hold(self, index: int) -> bool:
        """True if an entry of the ledger may have this index."""
        if not self.is_complete:
            return True
        return self.low is not None and self.high is not None and self.low <= index <= self.high


class Patience:
    """Counts entries that have no index, and is used up after PATIENCE of them, unless it is unlimited."""

    def __init__(self, *, unlimited: bool = False) -> None:
        self.unlimited = unlimited
        self.silent_reads = 0

    def __bool__(self) -> bool:
        return self.unlimited or self.silent_reads <= PATIENCE


class RangeReader:
    """Reads the ranges of ledgers. `read` is that of the topic; `per_read` entries are one round trip."""

    def __init__(self, read: ReadOrdinals, per_read: int, patience: Patience) -> None:
        self.read = read
        self.per_read = per_read
        self.patience = patience

    def range_of(self, span: LedgerRange, start: int) -> IndexRange:
        """Read both ends of the ledger that begins at the ordinal `start`. Raises UnreachableError."""
        head: set[State] = set()
        first = self.first(start, start + span.entries, head)
        if first is None:
            complete = bool(self.patience)
            return IndexRange(
                span.ledger_id, span.entries, None, None, obstacle_of(head), None, is_complete=complete
            )
        tail: set[State] = set()
        high = self._last(first[0], start + span.entries, tail)
        return IndexRange(
            span.ledger_id,
            span.entries,
            first[1],
            high,
            obstacle_of(head),
            obstacle_of(tail),
            is_complete=high is not None,
        )

    def first(self, start: int, stop: int, head: set[State]) -> tuple[int, int] | None:
        """Return the ordinal and the index of the first entry that has one, None if none was found.

        Adds the states of the entries before it to `head`.
        """
        ordinal, entries = start, 1
        while ordinal < stop and self.patience:
            for at, reading, span in self.read(ordinal, min(ordinal + entries, stop) - 1):
                value = value_of(reading, by_index)
                if value is not None:
                    return at, value[0]
                self._count(reading, head)
                ordinal = max(ordinal, at + span)
            entries = self.per_read
        return None

    def _last(self, first: int, stop: int, tail: set[State]) -> int | None:
        """Return the last index of a ledger, None if patience ends. The entry `first` has an index."""
        ordinal, entries = stop - 1, 1
        while self.patience:
            readings = self.read(max(ordinal - entries + 1, first), ordinal)
            for _, reading, _ in reversed(readings):
                value = value_of(reading, by_index)
                if value is not None:
                    return value[1]
                self._count(reading, tail)
            ordinal = min(ordinal, *(at for at, _, _ in readings)) - 1
            entries = self.per_read
        return None

    def _count(self, reading: Reading, states: set[State]) -> None:
        self.patience.silent_reads += 1
        states.add(reading.state)


class LedgerRanges:
    """The ranges of a topic's ledgers, read at most once, for a search in this process.

    `limit` says which limit ended the reading, None if every ledger was looked into. `kept` has ranges that
    are known before, by ledger id.
    """

    def __init__(
        self,
        order: ReadingOrder,
        read: ReadOrdinals,
        per_read: int,
        *,
        exhaustive: bool,
        kept: Mapping[int, IndexRange],
    ) -> None:
        self.limit: str | None = None
        self.ranges: list[IndexRange] = []
        self._order = order
        self._exhaustive = exhaustive
        self._kept = kept
        self._reader = RangeReader(read, per_read, Patience(unlimited=exhaustive))
        self._was_read = False

    def read_all(self) -> None:
        """Read both ends of every ledger, until a limit is reached."""
        if self._was_read:
            return
        self._was_read = True
        unread = sum(not is_kept(self._kept, span) for span in self._order.spans)
        if unread > MAX_LEDGERS and not self._exhaustive:
            self.limit = too_many_ledgers(unread)
            return
        for start, span in zip(self._order.starts, self._order.spans, strict=True):
            kept = is_kept(self._kept, span)
            self.ranges.append(self._kept[span.ledger_id] if kept else self._reader.range_of(span, start))
            if not self.ranges[-1].is_complete:
                self.limit = out_of_patience(by_index)
            if not self._reader.patience:
                return

    def ledgers_around(self, index: int) -> list[tuple[int, int]]:
        """Return the ordinals [start, stop) of the ledgers whose first and last index include `index`."""
        return [
            (start, start + ledger.entries)
            for start, ledger in zip(self._order.starts, self.ranges, strict=False)
            if ledger.low is not None and ledger.may_hold(index)
        ]

    @property
    def extremes(self) -> tuple[int | None, int | None]:
        """The lowest and the highest index of the topic, None if no entry has an index."""
        return extremes_of(self.ranges)


def ranges_of(
    order: ReadingOrder,
    read: ReadOrdinals,
    per_read: int,
    *,
    exhaustive: bool,
    kept: Mapping[int, IndexRange] = MappingProxyType({}),
) -> list[IndexRange]:
    """Read the ranges of all ledgers that are not kept; patience counts for each ledger."""
    ranges = []
    for start, span in zip(order.starts, order.spans, strict=True):
        if is_kept(kept, span):
            ranges.append(kept[span.ledger_id])
        else:
            reader = RangeReader(read, per_read, Patience(unlimited=exhaustive))
            ranges.append(reader.range_of(span, start))
    return ranges


def is_kept(kept: Mapping[int, IndexRange], span: LedgerRange) -> bool:
    """True if the range of these entries is known: all of a ledger that has as many entries as then."""
    ledger = kept.get(span.ledger_id)
    return ledger is not None and span.first_entry == 0 and ledger.entries == span.entries


def extremes_of(ranges: Sequence[IndexRange]) -> tuple[int | None, int | None]:
    """Return the lowest and the highest index in some ranges, None if there is none."""
    lowest = min((ledger.low for ledger in ranges if ledger.low is not None), default=None)
    return lowest, max((ledger.high for ledger in ranges if ledger.high is not None), default=None)


class FirstIndexes:
    """The first indexes of ledgers, sorted, which say where an index belongs. Ledgers are named by number."""

    def __init__(self, firsts: Iterable[tuple[int, int]]) -> None:
        """`firsts` are pairs of a first index and the number of its ledger."""
        self._sorted = sorted(firsts)

    def ledger_of(self, index: int) -> int | None:
        """Return the ledger with the highest first index that is not above `index`, None if there is none."""
        at = bisect_right(self._sorted, index, key=lambda first: first[0]) - 1
        return self._sorted[at][1] if at >= 0 else None


class Router:
    """Finds the ledgers that may hold an index, among the ranges of a topic in reading order.

    A lookup takes logarithmic time in a topic whose indexes do not step back. Ledgers are named by their
    place in `ranges`.
    """

    def __init__(self, ranges: Sequence[IndexRange]) -> None:
        self.ranges = ranges
        self._incomplete = [at for at, ledger in enumerate(ranges) if not ledger.is_complete]
        self._indexed = [
            at for at, ledger in enumerate(ranges) if ledger.is_complete and ledger.low is not None
        ]
        self._by_low = sorted(self._indexed, key=self._low)
        self._lows = [self._low(at) for at in self._by_low]
        # The highest index of the first n ledgers by first index: those whose ranges end earlier are skipped.
        self._highest = list(accumulate((self._high(at) for at in self._by_low), max))
        self._lowest, self._last = extremes_of(ranges)
        pairs = [(self._low(at), self._high(at)) for at in self._indexed]
        self._in_order = all(left[1] < right[0] for left, right in pairwise(pairs))

    def _low(self, at: int) -> int:
        low = self.ranges[at].low
        return -1 if low is None else low

    def _high(self, at: int) -> int:
        high = self.ranges[at].high
        return -1 if high is None else high

    def candidates(self, index: int) -> list[int]:
        """Return every ledger that may hold `index`, in reading order."""
        at = bisect_right(self._lows, index) - 1
        chosen = list(self._incomplete)
        while at >= 0 and self._highest[at] >= index:
            if self._high(self._by_low[at]) >= index:
                chosen.append(self._by_low[at])
            at -= 1
        return sorted(chosen)

    def absent(self, index: int) -> Status:
        """Return the status of an index that no range includes."""
        below = self._last_below(index)
        start = -1 if below is None else self._indexed[below]
        above = self._first_above(index, 0 if below is None else below + 1)
        obstacles = [ledger.head for ledger in self.ranges[start + 1 : above + 1]]
        if below is not None:
            obstacles.append(self.ranges[start].tail)
        obstacle = worst(obstacles)
        if obstacle is not None:
            return obstacle
        if self._last is None or index > self._last:
            return AFTER_LAST
        return BEFORE_FIRST if self._lowest is not None and index < self._lowest else GAP

    def _last_below(self, index: int) -> int | None:
        """Return the place in `_indexed` of the last ledger that ends below `index`."""
        if self._in_order:
            return bisect_left(self._indexed, index, key=self._high) - 1 if self._is_above(index) else None
        below = (at for at in reversed(range(len(self._indexed))) if self._high(self._indexed[at]) < index)
        return next(below, None)

    def _is_above(self, index: int) -> bool:
        return bool(self._indexed) and self._high(self._indexed[0]) < index

    def _first_above(self, index: int, start: int) -> int:
        """Return the first ledger from place `start` on that begins above `index`, else the end."""
        if self._in_order:
            start = bisect_right(self._indexed, index, start, key=self._low)
        above = (at for at in islice(self._indexed, start, None) if self._low(at) > index)
        return next(above, len(self.ranges))


# A column of Parquet has signed numbers.
HIGHEST: Final = 2**63 - 1
COLUMNS: Final = ("cluster", "topic", "ledger_id", "entries", "low", "high", "head", "tail")


class KeptRanges:
    """The ranges of topics' ledgers, by cluster ("" without a name), topic and ledger id."""

    def __init__(self) -> None:
        self._topics: dict[tuple[str, str], dict[int, IndexRange]] = {}

    def of(self, cluster: str | None, topic: str) -> Mapping[int, IndexRange]:
        """Return the kept ranges of a topic, by ledger id."""
        return self._topics.get((cluster or "", topic), {})

    def keep(self, cluster: str | None, topic: str, ranges: Iterable[IndexRange]) -> None:
        """Replace the ranges of a topic."""
        self._topics[cluster or "", topic] = {
            ledger.ledger_id: ledger for ledger in ranges if _is_certain(ledger)
        }

    def write(self, file: IO[bytes]) -> None:
        """Write a Parquet file with one row per ledger."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [
            dict(zip(COLUMNS, (*name, *ledger[:-1]), strict=True))
            for name, ledgers in self._topics.items()
            for ledger in ledgers.values()
        ]
        types = (pa.string(), pa.string(), *[pa.int64()] * 4, pa.string(), pa.string())
        schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
        pq.write_table(pa.Table.from_pylist(rows, schema), file)


def read_kept_ranges(path: Path) -> KeptRanges:
    """Read a file that `KeptRanges.write` made. Raises DecodeError, and OSError from the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kept = KeptRanges()
    try:
        with path.open("rb") as file:
            rows: list[dict[str, Any]] = pq.read_table(file, columns=list(COLUMNS)).to_pylist()
        for row in rows:
            cluster, topic, *values = (row[name] for name in COLUMNS)
            ledger = IndexRange(*values)
            kept._topics.setdefault((cluster, topic), {})[ledger.ledger_id] = ledger
    except (pa.ArrowException, KeyError) as error:
        raise DecodeError(f"not a file of kept ranges: {error}", source=str(path)) from error
    return kept


def _is_certain(ledger: IndexRange) -> bool:
    read = all(obstacle in (None, NO_INDEX) for obstacle in (ledger.head, ledger.tail))
    return read and ledger.is_complete and (ledger.high is None or ledger.high <= HIGHEST)
