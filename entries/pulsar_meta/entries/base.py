"""The interface of entry sources. A source returns the bytes of entries and does not interpret them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError

if TYPE_CHECKING:
    from pulsar_meta.entries.data_files import DataFiles
    from pulsar_meta.entries.locations import Located

# The number of entries that `read_each` requests together after an entry that could not be read.
RUN: Final = 1024


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry.

    `data` is the complete bookie entry (header, digest and client data) if `bookie` is true. Otherwise it is
    only the client data (a Pulsar frame), as in offloaded objects and exported files.
    """

    ledger_id: int
    entry_id: int
    data: bytes | memoryview = field(repr=False)
    bookie: bool = True


@dataclass(frozen=True, slots=True)
class BookieLedgerState:
    """A ledger's master key, or None if only its fence is known, and whether a reader has fenced it."""

    master_key: bytes | None = field(repr=False)
    fenced: bool


class EntrySource(ABC):
    """Entries by ledger id and entry id. Reading never changes or fences anything.

    Operations that only some sources support have a default here. Every method may raise UnreachableError.
    """

    url: str
    # The number of consecutive entries that one request returns at the cost of a single entry.
    entries_per_read: int = 1
    # If a source has any entry of a ledger, it should have all of them, so a gap is a fault.
    whole_ledgers: bool = True
    # The bookies whose disks these are, or None if the source can have any entry of a ledger.
    bookies: frozenset[str] | None = None
    # The content of the file VERSION of each bookie, by bookie id.
    cookies: Mapping[str, bytes] = MappingProxyType({})
    # An open ledger without entries here is empty, because the source consists of the running bookies.
    sees_open_ledgers: bool = False
    # The entry logs of one directory, or of several directories with common numbers.
    entry_logs: DataFiles | None = None

    @property
    def is_stale(self) -> bool:
        """Whether the source shows the state at its opening and a bookie has written since then."""
        return False

    @property
    def parts(self) -> Sequence[EntrySource]:
        """The joined sources, with entry logs and journals separate, or only this source."""
        return [self]

    @property
    def index_fault(self) -> DecodeError | None:
        """Why the index of a directory is not used, so that its entry logs are scanned instead."""
        return None

    def ledgers_without_state(self) -> Sequence[int]:
        """Return the ledgers that a bookie does not serve, because they have entries and no state, sorted.

        Raises DecodeError if the states can't be read.
        """
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """Messages for the user about the source so far, other than faults."""
        return ()

    @property
    def faults(self) -> Sequence[DecodeError]:
        """Damage that was found so far outside the requested entries."""
        return ()

    @abstractmethod
    def ledgers(self) -> list[int]:
        """List the ids of all ledgers with at least one entry, sorted."""

    @abstractmethod
    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last], sorted."""

    @abstractmethod
    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if it is missing, DecodeError if its record is damaged."""

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger, or None if the source has no entry of it."""
        return max(self.entry_ids(ledger_id), default=None)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], sorted, without missing ones.

        Raises DecodeError at a damaged entry.
        """
        for entry_id in self.entry_ids(ledger_id, first, last):
            with suppress(NotFoundError):
                yield self.read(ledger_id, entry_id)

    def copies(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        """Yield each readable copy of an entry, in the order of the sources."""
        with suppress(NotFoundError, DecodeError):
            yield self.read(ledger_id, entry_id)

    def replicas(self, ledger_id: int) -> Mapping[str, EntrySource]:
        """Return, by bookie, sources of the copies that each running bookie should have of a ledger.

        Reading one raises NotFoundError if the bookie has no copy, UnreachableError if it gives no answer.
        """
        return {}

    def requires_all_copies(self, ledger_id: int) -> bool:
        """Whether each bookie should now have all its copies of a ledger, so that a lost one is a fault."""
        return False

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry and answer that they don't."""
        return frozenset()

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger id, UUID of the offload) of each ledger copy in tiered storage.

        Uses the listing from the opening of the source, or a new one if `again`.
        """
        yield from ()

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Yield (files, locations) of a ledger's entries, each entry once, to scan them without objects.

        `files.view(location >> 32)` has the bytes. Returns None if the entries are not in entry logs.
        """
        return None

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger that bookies record next to its entries, or None if there is none.

        Raises DecodeError if the record is damaged.
        """
        return None

    def close(self) -> None:  # noqa: B027 - many sources have nothing to close
        """Close files and connections. Can be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Outcome = RawEntry | DecodeError | NotFoundError


def read_each(
    source: EntrySource, ledger_id: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, Outcome]]:
    """Yield (entry id, entry or error) for each entry of a ledger within [first, last].

    The result is the same as that of `entry_ids` and `read`, with as few requests as `read_many`. Raises
    UnreachableError.
    """
    wanted = source.entry_ids(ledger_id, first, last)
    entry_id = next(wanted, None)
    with suppress(DecodeError, UnreachableError):
        for entry in source.read_many(ledger_id, first, last):
            while entry_id is not None and entry_id < entry.entry_id:
                yield entry_id, outcome_of(source, ledger_id, entry_id)
                entry_id = next(wanted, None)
            if entry_id == entry.entry_id:
                yield entry_id, entry
                entry_id = next(wanted, None)
    left = wanted if entry_id is None else chain([entry_id], wanted)
    while run := list(islice(left, RUN)):
        yield from _read_run(source, ledger_id, run)


def _read_run(source: EntrySource, ledger_id: int, run: list[int]) -> Iterator[tuple[int, Outcome]]:
    """Yield the entries of `run`. After one that can't be read, the rest are read one by one."""
    at = 0
    with suppress(DecodeError, UnreachableError):
        for entry in source.read_many(ledger_id, run[0], run[-1]):
            while at < len(run) and run[at] < entry.entry_id:
                yield run[at], outcome_of(source, ledger_id, run[at])
                at += 1
            yield entry.entry_id, entry
            at += 1
    for entry_id in run[at:]:
        yield entry_id, outcome_of(source, ledger_id, entry_id)


def entry_of(outcome: Outcome) -> RawEntry:
    """Return the entry, or raise the error."""
    if isinstance(outcome, RawEntry):
        return outcome
    raise outcome


def outcome_of(source: EntrySource, ledger_id: int, entry_id: int) -> Outcome:
    """Return one entry, or why it can't be read. Raises UnreachableError."""
    try:
        return source.read(ledger_id, entry_id)
    except (DecodeError, NotFoundError) as error:
        return error
