"""Values in blocks: the first one comes at once, and values before an error are not lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_meta.codecs.errors import UnreachableError
from pulsar_meta.jobs.values.value_inputs import ValueInput, in_blocks


def test_blocks_grow() -> None:
    """Only one value is read before the first block, and none is lost or out of order."""
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


def test_blocks_of_large_values_are_short() -> None:
    """A block is in memory as a whole."""
    blocks = list(in_blocks(ValueInput("x", bytes(3 << 20)) for _ in range(8)))
    assert [len(block) for block in blocks] == [1, 2, 2, 2, 1]


def test_values_before_an_error_are_given() -> None:

    def values() -> Iterator[ValueInput]:
        for at in range(5):
            yield ValueInput(str(at))
        raise UnreachableError("gone")

    seen = []
    with pytest.raises(UnreachableError):
        for block in in_blocks(values()):
            seen += [value.source for value in block]
    assert seen == list("01234")
