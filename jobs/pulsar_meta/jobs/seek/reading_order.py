"""A topic's ledgers in reading order, with every entry numbered from 0 (its ordinal).

All of it comes from the metadata (ManagedLedgerInfo) and costs no read of an entry. What the metadata
says about indexes and times is kept as hints: a search aims by them and never answers by them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pulsar_meta.jobs.topics.topic import Position


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """The entries [first_entry, first_entry + entries) of a ledger, and what its metadata claims.

    `first_index` is the index of the first message of entry 0 (a property by PIP-404) and `closed_at`
    the close time in milliseconds (LedgerInfo.timestamp; None where absent or 0, the open ledger).
    """

    ledger_id: int
    entries: int
    first_entry: int = 0
    first_index: int | None = None
    closed_at: int | None = None


class ReadingOrder:
    """The ledgers of a topic in reading order, and the mapping between ordinals and positions."""

    __slots__ = ("last_index", "spans", "starts", "total")

    def __init__(self, spans: Iterable[LedgerRange], last_index: int | None = None) -> None:
        """`last_index` is the managed ledger's property "index": the last one that was given out."""
        self.spans: Sequence[LedgerRange] = [span for span in spans if span.entries > 0]
        self.last_index = last_index
        self.starts: list[int] = []
        self.total = 0
        for span in self.spans:
            self.starts.append(self.total)
            self.total += span.entries

    def position(self, ordinal: int) -> Position:
        """Return the position of the entry with this ordinal."""
        at = bisect_right(self.starts, ordinal) - 1
        span = self.spans[at]
        return Position(span.ledger_id, span.first_entry + ordinal - self.starts[at])

    def ordinal(self, position: Position) -> int:
        """Return the ordinal of the first entry at or after `position` (`total`: there is none)."""
        at = bisect_right(self.spans, position.ledger_id, key=lambda span: span.ledger_id) - 1
        if at < 0:
            return 0
        span = self.spans[at]
        if span.ledger_id < position.ledger_id:
            return self.starts[at] + span.entries
        return self.starts[at] + min(max(position.entry_id - span.first_entry, 0), span.entries)

    def ledger_bounds(self, ordinal: int) -> tuple[int, int]:
        """Return the ordinals [start, stop) of the ledger that holds this ordinal."""
        at = bisect_right(self.starts, ordinal) - 1
        return self.starts[at], self.starts[at] + self.spans[at].entries

    def between(self, start: int, stop: int) -> ReadingOrder:
        """Return the part with the ordinals [start, stop) only."""
        clipped = []
        for span, begin in zip(self.spans, self.starts, strict=True):
            left, right = max(begin, start), min(begin + span.entries, stop)
            if left < right:
                first = span.first_entry + left - begin
                clipped.append(replace(span, first_entry=first, entries=right - left))
        return ReadingOrder(clipped, self.last_index if stop >= self.total else None)
