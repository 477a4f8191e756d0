"""Values in blocks: the first at once, and all that came before an error before the error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.values.value_inputs import ValueInput, in_blocks


def test_blocks_grow() -> None:
    """One value is waited for before the first block is there, and none is lost or out of order."""
    read = 0

    def values() -> Iterator[ValueInput]:
        nonlocal read
        for read in range(1, 2001):
            yield ValueInput(str(read), b"1")

    blocks = in_blocks(values())
    first = next(blocks)
    assert (len(first), read) == (1, 1)
    rest = list(blocks)
    assert max(map(len, rest)) == 512
    assert [value.source for block in (first, *rest) for value in block] == [str(at) for at in range(1, 2001)]


def test_large_values_are_few_in_a_block() -> None:
    """A block of many megabytes would be held whole."""
    blocks = list(in_blocks(ValueInput("x", bytes(3 << 20)) for _ in range(8)))
    assert [len(block) for block in blocks] == [1, 2, 2, 2, 1]


def test_what_came_before_an_error_comes_first() -> None:
    """A store that goes away in the middle has given what it gave."""

    def values() -> Iterator[ValueInput]:
        for at in range(5):
            yield ValueInput(str(at))
        raise UnreachableError("gone")

    seen = []
    with pytest.raises(UnreachableError):
        for block in in_blocks(values()):
            seen += [value.source for value in block]
    assert seen == list("01234")
