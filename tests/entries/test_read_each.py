"""Entries read in few requests are those that are read one by one, broken and missing ones too."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.entries.base import RUN, RawEntry, entry_of, read_each
from pulsar_meta.entries.registry import open_entries
from tests.entries.worn import Worn

LEDGER = 7
BROKEN = DecodeError("broken")
GONE = NotFoundError("gone")


def test_each_entry_comes_once_in_order_with_what_is_wrong() -> None:
    lost: dict[int, Exception] = {0: GONE, 3: BROKEN, 4: GONE, RUN: BROKEN, RUN + 9: GONE, 2 * RUN + 5: GONE}
    source = Worn(2 * RUN + 6, lost)
    found = list(read_each(source, LEDGER))
    assert [entry_id for entry_id, _ in found] == list(range(2 * RUN + 6))
    assert {number: one for number, one in found if not isinstance(one, RawEntry)} == lost
    assert all(one.data == b"%d" % number for number, one in found if isinstance(one, RawEntry))
    assert list(read_each(source, LEDGER, 2, 4)) == found[2:5]
    with pytest.raises(DecodeError, match="broken"):
        entry_of(found[3][1])


def test_a_whole_ledger_takes_one_request() -> None:
    source = Worn(3 * RUN, {})
    assert len(list(read_each(source, LEDGER))) == 3 * RUN
    assert source.requests == 1


def test_a_source_that_is_not_reached_is_an_error() -> None:
    source = Worn(20, {12: UnreachableError("no answer")})
    found = []
    with pytest.raises(UnreachableError, match="no answer"):
        for entry_id, _ in read_each(source, LEDGER):
            found.append(entry_id)
    assert found == list(range(12))


@pytest.mark.parametrize("cut", [False, True])
def test_a_disk_gives_what_it_gives_one_by_one(
    capture: Callable[[str], Path], tmp_path: Path, cut: bool
) -> None:
    folder = tmp_path / "bookie"
    shutil.copytree(capture("pulsar-4.2.4") / "bookie0", folder)
    if cut:
        log = max(folder.glob("current/*.log"), key=lambda path: path.stat().st_size)
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
    broken = 0
    with open_entries([f"bookie-disk:{folder}"]) as source:
        for ledger in source.ledgers():
            found = dict(read_each(source, ledger))
            assert list(found) == list(source.entry_ids(ledger))
            for entry_id, outcome in found.items():
                try:
                    assert bytes(source.read(ledger, entry_id).data) == bytes(entry_of(outcome).data)
                except DecodeError:
                    assert isinstance(outcome, DecodeError)
                    broken += 1
    assert (broken > 100) == cut
