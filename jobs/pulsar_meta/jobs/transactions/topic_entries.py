"""The data of a topic's entries in reading order, and where something that should be there is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import EntrySource, entry_of, read_each
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger, Position

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


BEGINNING: Final = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that no source has, or that cannot be read; `last` is the last of them."""

    last: Position
    why: str


def read_data(
    source: EntrySource, ledgers: Iterable[Ledger], after: Position = BEGINNING
) -> Iterator[tuple[Position, memoryview] | Gap]:
    """Yield the entries behind `after`, what their writer handed over, and each gap where it is.

    `ledgers` in reading order, with what BookKeeper says of them. UnreachableError from the source.
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
    return Gap(
        Position(ledger.ledger_id, last), f"ledger {ledger.ledger_id}: entries up to {last} are not here"
    )


def last_expected(ledger: Ledger, source: EntrySource, held: int) -> int:
    """Return the last entry that a ledger has: as written down, else the last one `held` (-1: none).

    Of an open ledger whose newest entries only bookies have whose disks were not given, the one after it.
    """
    if ledger.entries is not None:
        return max(held, ledger.entries - 1)
    return held + 1 if placement(ledger, source).elsewhere(held + 1, held + 1) else held


def gaps_in(
    ledger: Ledger, source: EntrySource, held: NDArray[np.int64], first: int
) -> tuple[int, int] | None:
    """Return the first and last entry from `first` on that are not among those `held` (in order)."""
    import numpy as np

    end = last_expected(ledger, source, int(held[-1]) if held.size else first - 1)
    around = np.concatenate([[first - 1], held, [end + 1]])
    steps = np.flatnonzero(np.diff(around) > 1)
    return (int(around[steps[0]]) + 1, int(around[steps[-1] + 1]) - 1) if steps.size else None
