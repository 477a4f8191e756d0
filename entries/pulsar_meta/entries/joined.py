"""Several sources read as one: an entry that more than one of them holds is one entry."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, islice
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.entries.base import Closing, EntrySource, Located, RawEntry
from pulsar_meta.entries.ledger_notes import LedgerNote, joined_note

# Entries of one source that are read in one go; after a broken one the rest of them are read one by one.
RUN: Final = 1024
# Fewer are read one by one, as where every disk of a striped ledger has some.
WORTH_A_RUN: Final = 4


class JoinedEntries(Closing):
    """Sources in the order in which they are asked; where one has a broken record the next one helps."""

    def __init__(self, sources: Sequence[EntrySource], url: str | None = None) -> None:
        self.sources = list(sources)
        self.url = url if url is not None else " ".join(source.url for source in sources)

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of which an entry is in any source, in order."""
        return sorted({ledger_id for source in self.sources for ledger_id in source.ledgers()})

    @property
    def entries_per_read(self) -> int:
        """As many as the source that brings the most."""
        return max((source.entries_per_read for source in self.sources), default=1)

    @property
    def whole_ledgers(self) -> bool:
        """Whether one of the sources has to have ledgers whole."""
        return any(source.whole_ledgers for source in self.sources)

    @property
    def bookies(self) -> frozenset[str] | None:
        """The bookies of all disks; None where a source of whole ledgers is none of certain bookies."""
        known = [source.bookies for source in self.sources if source.whole_ledgers or source.bookies]
        if not known or None in known:
            return None
        return frozenset(one for part in known if part is not None for one in part)

    @property
    def cookies(self) -> Mapping[str, bytes]:
        """The cookies of all sources."""
        return {bookie: cookie for source in self.sources for bookie, cookie in source.cookies.items()}

    @property
    def parts(self) -> list[EntrySource]:
        """The parts of all sources."""
        return [part for source in self.sources for part in source.parts]

    @property
    def entry_logs(self) -> None:
        """None: each part has its own."""
        return None

    @property
    def index_fault(self) -> DecodeError | None:
        """The first of the sources' faults."""
        return next((one for source in self.sources if (one := source.index_fault) is not None), None)

    @property
    def is_stale(self) -> bool:
        """Whether one of the sources is."""
        return any(source.is_stale for source in self.sources)

    @property
    def sees_open_ledgers(self) -> bool:
        """Whether one of the sources does."""
        return any(source.sees_open_ledgers for source in self.sources)

    @property
    def notes(self) -> list[str]:
        """The notes of all sources."""
        return [note for source in self.sources for note in source.notes]

    @property
    def faults(self) -> list[DecodeError]:
        """The faults of all sources."""
        return [fault for source in self.sources for fault in source.faults]

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries held of a ledger within [first, last], in order, each once."""
        return (entry_id for entry_id, _ in self._holders(ledger_id, first, last))

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
        for source, held in groupby(self._holders(ledger_id, first, last), key=lambda pair: pair[1]):
            while run := [entry_id for entry_id, _ in islice(held, RUN)]:
                yield from self._read_run(self.sources[source], ledger_id, run)

    def copies(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        """Yield each copy of an entry that can be read, in the order of the sources."""
        for source in self.sources:
            yield from source.copies(ledger_id, entry_id)

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry, were asked, and say that they have not got it."""
        return frozenset().union(*(source.lacking(ledger_id, entry_id) for source in self.sources))

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger, UUID of the offload) of each copy of a ledger in tiered storage."""
        for source in self.sources:
            yield from source.objects(again=again)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Return where a ledger's entries lie, each once; None where a source has no such places."""
        parts = [source.located(ledger_id, first, last) for source in self.sources]
        known = [part for part in parts if part is not None]
        return _each_once(known) if len(known) == len(parts) else None

    def ledger_note(self, ledger_id: int) -> LedgerNote | None:
        """Return what the sources together say: the first key, fenced if one says so."""
        return joined_note(source.ledger_note(ledger_id) for source in self.sources)

    def close(self) -> None:
        """Close every source. Safe to call twice."""
        for source in self.sources:
            source.close()

    def _holders(self, ledger_id: int, first: int, last: int | None) -> Iterator[tuple[int, int]]:
        """Yield each entry that is held with the number of the first source that holds it."""

        def numbered(number: int) -> Iterator[tuple[int, int]]:
            return ((entry_id, number) for entry_id in self.sources[number].entry_ids(ledger_id, first, last))

        held = heapq.merge(*map(numbered, range(len(self.sources))))
        for _, pairs in groupby(held, key=lambda pair: pair[0]):
            yield next(pairs)

    def _read_run(self, source: EntrySource, ledger_id: int, run: Sequence[int]) -> Iterator[RawEntry]:
        """Yield entries that `source` should have; what it does not give comes from wherever it is."""
        at = 0
        if len(run) < WORTH_A_RUN:
            for entry_id in run:
                yield from self._read_if_there(ledger_id, entry_id)
            return
        with suppress(DecodeError):
            for entry in source.read_many(ledger_id, run[0], run[-1]):
                while run[at] < entry.entry_id:
                    yield from self._read_if_there(ledger_id, run[at])
                    at += 1
                yield entry
                at += 1
        for entry_id in run[at:]:
            yield from self._read_if_there(ledger_id, entry_id)

    def _read_if_there(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        with suppress(NotFoundError):
            yield self.read(ledger_id, entry_id)


def _each_once(parts: Sequence[Iterator[Located]]) -> Iterator[Located]:
    seen: list[array[int]] = []
    for files, table in (one for part in parts for one in part):
        left = table
        for before in seen:
            left = left.without(before)
        if left.entry_ids:
            seen.append(left.entry_ids)
            yield files, left
