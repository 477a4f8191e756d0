"""Ensembles and quorums inferred from which bookie has which entries (round robin, as BookKeeper writes)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pulsar_meta.entries.bookie_client import Ensembles, Segment
from pulsar_meta.jobs.rebuild.striping import (
    Quorum,
    Striping,
    choose_striping,
    possible_stripings,
    usual_quorums,
)

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
Held = dict[str, NDArray[np.int64]]


def written(write: int, last: int, *segments: Segment) -> Held:
    """Return the entries of each of four bookies, placed as BookKeeper's reader expects them."""
    where = Ensembles(1, write, write, segments, last, "CRC32C")
    return {
        bookie: np.array([entry for entry in range(last + 1) if bookie in where.replicas(entry)], np.int64)
        for bookie in (A, B, C, D)
    }


def only(entries: Held, *bookies: str) -> Held:
    return {bookie: entries[bookie] for bookie in bookies}


def best(entries: Held, *lost: str) -> Striping:
    candidates = possible_stripings(entries, lost)
    striping = choose_striping(candidates, usual_quorums([candidates]))
    assert striping is not None
    return striping


@pytest.mark.parametrize("members", [(B, A, D), (D, C, B), (A, B, C)])
@pytest.mark.parametrize("write", [1, 2])
def test_the_order_of_a_striped_ensemble_is_found(members: tuple[str, ...], write: int) -> None:
    striping = best(written(write, 20, Segment(0, members)))
    assert (striping.quorum, striping.segments) == (Quorum(3, write), (Segment(0, members),))
    assert striping.exact
    assert not striping.ambiguous


def test_without_striping_the_order_does_not_matter() -> None:
    striping = best(written(2, 9, Segment(0, (C, B))))
    assert striping.quorum == Quorum(2, 2)
    assert set(striping.segments[0].members) == {B, C}
    assert not striping.ambiguous


def test_one_entry_does_not_show_the_order() -> None:
    striping = possible_stripings(only(written(2, 0, Segment(0, (B, A, C))), A, B, C))
    three = next(candidate for candidate in striping if candidate.quorum == Quorum(3, 2))
    assert three.exact
    assert three.ambiguous
    assert set(three.segments[0].members) == {A, B, C}


def test_a_replaced_bookie_begins_a_segment() -> None:
    segments = Segment(0, (A, B, C)), Segment(17, (A, D, C))
    striping = best(written(2, 40, *segments))
    assert (striping.quorum, striping.misfits, len(striping.segments)) == (Quorum(3, 2), 0, 2)
    # The start of the second segment does not show while the entries go to the same bookies.
    inferred, true = (Ensembles(1, 2, 2, parts, 40, "CRC32C") for parts in (striping.segments, segments))
    assert all(set(inferred.replicas(entry)) == set(true.replicas(entry)) for entry in range(41))


def test_a_lost_copy_begins_no_segment() -> None:
    entries = written(2, 30, Segment(0, (A, B, C)))
    entries[B] = entries[B][entries[B] != 12]
    striping = best(entries)
    assert (striping.segments, striping.misfits) == ((Segment(0, (A, B, C)),), 1)


def test_a_bookie_with_lost_disks_is_part_of_the_ensemble() -> None:
    entries = only(written(2, 30, Segment(0, (A, B, C))), A, C)
    assert best(entries, B).segments == (Segment(0, (A, B, C)),)
    # Without `lost`, there is no hint of a third bookie.
    assert choose_striping(possible_stripings(entries), usual_quorums([possible_stripings(entries)])) is None


def test_lost_entries_do_not_change_the_ensemble() -> None:
    entries = {bookie: mine[mine != 7] for bookie, mine in written(2, 30, Segment(0, (A, B, C))).items()}
    assert best(entries).segments == (Segment(0, (A, B, C)),)


def test_the_usual_quorum_decides_short_ledgers() -> None:
    long = only(written(2, 20, Segment(0, (A, B, C))), A, B, C)
    short = only(written(2, 0, Segment(0, (A, B, C))), A, B, C)
    candidates = [possible_stripings(long), possible_stripings(short)]
    usual = usual_quorums(candidates)
    assert usual[0] == Quorum(3, 2)
    striping = choose_striping(candidates[1], usual)
    assert striping is not None
    assert striping.quorum == Quorum(3, 2)


def test_a_gap_of_2_to_the_60_takes_no_memory() -> None:
    entries = {A: np.array([0, 1, 2**60], np.int64)}
    assert best(entries).quorum == Quorum(1, 1)
