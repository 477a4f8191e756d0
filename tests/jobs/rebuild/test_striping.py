"""Ensembles from where entries lie: round robin as BookKeeper writes it, read backwards."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pulsar_meta.entries.bookie_client import Ensembles, Segment
from pulsar_meta.jobs.rebuild.striping import Quorum, Striping, chosen, stripings, usual_quorums

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
Held = dict[str, NDArray[np.int64]]


def written(write: int, last: int, *segments: Segment) -> Held:
    """Return what each of four bookies holds, by the way entries are found again when they are read."""
    where = Ensembles(1, write, write, segments, last, "CRC32C")
    return {
        bookie: np.array([entry for entry in range(last + 1) if bookie in where.replicas(entry)], np.int64)
        for bookie in (A, B, C, D)
    }


def only(held: Held, *bookies: str) -> Held:
    return {bookie: held[bookie] for bookie in bookies}


def best(held: Held, *lost: str) -> Striping:
    found = stripings(held, lost)
    striping = chosen(found, usual_quorums([found]))
    assert striping is not None
    return striping


@pytest.mark.parametrize("members", [(B, A, D), (D, C, B), (A, B, C)])
@pytest.mark.parametrize("write", [1, 2])
def test_the_order_of_a_striped_ensemble(members: tuple[str, ...], write: int) -> None:
    striping = best(written(write, 20, Segment(0, members)))
    assert (striping.quorum, striping.segments) == (Quorum(3, write), (Segment(0, members),))
    assert striping.exact
    assert not striping.ambiguous


def test_every_bookie_has_every_entry() -> None:
    striping = best(written(2, 9, Segment(0, (C, B))))
    assert striping.quorum == Quorum(2, 2)
    assert set(striping.segments[0].members) == {B, C}
    assert not striping.ambiguous


def test_one_entry_does_not_say_the_order() -> None:
    striping = stripings(only(written(2, 0, Segment(0, (B, A, C))), A, B, C))
    three = next(one for one in striping if one.quorum == Quorum(3, 2))
    assert three.exact
    assert three.ambiguous
    assert set(three.segments[0].members) == {A, B, C}


def test_a_bookie_was_replaced() -> None:
    segments = Segment(0, (A, B, C)), Segment(17, (A, D, C))
    striping = best(written(2, 40, *segments))
    assert (striping.quorum, striping.misfits, len(striping.segments)) == (Quorum(3, 2), 0, 2)
    # Where the second one begins does not show while the entries go to the same bookies.
    found, true = (Ensembles(1, 2, 2, parts, 40, "CRC32C") for parts in (striping.segments, segments))
    assert all(set(found.replicas(entry)) == set(true.replicas(entry)) for entry in range(41))


def test_a_copy_that_was_lost_begins_no_segment() -> None:
    held = written(2, 30, Segment(0, (A, B, C)))
    held[B] = held[B][held[B] != 12]
    striping = best(held)
    assert (striping.segments, striping.misfits) == ((Segment(0, (A, B, C)),), 1)


def test_a_bookie_whose_disks_are_lost() -> None:
    held = only(written(2, 30, Segment(0, (A, B, C))), A, C)
    assert best(held, B).segments == (Segment(0, (A, B, C)),)
    # Nobody said that there was one more.
    assert chosen(stripings(held), usual_quorums([stripings(held)])) is None


def test_entries_that_nobody_has() -> None:
    held = {bookie: mine[mine != 7] for bookie, mine in written(2, 30, Segment(0, (A, B, C))).items()}
    assert best(held).segments == (Segment(0, (A, B, C)),)


def test_the_usual_quorum_decides_for_short_ledgers() -> None:
    long = only(written(2, 20, Segment(0, (A, B, C))), A, B, C)
    short = only(written(2, 0, Segment(0, (A, B, C))), A, B, C)
    found = [stripings(long), stripings(short)]
    usual = usual_quorums(found)
    assert usual[0] == Quorum(3, 2)
    striping = chosen(found[1], usual)
    assert striping is not None
    assert striping.quorum == Quorum(3, 2)


def test_a_gap_of_2_to_the_60_takes_no_memory() -> None:
    held = {A: np.array([0, 1, 2**60], np.int64)}
    assert best(held).quorum == Quorum(1, 1)
