"""Statuses: what a search says about a question, and the limits that end a search."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pulsar_meta.jobs.seek.readings import Measure, State, by_index

# The limits of a search that is not exhaustive. In a topic of more ledgers, no index is called absent.
MAX_LEDGERS: Final = 1000
# A question reads at most so many entries that have no value (no broker metadata, missing, unreadable).
PATIENCE: Final = 2000

Status = Literal[
    "found", "before-first", "after-last", "gap", "no-index", "missing-ledger", "unreadable", "no-topic",
    "aborted", "marker", "open", "unknown",
]  # fmt: skip
FOUND: Final = "found"
BEFORE_FIRST: Final = "before-first"
AFTER_LAST: Final = "after-last"
GAP: Final = "gap"
NO_INDEX: Final = "no-index"
MISSING: Final = "missing-ledger"
UNREADABLE: Final = "unreadable"
NO_TOPIC: Final = "no-topic"
ABORTED: Final = "aborted"
MARKER: Final = "marker"
OPEN: Final = "open"
UNKNOWN: Final = "unknown"

_STATUS_OF: Final[dict[State, Status]] = {
    State.MISSING: MISSING,
    State.UNREADABLE: UNREADABLE,
    State.READ: NO_INDEX,
}
# An entry that is missing may hold anything, so it matters more than one that was read.
_WORST_FIRST: Final[tuple[Status, ...]] = (UNKNOWN, MISSING, UNREADABLE, NO_INDEX)


def obstacle_of(states: Iterable[State]) -> Status | None:
    """Return why entries that have no value do not show if the target is there, None without entries."""
    return worst(_STATUS_OF[state] for state in states)


def worst(statuses: Iterable[Status | None]) -> Status | None:
    """Return the status that says least about the target, None if all say that it is not there."""
    present = set(statuses)
    return next((status for status in _WORST_FIRST if status in present), None)


def too_many_ledgers(count: int) -> str:
    """Say why an index that is not where it belongs is not called absent."""
    return (
        f"it is not where it belongs, and there are {count} ledgers that may hold it (limit: {MAX_LEDGERS});"
        " --exhaustive looks into all of them"
    )


def out_of_patience(measure: Measure) -> str:
    """Say that too many entries have no value on the measure."""
    value = "index" if measure is by_index else "broker time"
    return f"{PATIENCE} entries without {value} were read (the limit); --exhaustive reads on"
