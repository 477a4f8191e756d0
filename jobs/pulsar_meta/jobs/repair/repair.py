"""What a verb of `repair` hands on: which values change, what was looked at, what is lost."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.jobs.rewrite.batches import Batches
from pulsar_meta.jobs.rewrite.decision import Decided, Decision, by_rule, keep, skip, write
from pulsar_meta.jobs.rewrite.plan import leave_moved
from pulsar_meta.jobs.rewrite.run import Rewrite
from pulsar_meta.stores.base import ABSENT, Versioned

# The reason to leave a value as it is because what is at hand does not say what it should be.
UNDECIDED: Final = "undecided"


@dataclass(frozen=True, slots=True)
class Repair:
    """What the verb would do to a store, decided from what was read.

    `decided` are the values in the order in which they are written, each as it was read. `checked` counts
    what was looked at, `not_checked` says what was not and why. `said` are sentences about what was found out
    and decided, `losses` about what is given up by it. `confirm`: what a person has to write out before it is
    done, None for repairs that endanger nothing. `counters` as in a Rewrite.
    """

    verb: str
    decided: tuple[Decided, ...]
    checked: Mapping[str, int] = field(default_factory=dict)
    not_checked: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    confirm: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    def rewrite(self) -> Rewrite:
        """Return what the one write path takes."""

        def decided(batches: Batches) -> Generator[Decided]:
            yield from self.decided

        return Rewrite(
            f"repair-{self.verb}", decided, by_rule(leave_moved), with_new=True, counters=self.counters
        )


def becoming(seen: Versioned, value: bytes, *, note: str | None = None) -> Decided:
    """Return the decision that a value becomes `value`, or stays where it is that already.

    `note` is what a person should read of it.
    """
    same = seen.version != ABSENT and seen.value == value
    decision: Decision = keep(seen, "already") if same else write(seen, value)
    return seen, decision._replace(note=note)


def undecided(seen: Versioned, why: str) -> Decided:
    """Return the decision to leave a value, since what is at hand does not say what it should be."""
    return seen, skip(seen, UNDECIDED, note=why)


def removed(seen: Versioned) -> Decided:
    """Return the decision that a value goes; nothing where it is not there."""
    return seen, keep(seen, "already") if seen.version == ABSENT else write(seen, None)
