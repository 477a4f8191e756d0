"""From an entry that was found to what readers are given: nothing aborted, nothing behind what is open.

Source: apache/pulsar TopicTransactionBuffer.java (maxReadPosition), AbstractBaseDispatcher.java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pulsar_meta.jobs.seek.entry_readings import EntryReader
from pulsar_meta.jobs.seek.reading_order import ReadingOrder
from pulsar_meta.jobs.seek.samples import Reading, ReadRequest, State
from pulsar_meta.jobs.seek.search import AFTER_LAST, FOUND, MISSING, UNKNOWN, UNREADABLE, Status
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.jobs.transactions.outcomes import Transactions

ABORTED: Final = "aborted"
MARKER: Final = "marker"
OPEN: Final = "open"
# So many entries are asked for in one go, where one after the other is not for readers.
RUN: Final = 64
_LOST: Final[dict[State, Status]] = {State.MISSING: MISSING, State.UNREADABLE: UNREADABLE}


class Given(NamedTuple):
    """What a reader is given: the entry, or in `status` why none; with how many entries were read for it."""

    status: Status
    reading: Reading | None
    entries_read: int = 0


def standing(reading: Reading, transactions: Transactions) -> Status:
    """Return `found` for an entry that readers are given, else why they are not.

    `aborted`, `marker`; `open`: its transaction, or one that began before it; `unknown`.
    """
    place = Position(reading.ledger_id, reading.entry_id)
    readable = transactions.readable(place, reading.txn, marker=reading.marker)
    if readable is None:
        return UNKNOWN
    if readable:
        return FOUND
    if reading.marker:
        return MARKER
    aborted = reading.txn is not None and transactions.outcome(reading.txn) == "aborted"
    return ABORTED if aborted else OPEN


def given_from(
    reading: Reading, order: ReadingOrder, reads: EntryReader, transactions: Transactions
) -> Given:
    """Return the first entry that readers are given, from one that was found on. UnreachableError."""
    at = order.ordinal(Position(reading.ledger_id, reading.entry_id))
    readings, spent = [reading], 0
    while True:
        for one in readings:
            status = _LOST.get(one.state) or standing(one, transactions)
            if status not in (ABORTED, MARKER):
                return Given(status, one if status == FOUND else None, spent)
        at += len(readings)
        if at >= order.total:
            return Given(AFTER_LAST, None, spent)
        first, last = order.position(at), order.ledger_bounds(at)[1]
        request = ReadRequest(first.ledger_id, first.entry_id, first.entry_id + min(RUN, last - at) - 1)
        readings = reads.read(request)
        spent += len(readings)
