"""Some cases of a long test in `make test`, and all of them in `make nightly`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest
from _pytest.mark import ParameterSet

AT_NIGHT: Final = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


def examples(count: int) -> int:
    """Return how many examples of Hypothesis a test with `count` examples at night tries now."""
    return count if AT_NIGHT else max(count // 5, 8)


def mostly_at_night(cases: Iterable[Any], *by_day: Any) -> list[Any]:
    """Return the cases of a parameter, of which only those in `by_day` run in `make test`.

    Without `by_day`, the first case runs there. A case that is a tuple has a value for each parameter.
    """
    given = list(cases)
    chosen = by_day or (given[0],)
    assert all(case in given for case in chosen)
    return [case if case in chosen else _at_night(case) for case in given]


def _at_night(case: Any) -> Any:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.nightly])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.nightly)
