"""Sizes and time limits of the runs of `make nightly`. Environment variables override them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

Tell = Callable[[str], None]


def _number(name: str, default: int) -> int:
    return int(os.environ.get(f"PULSAR_META_CHAOS_{name}", default))


DEATHS: Final = _number("DEATHS", 200)
CURSORS: Final = _number("CURSORS", 2_000)
RACES: Final = _number("RACES", 100_000)
# Another seed kills at other moments, so a long run can be split.
SEED: Final = _number("SEED", 200)
SECONDS: Final = _number("SECONDS", 7_200)
LONGER: Final = "PULSAR_META_CHAOS_SECONDS gives more time"
