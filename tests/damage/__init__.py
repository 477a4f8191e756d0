"""Functions that damage a copy of a capture's store, with the findings that `check` must then report."""

from __future__ import annotations

from typing import Final

from tests.damage import cluster_damage, cursor_damage, entry_damage, ledger_damage, record_damage
from tests.damage.patient import (
    GARBAGE,
    NOWHERE,
    DamageFunction,
    Disks,
    NotApplicableError,
    Patient,
    as_expected,
    check_findings,
    damaged,
    healthy_store,
)
from tests.damage.trials import trials

__all__ = [
    "DAMAGE",
    "GARBAGE",
    "NOWHERE",
    "DamageFunction",
    "Disks",
    "NotApplicableError",
    "Patient",
    "as_expected",
    "check_findings",
    "damaged",
    "healthy_store",
    "trials",
]
# All damage that can be done to an ordinary cluster (no scalable and no shadow topics).
DAMAGE: Final[dict[str, DamageFunction]] = {
    **record_damage.DAMAGE,
    **ledger_damage.DAMAGE,
    **entry_damage.DAMAGE,
    **cursor_damage.DAMAGE,
    **cluster_damage.DAMAGE,
}
