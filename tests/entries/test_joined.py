"""Several sources as one: what they can do is what they can do together, and no entry is read twice."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import BaseSource, RawEntry
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.locations import LedgerLocations

LEDGER = 5


class Counted(BaseSource):
    """Entries of one ledger in memory; counts what it is asked, and has some that cannot be read."""

    def __init__(
        self, name: str, held: Sequence[int], broken: Sequence[int] = (), lost: Sequence[int] = ()
    ) -> None:
        self.url, self.held, self.broken, self.lost = name, list(held), set(broken), set(lost)
        self.asked: list[str] = []

    def ledgers(self) -> list[int]:
        return [LEDGER]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return (one for one in self.held if first <= one and (last is None or one <= last))

    def last_entry(self, ledger_id: int) -> int | None:
        return max(self.held, default=None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        self.asked.append(f"{entry_id}")
        return self._entry(entry_id)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        self.asked.append(f"{first}-{last}")
        for entry_id in self.entry_ids(ledger_id, first, last):
            if entry_id not in self.lost:
                yield self._entry(entry_id)

    def _entry(self, entry_id: int) -> RawEntry:
        if entry_id in self.broken:
            raise DecodeError(f"{entry_id} is broken")
        if entry_id not in self.held or entry_id in self.lost:
            raise NotFoundError(f"no {entry_id}")
        return RawEntry(LEDGER, entry_id, self.url.encode(), bookie=False)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([["a"], ["b"]], {"a", "b"}),
        ([["a"], None], None),
        ([], None),
        # Files of frames need not be whole, so that they say nothing of what is elsewhere.
        ([["a"], "frames"], {"a"}),
        (["frames"], None),
    ],
)
def test_the_bookies_of_disks_together(
    parts: list[list[str] | str | None], expected: set[str] | None
) -> None:
    sources = []
    for part in parts:
        source = Counted("memory:", [])
        source.whole_ledgers = part != "frames"
        source.bookies = frozenset(part) if isinstance(part, list) else None
        sources.append(source)
    assert JoinedEntries(sources).bookies == expected


def read(joined: JoinedEntries) -> list[tuple[int, str]]:
    return [(entry.entry_id, bytes(entry.data).decode()) for entry in joined.read_many(LEDGER)]


def test_a_run_of_one_source_is_read_in_one_go() -> None:
    one, other = Counted("one", range(300)), Counted("other", range(250, 500))
    found = read(JoinedEntries([one, other]))
    assert found == [(at, "one" if at < 300 else "other") for at in range(500)]
    assert (one.asked, other.asked) == (["0-299"], ["300-499"])


def test_what_one_source_cannot_give_comes_from_the_next() -> None:
    one, other = Counted("one", range(9), broken=[3], lost=[6]), Counted("other", range(9))
    found = read(JoinedEntries([one, other]))
    assert found == [(at, "other" if at in (3, 6) else "one") for at in range(9)]
    one, other = Counted("one", range(9), lost=[6]), Counted("other", range(9), broken=[1])
    assert read(JoinedEntries([one, other])) == [(at, "other" if at == 6 else "one") for at in range(9)]
    assert one.asked == ["0-8", "6"]


def test_what_no_source_has_is_passed_over_and_what_is_broken_in_all_is_an_error() -> None:
    lost = [Counted(name, range(5), lost=[2]) for name in ("one", "other")]
    assert [at for at, _ in read(JoinedEntries(lost))] == [0, 1, 3, 4]
    broken = [Counted(name, range(5), broken=[2]) for name in ("one", "other")]
    with pytest.raises(DecodeError, match="2 is broken"):
        read(JoinedEntries(broken))


def test_what_sources_can_do_they_can_do_together() -> None:
    disk, live, frames = (Counted(name, []) for name in ("disk", "live", "frames"))
    live.entries_per_read, frames.whole_ledgers = 100, False
    disk.notes, live.faults = ["scanned"], [DecodeError("torn")]
    joined = JoinedEntries([disk, live])
    assert (joined.entries_per_read, joined.whole_ledgers) == (100, True)
    assert (joined.notes, [str(fault) for fault in joined.faults]) == (["scanned"], ["torn"])
    assert JoinedEntries([frames, frames]).whole_ledgers is False
    assert JoinedEntries([disk, frames]).whole_ledgers is True
    assert JoinedEntries([disk, JoinedEntries([live])]).entries_per_read == 100


@settings(max_examples=300, deadline=None)
@given(st.sets(st.integers(0, 40), max_size=15), st.sets(st.integers(0, 40), max_size=15))
def test_what_another_source_has_is_taken_away(held: set[int], others: set[int]) -> None:
    entry_ids = array("q", sorted(held))
    table = LedgerLocations(1, entry_ids, array("q", [entry_id * 10 for entry_id in entry_ids]))
    left = table.without(array("q", sorted(others)))
    assert list(left.entry_ids) == sorted(held - others)
    assert list(left.locations) == [entry_id * 10 for entry_id in left.entry_ids]
