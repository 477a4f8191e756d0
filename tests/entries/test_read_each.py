"""Entries read with few requests equal those read one at a time, and broken and missing ones are reported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.entries.base import RUN, RawEntry, entry_of, read_each
from pulsar_meta.entries.sources import open_entries
from tests.entries.worn import Worn

LEDGER = 7
BROKEN = DecodeError("broken")
GONE = NotFoundError("gone")


def test_each_entry_is_yielded_once_in_order_with_its_error() -> None:
    errors: dict[int, Exception] = {
        0: GONE,
        3: BROKEN,
        4: GONE,
        RUN: BROKEN,
        RUN + 9: GONE,
        2 * RUN + 5: GONE,
    }
    source = Worn(2 * RUN + 6, errors)
    outcomes = list(read_each(source, LEDGER))
    assert [entry_id for entry_id, _ in outcomes] == list(range(2 * RUN + 6))
    assert {number: outcome for number, outcome in outcomes if not isinstance(outcome, RawEntry)} == errors
    assert all(
        outcome.data == b"%d" % number for number, outcome in outcomes if isinstance(outcome, RawEntry)
    )
    assert list(read_each(source, LEDGER, 2, 4)) == outcomes[2:5]
    with pytest.raises(DecodeError, match="broken"):
        entry_of(outcomes[3][1])


def test_a_complete_ledger_needs_one_request() -> None:
    source = Worn(3 * RUN, {})
    assert len(list(read_each(source, LEDGER))) == 3 * RUN
    assert source.requests == 1


def test_an_unreachable_source_ends_the_read() -> None:
    source = Worn(20, {12: UnreachableError("no answer")})
    entry_ids = []
    with pytest.raises(UnreachableError, match="no answer"):
        for entry_id, _ in read_each(source, LEDGER):
            entry_ids.append(entry_id)
    assert entry_ids == list(range(12))


@pytest.mark.parametrize("truncated", [False, True])
def test_reading_in_bulk_equals_reading_one_entry_at_a_time(
    capture: Callable[[str], Path], tmp_path: Path, truncated: bool
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder)
    if truncated:
        log = max(folder.glob("current/*.log"), key=lambda path: path.stat().st_size)
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
    broken = 0
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for ledger in source.ledgers():
            outcomes = dict(read_each(source, ledger))
            assert list(outcomes) == list(source.entry_ids(ledger))
            for entry_id, outcome in outcomes.items():
                try:
                    assert bytes(source.read(ledger, entry_id).data) == bytes(entry_of(outcome).data)
                except DecodeError:
                    assert isinstance(outcome, DecodeError)
                    broken += 1
    assert (broken > 100) == truncated
