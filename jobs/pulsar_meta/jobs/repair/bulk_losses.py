"""What becomes unreachable when a run removes or replaces many records, such as `restore --overwrite`.

Each record is compared with the store as it is before the run. The records that name removed ledgers are
looked up together, in one pass over the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_of_path
from pulsar_meta.jobs.repair.losses import (
    Losses,
    change_losses,
    is_empty_ledger,
    ledger_losses,
    removal_losses,
    shorter_ledger_texts,
)
from pulsar_meta.jobs.rewrite.decision import Decided
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.owners import Gaps, owners_of
from pulsar_meta.stores.base import ABSENT, Store, Versioned

# At most this many losses are listed.
LISTED: Final = 20


@dataclass(slots=True)
class BulkLosses:
    """Adds up the losses of the changes of a run.

    Memory: 12 bytes for each topic that loses data, and the metadata of ledgers that are removed or end
    earlier.
    """

    store: Store
    clusters: OtherClusters
    _texts: list[str] = field(default_factory=list)
    _unlisted: int = 0
    _names: Dedup = field(default_factory=Dedup)
    _count: int = 0
    _first: str | None = None
    _ledgers: dict[int, tuple[Versioned, list[str]]] = field(default_factory=dict)

    def add(self, decided: Decided) -> None:
        """Add the losses of a change."""
        seen, decision = decided
        # A new record loses nothing, unless it names ledgers of another cluster.
        if decision.action != "rewrite" or (seen.version == ABSENT and not self.clusters.trees):
            return
        ledger_id = ledger_of_path(seen.path)
        if ledger_id is not None:
            self._add_ledger(ledger_id, seen, decision.new)
        elif decision.new is None:
            self._add(removal_losses(self.store, seen, self.clusters))
        else:
            self._add(change_losses(self.store, seen, decision.new, self.clusters))

    def total(self) -> Losses:
        """Return the losses: the first ones, how many more there are, and what confirms all of them.

        That is the full name if one topic loses data, otherwise their number, such as "7 topics".
        """
        self._add_owners()
        more = [f"losses that are not listed: {self._unlisted}"] if self._unlisted else []
        confirm = self._first if self._count <= 1 else f"{self._count} topics"
        return Losses((*self._texts, *more), confirm)

    def _add(self, losses: Losses) -> None:
        self._list(losses.texts)
        if losses.confirm is not None and self._names.is_new(losses.confirm):
            self._first = self._first or losses.confirm
            self._count += 1

    def _list(self, texts: Iterable[str]) -> None:
        for text in texts:
            if len(self._texts) < LISTED:
                self._texts.append(text)
            else:
                self._unlisted += 1

    def _add_ledger(self, ledger_id: int, seen: Versioned, new: bytes | None) -> None:
        if seen.version == ABSENT or is_empty_ledger(ledger_id, seen):
            return
        try:
            shorter = (
                [] if new is None else list(shorter_ledger_texts(ledger_id, seen, seen._replace(value=new)))
            )
        except DecodeError:
            new, shorter = None, []
        if new is None or shorter:
            self._ledgers[ledger_id] = seen, shorter

    def _add_owners(self) -> None:
        """Add the losses of ledgers, with the records that name them."""
        if not self._ledgers:
            return
        gaps = Gaps(lambda error: None)
        named = owners_of(self._ledgers, self.store, None, gaps.broken)
        theirs = self.clusters.owners(self._ledgers)
        for ledger_id, (seen, shorter) in self._ledgers.items():
            losses = ledger_losses(ledger_id, seen, named[ledger_id], theirs.get(ledger_id, ()), gaps)
            self._add(Losses(tuple(shorter) or losses.texts, losses.confirm))
        self._ledgers.clear()
