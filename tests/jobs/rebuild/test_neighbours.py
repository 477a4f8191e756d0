"""Neighbours of ledgers: those that the definition gives, however many have the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.jobs.rebuild.groups import Ends, neighbours

KEYS = st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple)
ENDS = st.builds(Ends, before=KEYS, after=KEYS)
LEDGERS = 7


def meets(ends: Mapping[int, Ends], one: int, other: int) -> bool:
    return not set(ends[one].after).isdisjoint(ends[other].before)


@given(
    ends=st.lists(ENDS, min_size=LEDGERS, max_size=LEDGERS),
    producers=st.lists(ENDS, min_size=LEDGERS, max_size=LEDGERS),
    groups=st.lists(st.integers(0, 4), min_size=LEDGERS, max_size=LEDGERS),
    misfits=st.sets(st.tuples(st.integers(0, LEDGERS), st.integers(0, LEDGERS)), max_size=8),
    strangers=st.sets(st.tuples(st.integers(0, LEDGERS), st.integers(0, LEDGERS)), max_size=8),
)
def test_each_is_the_only_one_for_the_other(
    ends: list[Ends],
    producers: list[Ends],
    groups: list[int],
    misfits: set[tuple[int, int]],
    strangers: set[tuple[int, int]],
) -> None:
    known, makers = dict(enumerate(ends)), dict(enumerate(producers))
    members = {one: {other for other in known if groups[other] == groups[one]} for one in known}
    links = [
        (one, other)
        for one in known
        for other in known
        if one < other and meets(known, one, other) and (one, other) not in strangers
    ]
    together = [(one, other) for one, other in links if groups[one] == groups[other]]
    followed, preceded = {one for one, _ in together}, {other for _, other in together}
    possible = [
        (one, other)
        for one, other in links
        if groups[one] != groups[other]
        and (one, other) not in misfits
        and one not in followed
        and other not in preceded
    ]

    def only(pairs: list[tuple[int, int]]) -> tuple[int, int] | None:
        going_on = pairs if len(pairs) == 1 else [pair for pair in pairs if meets(makers, *pair)]
        return going_on[0] if len(going_on) == 1 else None

    expected = [
        pair
        for pair in possible
        if only([one for one in possible if one[0] == pair[0]]) == pair
        and only([one for one in possible if one[1] == pair[1]]) == pair
    ]
    found = neighbours(
        known,
        makers,
        members,
        lambda one, other: (one, other) not in strangers,
        lambda one, other: groups[one] != groups[other] and (one, other) not in misfits,
    )
    assert found == sorted(expected)
