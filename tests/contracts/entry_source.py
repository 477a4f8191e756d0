"""The contract of every entry source. Its test classes inherit `EntrySourceContract`.

The inheriting class has two fixtures: `source`, an open EntrySource, and `held`, which maps some ledgers to
all entry ids that the source must have. The ids come from another source of truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry, read_header
from pulsar_meta.entries.base import EntrySource, RawEntry

Held = Mapping[int, Sequence[int]]

ABSENT_LEDGER = 2**40 + 7


def check_entry(entry: RawEntry, ledger_id: int, entry_id: int) -> None:
    """Check that an entry is the requested one and is intact."""
    assert (entry.ledger_id, entry.entry_id) == (ledger_id, entry_id)
    if entry.bookie:
        assert read_header(entry.data)[:2] == (ledger_id, entry_id)
        assert decode_bookie_entry(entry.data).digest == "ok"


class EntrySourceContract:
    """Tests that every entry source passes."""

    def test_ledgers_are_listed_in_order_and_once(self, source: EntrySource, held: Held) -> None:
        ledgers = source.ledgers()
        assert ledgers == sorted(set(ledgers))
        assert set(held) <= set(ledgers)

    def test_entries_are_listed_in_order(self, source: EntrySource, held: Held) -> None:
        for ledger_id, entries in held.items():
            assert list(source.entry_ids(ledger_id)) == list(entries)
            assert source.last_entry(ledger_id) == entries[-1]

    @pytest.mark.parametrize(
        "bounds", [(0, None), (1, None), (0, 0), (1, 2), (2, 1), (10**6, None), (0, 10**9)]
    )
    def test_bounds_are_included(
        self, source: EntrySource, held: Held, bounds: tuple[int, int | None]
    ) -> None:
        first, last = bounds
        for ledger_id, entries in held.items():
            wanted = [entry for entry in entries if entry >= first and (last is None or entry <= last)]
            assert list(source.entry_ids(ledger_id, first, last)) == wanted
            assert [entry.entry_id for entry in source.read_many(ledger_id, first, last)] == wanted

    def test_each_entry_is_the_requested_one(self, source: EntrySource, held: Held) -> None:
        for ledger_id, entries in held.items():
            for entry_id in entries:
                check_entry(source.read(ledger_id, entry_id), ledger_id, entry_id)

    def test_read_many_equals_read(self, source: EntrySource, held: Held) -> None:
        for ledger_id in held:
            for entry in source.read_many(ledger_id):
                assert bytes(entry.data) == bytes(source.read(ledger_id, entry.entry_id).data)

    def test_copies_equal_the_entry(self, source: EntrySource, held: Held) -> None:
        ledger_id, entries = next(iter(held.items()))
        for entry_id in entries[:10]:
            copies = list(source.copies(ledger_id, entry_id))
            assert copies
            for copy in copies:
                check_entry(copy, ledger_id, entry_id)
        assert list(source.copies(ledger_id, entries[-1] + 1)) == []

    def test_located_entries_are_complete_and_listed_once(self, source: EntrySource, held: Held) -> None:
        for ledger_id, entries in held.items():
            located = source.located(ledger_id)
            if located is not None:
                located_ids = [entry_id for _, table in located for entry_id in table.entry_ids]
                assert sorted(located_ids) == list(entries)

    def test_the_properties_of_a_source_are_valid(self, source: EntrySource) -> None:
        assert source.entries_per_read >= 1
        assert isinstance(source.whole_ledgers, bool)
        assert [*source.notes, *source.faults] == [*source.notes, *source.faults]

    def test_missing_entries_are_not_found(self, source: EntrySource, held: Held) -> None:
        ledger_id, entries = next(iter(held.items()))
        for missing in ((ABSENT_LEDGER, 0), (ledger_id, entries[-1] + 1), (ledger_id, 2**62)):
            with pytest.raises(NotFoundError):
                source.read(*missing)
        assert source.last_entry(ABSENT_LEDGER) is None
        assert list(source.entry_ids(ABSENT_LEDGER)) == []
        assert list(source.read_many(ABSENT_LEDGER)) == []

    def test_closing_twice_is_safe(self, source: EntrySource) -> None:
        source.close()
        source.close()
