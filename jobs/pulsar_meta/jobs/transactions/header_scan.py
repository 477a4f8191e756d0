"""Messages and markers of transactions, found in the columns of a ledger's entries. Needs NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import join_columns
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_reader import read_columns
from pulsar_meta.jobs.topics.topic import Ledger, Position
from pulsar_meta.jobs.transactions.topic_entries import gaps_in

COLUMNS: Final = ("broken", "txnid_most_bits", "txnid_least_bits", "marker_type")
_WORD: Final = 2**64

# Takes the position of an entry, its transaction, and its type where it is a marker.
Taken = Callable[[Position, TxnId, int | None], None]


def scan_ledger(source: EntrySource, ledger: Ledger, first: int, take: Taken) -> tuple[int, int] | None:
    """Give `take` the entries of a ledger from `first` on that belong to transactions, in order.

    Returns the first and the last of the entries that are not here or cannot be read, None where all are.
    """
    parts = list(read_columns(source, ledger.ledger_id, COLUMNS, first))
    if not parts:
        return gaps_in(ledger, source, np.zeros(0, np.int64), first)
    joined = {name: join_columns([part[name] for part in parts]) for name in parts[0]}
    ids = joined["entry_id"].values
    whole = ~joined["broken"].values.astype(bool)
    most, least, marker = (joined[name] for name in COLUMNS[1:])
    rows = np.flatnonzero(whole & most.present & least.present)
    for row in rows[np.argsort(ids[rows], kind="stable")].tolist():
        txn = TxnId(int(most.values[row]) % _WORD, int(least.values[row]) % _WORD)
        kind = int(marker.values[row]) if marker.present[row] else None
        take(Position(ledger.ledger_id, int(ids[row])), txn, kind)
    return gaps_in(ledger, source, np.sort(ids[whole]), first)
