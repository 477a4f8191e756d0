"""Ledgers of some topics: read one by one as records name them, without a list of all there are.

What no record names is not seen then: that takes the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pulsar_meta.codecs.names import LEDGERS, TopicName
from pulsar_meta.jobs.check.facts import Created, FactsOf, LedgerFacts, read_facts
from pulsar_meta.jobs.check.listing import AVAILABLE, COOKIES, KEPT, Listing, Surroundings, list_ledgers
from pulsar_meta.jobs.topics.bookkeeper import newest_ledger
from pulsar_meta.stores.base import Store, joined

# So many ledgers are remembered of those that were read last.
_REMEMBERED: Final = 10_000


class LedgersByNeed:
    """What BookKeeper says of the ledgers that are asked for.

    Of a topic without a list of ledgers only the others can say what it had: then all are listed, once.
    """

    def __init__(self, store: Store, advance: Callable[[int], None] = lambda count: None) -> None:
        self._store, self._advance = store, advance
        self._read: dict[int, LedgerFacts] = {}
        self._listing: Listing | None = None
        self.count = 0

    def several(self, ledger_ids: Iterable[int]) -> FactsOf:
        """Return what knows these ledgers, and reads any other."""
        self._look({one for one in ledger_ids if one not in self._read})
        return self._facts

    def created(self, name: TopicName, listed: bool) -> Created | None:
        """Return what was created for a topic that has no list of its own; None for any other."""
        if listed:
            return None
        if self._listing is None:
            self._listing = list_ledgers(self._store.scan(LEDGERS), self._advance)
        return self._listing.created(name)

    def _facts(self, ledger_id: int) -> LedgerFacts:
        if ledger_id not in self._read:
            self._look({ledger_id})
        return self._read[ledger_id]

    def _look(self, ledger_ids: set[int]) -> None:
        if len(self._read) > _REMEMBERED:
            self._read.clear()
        found = read_facts(self._store, ledger_ids)
        self.count += sum(one.metadata != "absent" for one in found.values())
        self._read.update(found)


def surroundings(store: Store) -> Surroundings:
    """Return what `/ledgers` has beside ledgers; its newest time is that of the newest ledger alone."""
    parents = [COOKIES.rstrip("/"), AVAILABLE.rstrip("/"), f"{AVAILABLE}readonly"]
    below = zip(parents, store.children_many(parents), strict=True)
    paths = [joined(parent, name) for parent, names in below for name in names]
    newest = newest_ledger(store)
    records = store.read_many([*KEPT[2:], *paths, *([] if newest is None else [newest])])
    found = {record.path: record for record in records if record is not None}
    last = found.pop(newest, None) if newest is not None else None
    times = (0, 0) if last is None else (last.modified or 0, last.created or 0)
    return Surroundings(found, max(times) or None)
