"""Several sources read as one: an entry that more than one of them holds is one entry."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import Closing, EntrySource, RawEntry
from pulsar_meta.entries.located_entries import LocatedEntries
from pulsar_meta.entries.locations import LedgerLocations


class JoinedEntries(Closing):
    """Sources in the order in which they are asked; where one has a broken record the next one helps."""

    def __init__(self, sources: Sequence[EntrySource], url: str | None = None) -> None:
        self.sources = list(sources)
        self.url = url if url is not None else " ".join(source.url for source in sources)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of which an entry is in any source, in order."""
        return sorted({ledger_id for source in self.sources for ledger_id in source.ledgers()})

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries held of a ledger within [first, last], in order, each once."""
        held = (source.entry_ids(ledger_id, first, last) for source in self.sources)
        for entry_id, _ in groupby(heapq.merge(*held)):
            yield entry_id

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id held of a ledger, None where no source has the ledger."""
        held = (source.last_entry(ledger_id) for source in self.sources)
        return max((entry_id for entry_id in held if entry_id is not None), default=None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry; NotFoundError where no source has it, DecodeError where it is broken in all."""
        broken: DecodeError | None = None
        for source in self.sources:
            try:
                return source.read(ledger_id, entry_id)
            except NotFoundError:
                continue
            except DecodeError as error:
                broken = broken or error
        raise broken or NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield the entries held of a ledger within [first, last], in order; DecodeError at a broken one."""
        for entry_id in self.entry_ids(ledger_id, first, last):
            yield self.read(ledger_id, entry_id)

    def close(self) -> None:
        """Close every source. Safe to call twice."""
        for source in self.sources:
            source.close()


def located_parts(source: EntrySource) -> Iterator[LocatedEntries]:
    """Yield the parts of a source whose entries have locations, in the order in which they are asked."""
    if isinstance(source, LocatedEntries):
        yield source
    elif isinstance(source, JoinedEntries):
        for part in source.sources:
            yield from located_parts(part)


def entry_columns(
    source: EntrySource, ledger_id: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[LocatedEntries, LedgerLocations]]:
    """Yield where a ledger's entries lie as columns, a table for each part that has some, each entry once.

    For scanning without an object per entry: `part.files.view(number)` has the bytes of a location.
    """
    seen: set[int] = set()
    for part in located_parts(source):
        table = part.columns(ledger_id, first, last)
        if seen:
            table = table.without(seen)
        if table.entry_ids:
            seen.update(table.entry_ids)
            yield part, table


def copies(source: EntrySource, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
    """Yield each copy of an entry that can be read, in the order in which sources are asked."""
    if isinstance(source, JoinedEntries):
        for part in source.sources:
            yield from copies(part, ledger_id, entry_id)
        return
    with suppress(NotFoundError, DecodeError):
        yield source.read(ledger_id, entry_id)


def told_by(source: EntrySource) -> tuple[list[str], list[DecodeError]]:
    """Return what reading a source brought to light beside entries: notes for people, and faults."""
    notes: list[str] = []
    faults: list[DecodeError] = []
    for part in located_parts(source):
        notes += part.notes
        faults += part.faults
    return notes, faults
