"""A limit for calls that must not hang. It is generous, because a busy machine is slow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def must_end(seconds: float = 60) -> Iterator[None]:
    """Fail the test if the block has not ended after `seconds`.

    It works in the main thread only, and can't be nested.
    """

    def fail(*_: Any) -> None:
        pytest.fail(f"it has not ended after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
