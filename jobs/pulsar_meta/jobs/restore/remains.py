"""What is still on the disks of ledgers that are to come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.stores.base import Versioned

# `unindexed`: bytes lie in entry logs, but the index has no entry any more: the bookie deleted the ledger.
State = Literal["whole", "partly", "unindexed", "gone"]


@dataclass(slots=True)
class Remains:
    """Asks disks for ledgers. `unindexed_too`: what is in entry logs only comes back, too.

    `logged` are the ledgers of which entry logs have bytes; `counts` those that were asked for, by state.
    """

    source: EntrySource
    logged: set[int]
    unindexed_too: bool = False
    counts: Counter[State] = field(default_factory=Counter)
    _held: dict[int, int] = field(default_factory=dict)

    def left_out(self, ledgers: Iterable[tuple[int, Versioned | None]]) -> set[int]:
        """Return which of these ledgers, each with BookKeeper's record of it, are not to come back."""
        states = {ledger_id: self._state(ledger_id, record) for ledger_id, record in ledgers}
        self.counts.update(states.values())
        staying_out = {"gone"} if self.unindexed_too else {"gone", "unindexed"}
        return {ledger_id for ledger_id, state in states.items() if state in staying_out}

    def _state(self, ledger_id: int, record: Versioned | None) -> State:
        last = _last_entry(ledger_id, record)
        if last == -1:
            return "whole"
        here = self._entries_here(ledger_id)
        if not here:
            return "unindexed" if ledger_id in self.logged else "gone"
        return "whole" if last is None or here > last else "partly"

    def _entries_here(self, ledger_id: int) -> int:
        # Shadow topics name the ledgers of their source.
        if ledger_id not in self._held:
            self._held[ledger_id] = sum(1 for _ in self.source.entry_ids(ledger_id))
        return self._held[ledger_id]


def _last_entry(ledger_id: int, record: Versioned | None) -> int | None:
    """Return the last entry of a closed ledger (-1: it has none), None where that is not known."""
    try:
        return None if record is None else bookkeeper_ledger_of(ledger_id, record).last_entry
    except DecodeError:
        return None
