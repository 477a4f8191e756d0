"""Which entries should be on a disk, compared with placing each entry by the ensembles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.bookie_client import Ensembles, Segment
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.jobs.topics.placement import Placement, placement_on, with_end
from pulsar_meta.jobs.topics.topic import Ledger
from pulsar_meta.stores.base import Versioned
from tests.jobs.topics.test_bookkeeper import stored
from tests.topic_builder import MemoryEntries

BOOKIES = ["a:1", "b:1", "c:1", "d:1", "e:1"]


@st.composite
def ledgers(draw: st.DrawFn) -> Ensembles:
    size = draw(st.integers(1, 4))
    starts = sorted({0, *draw(st.lists(st.integers(1, 60), max_size=3))})
    segments = tuple(Segment(start, tuple(draw(st.permutations(BOOKIES))[:size])) for start in starts)
    quorum = draw(st.integers(1, size))
    return Ensembles(7, quorum, quorum, segments, None, "CRC32C")


@given(ledgers(), st.sets(st.sampled_from(BOOKIES)), st.integers(0, 70), st.integers(0, 70))
def test_counts_equal_those_of_placing_each_entry(
    ensembles: Ensembles, bookies: set[str], first: int, last: int
) -> None:
    placement = placement_on(ensembles, frozenset(bookies))
    here = [number for number in range(first, last + 1) if bookies & set(ensembles.replicas(number))]
    assert placement.count(first, last) == len(here)
    assert placement.elsewhere(first, last) == max(0, last - first + 1) - len(here)
    assert placement.first(first, last) == next(iter(here), None)
    assert placement.count_of(np.arange(first, max(first, last + 1), dtype=np.int64)) == len(here)


def test_every_entry_should_be_here_without_ensembles() -> None:
    assert Placement().count(0, 2**62) == 2**62 + 1
    assert Placement().first(5, 2**62) == 5


def test_the_end_of_an_open_ledger_is_known_if_all_its_bookies_are_given() -> None:
    source = MemoryEntries()
    for entry_id in range(5):
        source.put(7, entry_id, b"x")
    record = Versioned(ledger_path(7), stored("a:1", "b:1", "c:1"), 0)
    opened = Ledger(7, None, "open", bookkeeper=bookkeeper_ledger_of(7, record))
    source.bookies = frozenset({"a:1", "b:1", "c:1"})
    assert with_end(opened, source).entries == 5
    assert with_end(replace(opened, entries=3), source).entries == 3
    source.bookies = frozenset({"a:1"})
    assert with_end(opened, source).entries is None
    source.bookies = None
    assert with_end(opened, source).entries == 5
    source.held.clear()
    assert with_end(opened, source).entries is None
    source.bookies = frozenset({"a:1", "b:1", "c:1"})
    assert with_end(opened, source).entries == 0
    source.bookies, source.sees_open_ledgers = None, True
    assert with_end(opened, source).entries == 0
