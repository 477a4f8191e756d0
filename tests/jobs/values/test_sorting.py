"""Sorting of more lines than fit in memory."""

from __future__ import annotations

import random
from unittest.mock import patch

import pytest

from pulsar_meta.jobs.values import sorting


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17, 1000])
def test_runs_are_merged_in_order(count: int) -> None:
    chance = random.Random(count)
    lines = [f"{chance.randrange(50):02d}\n\0{number}" for number in range(count)]
    with patch.object(sorting, "RUN", 8), patch.object(sorting, "BLOCK", 3):
        merged = list(sorting.in_order(iter(lines), key=lambda line: line[:2]))
    assert merged == sorted(lines, key=lambda line: line[:2])


def test_few_lines_touch_no_disk() -> None:
    with patch("tempfile.TemporaryFile", side_effect=OSError("full")):
        assert list(sorting.in_order(["b", "a"], key=str)) == ["a", "b"]
        with pytest.raises(OSError, match="full"):
            list(sorting.in_order(map(str, range(sorting.RUN)), key=str))
