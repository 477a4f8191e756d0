"""Entries that are counted from the end of a topic."""

from __future__ import annotations

import pytest

from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Limits, ranges
from pulsar_meta.jobs.topics.topic import Ledger
from tests.topic_builder import MemoryEntries

# Most ids are missing, as on the disks of one of several bookies.
ENTRIES = {1: (0, 1, 2), 2: (), 3: (0, 9, 10, 400, 401), 4: (7, 3000)}


@pytest.mark.parametrize("count", range(1, 11))
def test_entries_are_counted_from_the_end_even_if_ids_are_missing(count: int) -> None:
    source = MemoryEntries()
    for ledger_id, ids in ENTRIES.items():
        for entry_id in ids:
            source.put(ledger_id, entry_id, b"x")
    choice = Choice("t", [Ledger(ledger_id) for ledger_id in ENTRIES], is_topic=True)
    everything = [(ledger_id, entry_id) for ledger_id, ids in ENTRIES.items() for entry_id in ids]

    def chosen(limits: Limits) -> list[tuple[int, int]]:
        parts = ranges(choice, limits, source)
        return [
            (part.ledger.ledger_id, entry_id)
            for part in parts
            for entry_id in source.entry_ids(part.ledger.ledger_id, part.first, part.last)
        ]

    assert chosen(Limits(first=Bound(-count))) == everything[-count:]
    # The last entry is included, and of a shorter topic the first entry remains.
    assert chosen(Limits(last=Bound(-count))) == everything[: max(len(everything) - count + 1, 1)]
