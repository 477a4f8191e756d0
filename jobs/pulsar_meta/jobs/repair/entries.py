"""What disks say of where a ledger ends, for the verbs that ask."""

from __future__ import annotations

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.topics.placement import placement
from pulsar_meta.jobs.topics.topic import Ledger


def length_to(source: EntrySource, ledger_id: int, entry_id: int) -> int | None:
    """Return how many bytes of data a ledger has to the end of an entry; None where that is not here."""
    try:
        return decode_bookie_entry(source.read(ledger_id, entry_id).data, password=b"").length
    except (NotFoundError, DecodeError):
        return None


def all_here(source: EntrySource, ledger: Ledger, entries: int) -> bool:
    """Return whether so many entries of a ledger, and those behind them, have to be on these disks.

    Live bookies are no disks: they are asked by the metadata that is in doubt.
    """
    disks = all(part.bookies is not None for part in source.parts)
    segments = () if ledger.bookkeeper is None else ledger.bookkeeper.segments
    behind = max((len(segment.members) for segment in segments), default=1)
    return disks and not placement(ledger, source).elsewhere(0, entries + behind)
