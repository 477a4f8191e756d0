"""Open entry sources by the scheme of their URL, and read several as one.

An entry that several of them have is one entry. A scheme's module is imported when it is used.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from itertools import chain, groupby, islice
from typing import Final

from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.entries.base import BookieLedgerState, EntrySource, RawEntry
from pulsar_meta.entries.locations import Located

# The number of entries that are read from one source together.
RUN: Final = 1024
# Fewer entries are read one by one, which happens if each disk of a striped ledger has some.
WORTH_A_RUN: Final = 4


class JoinedEntries(EntrySource):
    """Sources that are tried in order. If one has a damaged record, the next one is used."""

    def __init__(self, sources: Sequence[EntrySource], url: str | None = None) -> None:
        """Join the parts of open sources, which `close` will close."""
        self.url = " ".join(source.url for source in sources) if url is None else url
        self._parts = parts = [part for source in sources for part in source.parts]
        self.entries_per_read = max((part.entries_per_read for part in parts), default=1)
        self.whole_ledgers = any(part.whole_ledgers for part in parts)
        self.sees_open_ledgers = any(part.sees_open_ledgers for part in parts)
        self.cookies = {bookie: cookie for part in parts for bookie, cookie in part.cookies.items()}
        self.bookies = _bookies(parts)

    @property
    def parts(self) -> Sequence[EntrySource]:
        """The parts of all sources."""
        return self._parts

    @property
    def is_stale(self) -> bool:
        """Whether any part is stale."""
        return any(part.is_stale for part in self._parts)

    @property
    def index_fault(self) -> DecodeError | None:
        """The first index fault of the parts."""
        return next((part.index_fault for part in self._parts if part.index_fault is not None), None)

    @property
    def notes(self) -> list[str]:
        """The notes of all parts."""
        return [note for part in self._parts for note in part.notes]

    @property
    def faults(self) -> list[DecodeError]:
        """The faults of all parts."""
        return [fault for part in self._parts for fault in part.faults]

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers with an entry in any part, sorted."""
        return sorted({ledger_id for part in self._parts for ledger_id in part.ledgers()})

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last], sorted, each once."""
        return (entry_id for entry_id, _ in self._holders(ledger_id, first, last))

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger in any part, or None if no part has the ledger."""
        lasts = (part.last_entry(ledger_id) for part in self._parts)
        return max((entry_id for entry_id in lasts if entry_id is not None), default=None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if no part has it, DecodeError if all copies are damaged."""
        damage: DecodeError | None = None
        for part in self._parts:
            try:
                return part.read(ledger_id, entry_id)
            except NotFoundError:
                continue
            except DecodeError as error:
                damage = damage or error
        raise damage or NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], sorted. Raises DecodeError at a damaged one."""
        for number, pairs in groupby(self._holders(ledger_id, first, last), key=lambda pair: pair[1]):
            while run := [entry_id for entry_id, _ in islice(pairs, RUN)]:
                yield from self._read_run(self._parts[number], ledger_id, run)

    def copies(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        """Yield each readable copy of an entry, in the order of the parts."""
        for part in self._parts:
            yield from part.copies(ledger_id, entry_id)

    def replicas(self, ledger_id: int) -> dict[str, EntrySource]:
        """Return, by bookie, sources of the copies that each running bookie should have of a ledger."""
        return {bookie: copies for part in self._parts for bookie, copies in part.replicas(ledger_id).items()}

    def requires_all_copies(self, ledger_id: int) -> bool:
        """Whether every bookie should have all its copies of a ledger now."""
        return any(part.requires_all_copies(ledger_id) for part in self._parts)

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry and answer that they don't."""
        return frozenset().union(*(part.lacking(ledger_id, entry_id) for part in self._parts))

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger id, UUID of the offload) of each ledger copy in tiered storage."""
        for part in self._parts:
            yield from part.objects(again=again)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Yield (files, locations) of a ledger's entries, each once, or return None if a part has none."""
        located = [part.located(ledger_id, first, last) for part in self._parts]
        known = [pairs for pairs in located if pairs is not None]
        return _each_once(chain.from_iterable(known)) if len(known) == len(located) else None

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the merged state of all parts: the first key, and fenced if any part is fenced."""
        return merge_states(part.ledger_state(ledger_id) for part in self._parts)

    def close(self) -> None:
        """Close every part. Can be called twice."""
        for part in self._parts:
            part.close()

    def _holders(self, ledger_id: int, first: int, last: int | None) -> Iterator[tuple[int, int]]:
        """Yield (entry id, number of the first part that has it)."""

        def numbered(number: int) -> Iterator[tuple[int, int]]:
            return ((entry_id, number) for entry_id in self._parts[number].entry_ids(ledger_id, first, last))

        merged = heapq.merge(*map(numbered, range(len(self._parts))))
        for _, pairs in groupby(merged, key=lambda pair: pair[0]):
            yield next(pairs)

    def _read_run(self, part: EntrySource, ledger_id: int, run: Sequence[int]) -> Iterator[RawEntry]:
        """Yield entries that `part` should have. Entries that it doesn't return are read from any part."""
        at = 0
        if len(run) >= WORTH_A_RUN:
            with suppress(DecodeError):
                for entry in part.read_many(ledger_id, run[0], run[-1]):
                    while run[at] < entry.entry_id:
                        yield from self._read_if_present(ledger_id, run[at])
                        at += 1
                    yield entry
                    at += 1
        for entry_id in run[at:]:
            yield from self._read_if_present(ledger_id, entry_id)

    def _read_if_present(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        with suppress(NotFoundError):
            yield self.read(ledger_id, entry_id)


def _bookies(parts: Sequence[EntrySource]) -> frozenset[str] | None:
    """Return the bookies of all disks, or None if a source of complete ledgers has no known bookies."""
    known = [part.bookies for part in parts if part.whole_ledgers or part.bookies]
    if not known or None in known:
        return None
    return frozenset().union(*(bookies for bookies in known if bookies is not None))


def merge_states(states: Iterable[BookieLedgerState | None]) -> BookieLedgerState | None:
    """Merge the states of one ledger in several places: the first key, and fenced if any is fenced."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    key = next((state.master_key for state in known if state.master_key is not None), None)
    return BookieLedgerState(key, any(state.fenced for state in known))


def _each_once(located: Iterator[Located]) -> Iterator[Located]:
    seen: list[array[int]] = []
    for files, table in located:
        rest = table
        for before in seen:
            rest = rest.without(before)
        if rest.entry_ids:
            seen.append(rest.entry_ids)
            yield files, rest


SCHEMES: Final[dict[str, str]] = {
    "bookie-disk": "pulsar_meta.entries.bookie_disk:open_bookie_disk",
    "offload": "pulsar_meta.entries.offload:open_offload",
    "frames": "pulsar_meta.entries.frames_file:open_frames_file",
}
# Opened by the caller, because it finds its bookies through a store.
LIVE: Final = "bookie"


def open_entries(urls: Sequence[str], open_live: Callable[[str], EntrySource] | None = None) -> EntrySource:
    """Open the source of each URL, and join several. `open_live` opens `bookie:`.

    Raises UsageError for an unknown scheme or no URL, and the errors of the source.
    """
    if not urls:
        raise UsageError("no entry source; add --entries URL")
    with ExitStack() as stack:
        sources = [stack.enter_context(_open(url, open_live)) for url in urls]
        stack.pop_all()
    return sources[0] if len(sources) == 1 else JoinedEntries(sources)


def _open(url: str, open_live: Callable[[str], EntrySource] | None) -> EntrySource:
    scheme, separator, _ = url.partition(":")
    if scheme == LIVE and open_live is not None:
        return open_live(url)
    if not separator or scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in sorted({*SCHEMES, LIVE}))
        raise UsageError(f"unknown entry source {redact(url)!r}; choose one of {known}")
    module, _, function = SCHEMES[scheme].partition(":")
    source: EntrySource = getattr(import_module(module), function)(url)
    return source
