"""How many messages a backlog is, by the indexes that brokers gave their entries (PIP-70).

An index counts what brokers counted: a batch in a transaction, a chunk and a marker are one each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from pulsar_meta.codecs.metadata.acks import unacked_indexes
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import Subscription
from pulsar_meta.jobs.seek.entry_readings import read_one
from pulsar_meta.jobs.topics.backlog import Run
from pulsar_meta.jobs.topics.placement import NO_END
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo

Indexes = tuple[int, int]


class MessageCounter:
    """Counts messages between entries; what the ends of runs say is kept, since subscriptions share them."""

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._known: dict[tuple[int, int], Indexes | None] = {}

    def backlog(self, subscription: Subscription) -> int | None:
        """Return how many messages a subscription has left; None where that is not known.

        Of partly acknowledged batches, as far as a broker keeps them, only the rest counts.
        """
        left = subscription.backlog
        if left is None or left.open_ledger is not None:
            return None
        counts = [self._messages(run) for run in left.runs]
        if None in counts:
            return None
        acked = list(self._acked_in_batches(subscription, left.runs))
        return None if None in acked else sum(filter(None, counts)) - sum(filter(None, acked))

    def _messages(self, run: Run) -> int | None:
        first, last = self._indexes(run.ledger_id, run.first), self._indexes(run.ledger_id, run.last)
        return None if first is None or last is None else last[1] - first[0] + 1

    def _acked_in_batches(self, subscription: Subscription, runs: Sequence[Run]) -> Iterator[int | None]:
        """Yield how many messages are acknowledged of each batch that is left in part."""
        state = subscription.found.state
        if subscription.recovery.believed != "ledger" or not isinstance(state, PositionInfo):
            return
        for batch in state.batchedEntryDeletionIndexInfo:
            ledger_id, entry_id = batch.position.ledgerId, batch.position.entryId
            at = bisect_right(runs, (ledger_id, entry_id, NO_END)) - 1
            if at < 0 or runs[at].ledger_id != ledger_id or entry_id > runs[at].last:
                continue
            indexes = self._indexes(ledger_id, entry_id)
            unacked = sum(last - first + 1 for first, last in unacked_indexes(batch))
            yield None if indexes is None else max(0, indexes[1] - indexes[0] + 1 - unacked)

    def _indexes(self, ledger_id: int, entry_id: int) -> Indexes | None:
        """Return the indexes of an entry's first and last message; None where it says none."""
        place = ledger_id, entry_id
        if place not in self._known:
            reading = read_one(self._source, ledger_id, entry_id)
            first, last = reading.first_index, reading.last_index
            self._known[place] = None if first is None or last is None else (first, last)
        return self._known[place]
