"""Progress that is seen while a long test runs."""

from __future__ import annotations

import pytest

from tests.chaos.sizes import Tell


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Return a function that prints a line at once, past pytest's capturing."""

    def told(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)

    return told
