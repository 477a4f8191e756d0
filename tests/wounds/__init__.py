"""Wounds made on a copy of a capture's store, each with what the doctor has to say of it, and where."""

from __future__ import annotations

from typing import Final

from tests.wounds import of_cursors, of_entries, of_ledgers, of_records, of_rest
from tests.wounds.patient import (
    GARBAGE,
    NOWHERE,
    Disks,
    NotHereError,
    Patient,
    Wound,
    examined,
    healthy,
    place_of,
    wounded,
)
from tests.wounds.trials import trials

__all__ = [
    "GARBAGE",
    "NOWHERE",
    "WOUNDS",
    "Disks",
    "NotHereError",
    "Patient",
    "Wound",
    "examined",
    "healthy",
    "place_of",
    "trials",
    "wounded",
]
# Those of ordinary clusters.
WOUNDS: Final[dict[str, Wound]] = {
    **of_records.WOUNDS,
    **of_ledgers.WOUNDS,
    **of_entries.WOUNDS,
    **of_cursors.WOUNDS,
    **of_rest.WOUNDS,
}
