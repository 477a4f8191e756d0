"""Neighbours of ledgers follow the definition even if many ledgers have the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.jobs.rebuild.groups import Ends, neighbours

KEYS = st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)
ENDS = st.builds(Ends, before=KEYS, after=KEYS)
LEDGERS = 7


def meets(ends: Mapping[int, Ends], first: int, second: int) -> bool:
    return not set(ends[first].after).isdisjoint(ends[second].before)


@given(
    ends=st.lists(ENDS, min_size=LEDGERS, max_size=LEDGERS),
    producers=st.lists(ENDS, min_size=LEDGERS, max_size=LEDGERS),
    groups=st.lists(st.integers(0, 4), min_size=LEDGERS, max_size=LEDGERS),
    misfits=st.sets(st.tuples(st.integers(0, LEDGERS), st.integers(0, LEDGERS)), max_size=8),
    strangers=st.sets(st.tuples(st.integers(0, LEDGERS), st.integers(0, LEDGERS)), max_size=8),
)
def test_neighbours_are_each_others_only_candidate(
    ends: list[Ends],
    producers: list[Ends],
    groups: list[int],
    misfits: set[tuple[int, int]],
    strangers: set[tuple[int, int]],
) -> None:
    known, makers = dict(enumerate(ends)), dict(enumerate(producers))
    members = {first: {second for second in known if groups[second] == groups[first]} for first in known}
    links = [
        (first, second)
        for first in known
        for second in known
        if first < second and meets(known, first, second) and (first, second) not in strangers
    ]
    together = [(first, second) for first, second in links if groups[first] == groups[second]]
    followed, preceded = {first for first, _ in together}, {second for _, second in together}
    possible = [
        (first, second)
        for first, second in links
        if groups[first] != groups[second]
        and (first, second) not in misfits
        and first not in followed
        and second not in preceded
    ]

    def only(pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
        going_on = pairs if len(pairs) == 1 else [pair for pair in pairs if meets(makers, *pair)]
        return going_on[0] if len(going_on) == 1 else None

    expected = [
        pair
        for pair in possible
        if only([first for first in possible if first[0] == pair[0]]) == pair
        and only([first for first in possible if first[1] == pair[1]]) == pair
    ]
    pairs = neighbours(
        known,
        makers,
        members,
        lambda first, second: (first, second) not in strangers,
        lambda first, second: groups[first] != groups[second] and (first, second) not in misfits,
    )
    assert pairs == sorted(expected)
