"""Read the entries of a topic in reading order, and report missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.transactions.log_entries import TxnId
from pulsar_meta.entries.base import EntrySource, entry_of, read_each
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger, Position

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


BEGINNING: Final = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing or unreadable entries; `last` is the last one."""

    last: Position
    why: str


def read_data(
    source: EntrySource, ledgers: Iterable[Ledger], after: Position = BEGINNING
) -> Iterator[tuple[Position, memoryview] | Gap]:
    """Yield the (position, data) of the entries after `after`, and each gap in its place.

    `ledgers` are in reading order, with BookKeeper's metadata. Raises UnreachableError.
    """
    for ledger in ledgers:
        if ledger.ledger_id >= after.ledger_id:
            first = after.entry_id + 1 if ledger.ledger_id == after.ledger_id else 0
            yield from _of_ledger(source, ledger, first)


def _of_ledger(
    source: EntrySource, ledger: Ledger, first: int
) -> Iterator[tuple[Position, memoryview] | Gap]:
    expected, form = first, ledger.format
    for entry_id, outcome in read_each(source, ledger.ledger_id, first):
        if entry_id > expected:
            yield _missing(ledger, entry_id - 1)
        expected = entry_id + 1
        place = Position(ledger.ledger_id, entry_id)
        try:
            raw = entry_of(outcome)
            data = memoryview(raw.data)
            if raw.bookie:
                entry = decode_bookie_entry(raw.data, form.digest_type, password=form.password)
                if entry.digest == "bad":
                    raise DecodeError("its digest does not fit")
                data = entry.data
        except PulsarMetaError as error:
            yield Gap(place, f"{place.ledger_id}:{place.entry_id}: {error.message}")
        else:
            yield place, data
    end = last_expected(ledger, source, expected - 1)
    if end >= expected:
        yield _missing(ledger, end)


def _missing(ledger: Ledger, last: int) -> Gap:
    why = f"ledger {ledger.ledger_id}: entries up to {last} are missing"
    return Gap(Position(ledger.ledger_id, last), why)


def last_expected(ledger: Ledger, source: EntrySource, newest: int) -> int:
    """The last entry of a ledger, as recorded, or else the `newest` one that was found (-1 if none).

    If newer entries of an open ledger may be on disks that were not given, it is the entry after `newest`.
    """
    if ledger.entries is not None:
        return max(newest, ledger.entries - 1)
    return newest + 1 if placement(ledger, source).elsewhere(newest + 1, newest + 1) else newest


# Called with the position of an entry, its transaction, and its type if it is a marker.
OnEntry = Callable[[Position, TxnId, int | None], None]
COLUMNS: Final = ("broken", "txnid_most_bits", "txnid_least_bits", "marker_type")
_WORD: Final = 2**64


def scan_transactions(
    source: EntrySource, ledger: Ledger, first: int, on_entry: OnEntry
) -> tuple[int, int] | None:
    """Call `on_entry` for each entry from `first` on that belongs to a transaction, in order. Needs NumPy.

    Returns the first and last of the missing or unreadable entries, None if there are none.
    """
    import numpy as np

    from pulsar_meta.codecs.columns.entries import join_columns
    from pulsar_meta.jobs.entry_reader import read_columns

    parts = list(read_columns(source, ledger.ledger_id, COLUMNS, first))
    if not parts:
        return _gaps(ledger, source, np.zeros(0, np.int64), first)
    joined = {name: join_columns([part[name] for part in parts]) for name in parts[0]}
    ids = joined["entry_id"].values
    readable = ~joined["broken"].values.astype(bool)
    most, least, marker = (joined[name] for name in COLUMNS[1:])
    rows = np.flatnonzero(readable & most.present & least.present)
    for row in rows[np.argsort(ids[rows], kind="stable")].tolist():
        txn = TxnId(int(most.values[row]) % _WORD, int(least.values[row]) % _WORD)
        marker_type = int(marker.values[row]) if marker.present[row] else None
        on_entry(Position(ledger.ledger_id, int(ids[row])), txn, marker_type)
    return _gaps(ledger, source, np.sort(ids[readable]), first)


def _gaps(
    ledger: Ledger, source: EntrySource, entry_ids: NDArray[np.int64], first: int
) -> tuple[int, int] | None:
    """The first and last entry from `first` on that is not in `entry_ids` (in order)."""
    import numpy as np

    end = last_expected(ledger, source, int(entry_ids[-1]) if entry_ids.size else first - 1)
    around = np.concatenate([[first - 1], entry_ids, [end + 1]])
    steps = np.flatnonzero(np.diff(around) > 1)
    return (int(around[steps[0]]) + 1, int(around[steps[-1] + 1]) - 1) if steps.size else None
