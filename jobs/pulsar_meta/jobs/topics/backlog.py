"""Compute a subscription's backlog: the entries after its position that it has not acknowledged.

Source: apache/pulsar ManagedCursorImpl (getNumberOfEntriesInBacklog, recoverIndividualDeletedMessages),
ManagedLedgerImpl.getNumberOfEntries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pulsar_meta.codecs.metadata.acks import Acks
from pulsar_meta.jobs.topics.topic import Ledger, Position


class Run(NamedTuple):
    """Consecutive entries of a ledger, from `first` to `last`."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The runs of unacknowledged entries after the mark-delete position, in reading order.

    `acked` are the acknowledged runs after the position; no two of them touch. `open_ledger` is a ledger of
    unknown length, so there may be more entries than the numbers show.
    """

    runs: tuple[Run, ...]
    acked: tuple[Run, ...]
    open_ledger: int | None = None

    @property
    def entries(self) -> int:
        """The number of unacknowledged entries, without entries of unknown length."""
        return count_entries(self.runs)

    @property
    def acked_entries(self) -> int:
        """The number of acknowledged entries after the position."""
        return count_entries(self.acked)


def backlog(ledgers: Sequence[Ledger], after: Position, acks: Acks) -> Backlog:
    """Compute the backlog after a mark-delete position.

    `ledgers` are the topic's, in reading order. Acknowledgments in other ledgers are ignored.
    """
    runs: list[Run] = []
    acked: list[Run] = []
    open_ledger: int | None = None
    acked_by_ledger = _by_ledger(ledgers, acks)
    for ledger in ledgers:
        if ledger.ledger_id < after.ledger_id:
            continue
        first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
        ranges = list(_merged(acked_by_ledger.get(ledger.ledger_id, ()), first, ledger.entries))
        end = ledger.entries
        if end is None:
            open_ledger = ledger.ledger_id
            end = ranges[-1][1] + 1 if ranges else first
        acked += (Run(ledger.ledger_id, *pair) for pair in ranges)
        runs += (Run(ledger.ledger_id, *pair) for pair in _between(ranges, first, end))
    return Backlog(tuple(runs), tuple(acked), open_ledger)


def common_entries(first: Backlog, second: Backlog) -> int:
    """Count the entries that are in both backlogs."""
    runs, others, count = sorted(first.runs), sorted(second.runs), 0
    while runs and others:
        run, other = runs[-1], others[-1]
        if run.ledger_id == other.ledger_id:
            count += max(0, min(run.last, other.last) - max(run.first, other.first) + 1)
        # The run that begins later can't meet any of those that are left.
        (runs if run[:2] >= other[:2] else others).pop()
    return count


def _by_ledger(ledgers: Iterable[Ledger], acks: Acks) -> dict[int, list[tuple[int, int]]]:
    """Collect the acknowledged entries per ledger.

    Ranges over several ledgers are split as brokers split them.
    """
    acked = {ledger_id: list(ranges) for ledger_id, ranges in acks.entries.items()}
    for (lower, after), (upper, last) in acks.spanning:
        for ledger in ledgers:
            if lower <= ledger.ledger_id <= upper:
                start = after + 1 if ledger.ledger_id == lower else 0
                stop = last if ledger.ledger_id == upper else (ledger.entries or 0) - 1
                acked.setdefault(ledger.ledger_id, []).append((start, stop))
    return acked


def _merged(ranges: Iterable[tuple[int, int]], first: int, entries: int | None) -> Iterator[tuple[int, int]]:
    """Sort and merge ranges, cut to the entries from `first` on; none of the results touches another."""
    start: int | None = None
    stop = -1
    for low, high in sorted(ranges):
        low, high = max(low, first), high if entries is None else min(high, entries - 1)
        if low > high:
            continue
        if start is not None and low <= stop + 1:
            stop = max(stop, high)
            continue
        if start is not None:
            yield start, stop
        start, stop = low, high
    if start is not None:
        yield start, stop


def _between(ranges: Iterable[tuple[int, int]], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the gaps between sorted ranges in [first, end), including those before and after them."""
    for low, high in ranges:
        if first < low:
            yield first, low - 1
        first = high + 1
    if first < end:
        yield first, end - 1


def count_entries(runs: Iterable[Run]) -> int:
    """Return the number of entries in some runs."""
    return sum(run.last - run.first + 1 for run in runs)
