"""Several sources joined into one: it combines their abilities and reads no entry twice."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.entries.locations import LedgerLocations
from pulsar_meta.entries.sources import JoinedEntries
from tests.nightly import examples

LEDGER = 5


class Counted(EntrySource):
    """Entries of one ledger in memory. Records the requests that it gets; some entries can't be read."""

    notes: Sequence[str] = ()
    faults: Sequence[DecodeError] = ()

    def __init__(
        self, name: str, entries: Sequence[int], broken: Sequence[int] = (), lost: Sequence[int] = ()
    ) -> None:
        self.url, self.entries, self.broken, self.lost = name, list(entries), set(broken), set(lost)
        self.requests: list[str] = []

    def ledgers(self) -> list[int]:
        return [LEDGER]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        return (entry for entry in self.entries if first <= entry and (last is None or entry <= last))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        self.requests.append(f"{entry_id}")
        return self._entry(entry_id)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        self.requests.append(f"{first}-{last}")
        for entry_id in self.entry_ids(ledger_id, first, last):
            if entry_id not in self.lost:
                yield self._entry(entry_id)

    def _entry(self, entry_id: int) -> RawEntry:
        if entry_id in self.broken:
            raise DecodeError(f"{entry_id} is broken")
        if entry_id not in self.entries or entry_id in self.lost:
            raise NotFoundError(f"no {entry_id}")
        return RawEntry(LEDGER, entry_id, self.url.encode(), bookie=False)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([["a"], ["b"]], {"a", "b"}),
        ([["a"], None], None),
        ([], None),
        # A file of frames may be incomplete, so it does not tell which entries are elsewhere.
        ([["a"], "frames"], {"a"}),
        (["frames"], None),
    ],
)
def test_joined_disks_know_their_bookies_if_all_of_them_do(
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


def test_consecutive_entries_of_a_source_are_read_with_one_request() -> None:
    first, other = Counted("first", range(300)), Counted("other", range(250, 500))
    entries = read(JoinedEntries([first, other]))
    assert entries == [(at, "first" if at < 300 else "other") for at in range(500)]
    assert (first.requests, other.requests) == (["0-299"], ["300-499"])


def test_entries_that_a_source_cannot_read_come_from_the_next() -> None:
    first, other = Counted("first", range(9), broken=[3], lost=[6]), Counted("other", range(9))
    entries = read(JoinedEntries([first, other]))
    assert entries == [(at, "other" if at in (3, 6) else "first") for at in range(9)]
    first, other = Counted("first", range(9), lost=[6]), Counted("other", range(9), broken=[1])
    assert read(JoinedEntries([first, other])) == [(at, "other" if at == 6 else "first") for at in range(9)]
    assert first.requests == ["0-8", "6"]


def test_entries_missing_everywhere_are_skipped_and_entries_broken_everywhere_are_errors() -> None:
    lost = [Counted(name, range(5), lost=[2]) for name in ("first", "other")]
    assert [at for at, _ in read(JoinedEntries(lost))] == [0, 1, 3, 4]
    broken = [Counted(name, range(5), broken=[2]) for name in ("first", "other")]
    with pytest.raises(DecodeError, match="2 is broken"):
        read(JoinedEntries(broken))


def test_joined_sources_combine_abilities_notes_and_faults() -> None:
    disk, live, frames = (Counted(name, []) for name in ("disk", "live", "frames"))
    live.entries_per_read, frames.whole_ledgers = 100, False
    disk.notes, live.faults = ["scanned"], [DecodeError("torn")]
    joined = JoinedEntries([disk, live])
    assert (joined.entries_per_read, joined.whole_ledgers) == (100, True)
    assert (joined.notes, [str(fault) for fault in joined.faults]) == (["scanned"], ["torn"])
    assert JoinedEntries([frames, frames]).whole_ledgers is False
    assert JoinedEntries([disk, frames]).whole_ledgers is True
    assert JoinedEntries([disk, JoinedEntries([live])]).entries_per_read == 100


@settings(max_examples=examples(300), deadline=None)
@given(st.sets(st.integers(0, 40), max_size=15), st.sets(st.integers(0, 40), max_size=15))
def test_entries_of_another_source_are_removed_from_a_table(entries: set[int], others: set[int]) -> None:
    entry_ids = array("q", sorted(entries))
    table = LedgerLocations(1, entry_ids, array("q", [entry_id * 10 for entry_id in entry_ids]))
    remaining = table.without(array("q", sorted(others)))
    assert list(remaining.entry_ids) == sorted(entries - others)
    assert list(remaining.locations) == [entry_id * 10 for entry_id in remaining.entry_ids]
