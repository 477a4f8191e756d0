"""What a subscription has still to consume: the entries after its position that it has not acknowledged.

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
    """Neighbouring entries of a ledger, both ends included."""

    ledger_id: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The runs of entries that are not acknowledged, in reading order, and all that is after the position.

    `acked` are the ranges that are acknowledged after the position, no two of them touching. `open_ledger`
    is one whose end nobody knows: there may be more, and the numbers are the least that there are.
    """

    runs: tuple[Run, ...]
    acked: tuple[Run, ...]
    open_ledger: int | None = None

    @property
    def entries(self) -> int:
        """How many entries are left to be consumed, as far as the ledgers' ends are known."""
        return _count(self.runs)

    @property
    def acked_entries(self) -> int:
        """How many entries after the position are acknowledged."""
        return _count(self.acked)


def backlog(ledgers: Sequence[Ledger], after: Position, acks: Acks) -> Backlog:
    """Return what comes after a mark-delete position and is not among the individual acknowledgements.

    `ledgers` are a topic's in reading order. What is acknowledged of ledgers that the topic has not (any
    more) counts for nothing.
    """
    runs: list[Run] = []
    acked: list[Run] = []
    open_ledger: int | None = None
    held = _by_ledger(ledgers, acks)
    for ledger in ledgers:
        if ledger.ledger_id < after.ledger_id:
            continue
        first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
        ranges = list(_merged(held.get(ledger.ledger_id, ()), first, ledger.entries))
        end = ledger.entries
        if end is None:
            open_ledger = ledger.ledger_id
            end = ranges[-1][1] + 1 if ranges else first
        acked += (Run(ledger.ledger_id, *one) for one in ranges)
        runs += (Run(ledger.ledger_id, *one) for one in _between(ranges, first, end))
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
    """Return the acknowledged entries by ledger, ranges over several ledgers split as brokers do."""
    held = {ledger_id: list(ranges) for ledger_id, ranges in acks.entries.items()}
    for (lower, after), (upper, last) in acks.spanning:
        for ledger in ledgers:
            if lower <= ledger.ledger_id <= upper:
                start = after + 1 if ledger.ledger_id == lower else 0
                stop = last if ledger.ledger_id == upper else (ledger.entries or 0) - 1
                held.setdefault(ledger.ledger_id, []).append((start, stop))
    return held


def _merged(ranges: Iterable[tuple[int, int]], first: int, entries: int | None) -> Iterator[tuple[int, int]]:
    """Yield what ranges cover of the entries from `first` on, in order and none touching another."""
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
    """Yield what lies between ranges in order, and before and after them, of [first, end)."""
    for low, high in ranges:
        if first < low:
            yield first, low - 1
        first = high + 1
    if first < end:
        yield first, end - 1


def _count(runs: Iterable[Run]) -> int:
    return sum(run.last - run.first + 1 for run in runs)
