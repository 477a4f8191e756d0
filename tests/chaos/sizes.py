"""How large the runs of `make chaos` are, and how long each may take; the environment says otherwise."""

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
# Another seed makes other moments to die in: a long run may be done in parts.
SEED: Final = _number("SEED", 200)
SECONDS: Final = _number("SECONDS", 7_200)
LONGER: Final = "PULSAR_META_CHAOS_SECONDS gives more time"
