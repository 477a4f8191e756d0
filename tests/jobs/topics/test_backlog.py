"""Backlogs with overlapping ranges, ranges over several ledgers, and ranges in ledgers that are gone."""

from __future__ import annotations

from pulsar_meta.codecs.metadata.acks import Acks, acks_of
from pulsar_meta.jobs.topics.backlog import Run, backlog
from pulsar_meta.jobs.topics.topic import Ledger, Position
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo

LEDGERS = [Ledger(3, 10, "closed"), Ledger(5, 0, "closed"), Ledger(7, 20, "closed"), Ledger(9, 5, "closed")]


def acks(*ranges: tuple[int, int, int, int]) -> Acks:
    """Build acknowledged ranges as in a record: (ledger, entry), exclusive, to (ledger, entry)."""
    record = ManagedCursorInfo(cursorsLedgerId=-1)
    for lower, after, upper, last in ranges:
        added = record.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId, added.lowerEndpoint.entryId = lower, after
        added.upperEndpoint.ledgerId, added.upperEndpoint.entryId = upper, last
    return acks_of(record)


def test_entries_after_the_position_are_the_backlog() -> None:
    result = backlog(LEDGERS, Position(3, 3), Acks())
    assert result.runs == (Run(3, 4, 9), Run(7, 0, 19), Run(9, 0, 4))
    assert (result.entries, result.acked_entries, result.open_ledger) == (31, 0, None)
    assert backlog(LEDGERS, Position(9, 4), Acks()).entries == 0
    assert backlog(LEDGERS, Position(1, 99), Acks()).entries == 35
    assert backlog(LEDGERS, Position(4, -1), Acks()).entries == 25
    assert backlog([], Position(4, -1), Acks()).entries == 0


def test_overlapping_acknowledgements_are_counted_once() -> None:
    overlapping = acks((7, 1, 7, 5), (7, 3, 7, 8), (7, 8, 7, 9), (7, -1, 7, 0))
    result = backlog(LEDGERS, Position(3, 9), overlapping)
    assert result.acked == (Run(7, 0, 0), Run(7, 2, 9))
    assert result.runs == (Run(7, 1, 1), Run(7, 10, 19), Run(9, 0, 4))


def test_ranges_over_several_ledgers_are_split_as_brokers_do() -> None:
    result = backlog(LEDGERS, Position(3, 0), acks((3, 7, 9, 1)))
    assert result.acked == (Run(3, 8, 9), Run(7, 0, 19), Run(9, 0, 1))
    assert result.runs == (Run(3, 1, 7), Run(9, 2, 4))


def test_ranges_outside_the_backlog_do_not_count() -> None:
    odd = acks((3, -1, 3, 2), (9, 2, 9, 99), (4, -1, 4, 50), (8, 0, 8, 3), (7, 5, 7, 5))
    result = backlog(LEDGERS, Position(3, 4), odd)
    assert result.acked == (Run(9, 3, 4),)
    assert result.entries == 5 + 20 + 3


def test_the_backlog_of_an_open_ledger_is_a_minimum() -> None:
    ledgers = [*LEDGERS, Ledger(11, None, "open")]
    result = backlog(ledgers, Position(9, 4), acks((11, 1, 11, 3), (11, 6, 11, 7)))
    assert result.open_ledger == 11
    assert result.runs == (Run(11, 0, 1), Run(11, 4, 6))
    assert backlog(ledgers, Position(11, 6), Acks()).entries == 0
