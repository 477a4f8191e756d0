"""What every source of entries can do. A source finds bytes; what they say is for the codecs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.ledger_notes import LedgerNote
from pulsar_meta.entries.locations import LedgerLocations

# After an entry that cannot be had `read_each` asks for so many in one go.
RUN: Final = 1024
# The files with the entries of a ledger, and where they lie in them.
Located = tuple[DataFiles, LedgerLocations]


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry as a source holds it.

    `data` is the whole bookie entry (header, digest, client data) where `bookie` is true, else only the
    client data (the Pulsar frame), as offloaded objects and exported files have it.
    """

    ledger_id: int
    entry_id: int
    data: bytes | memoryview = field(repr=False)
    bookie: bool = True


class EntrySource(Protocol):
    """Entries by ledger and entry id. Reading never changes anything at the source and never fences.

    What only some sources can do is here too; `BaseSource` has the answers of the others.
    """

    url: str

    @property
    def entries_per_read(self) -> int:
        """How many neighbouring entries one request brings: so many cost a search no more than one."""
        ...

    @property
    def whole_ledgers(self) -> bool:
        """Whether a ledger of which an entry is here has to be here whole, so that gaps are faults."""
        ...

    @property
    def bookies(self) -> frozenset[str] | None:
        """The ids of the bookies whose disks these are; None where any entry of a ledger may be here."""
        ...

    @property
    def cookies(self) -> Mapping[str, bytes]:
        """The cookie of each bookie whose disks these are, as its file VERSION has it, by the bookie's id."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether it is read as of its opening, and was written since: disks of bookies that run."""
        ...

    @property
    def sees_open_ledgers(self) -> bool:
        """Whether an open ledger of which no entry is here has none: these are the bookies themselves."""
        ...

    @property
    def parts(self) -> Sequence[EntrySource]:
        """The sources that this one joins, logs and journals apart; itself where it joins none."""
        ...

    @property
    def entry_logs(self) -> DataFiles | None:
        """The entry logs of one directory, or of several with one numbering; None where it reads no such."""
        ...

    @property
    def index_fault(self) -> DecodeError | None:
        """Why the index of a directory is not used, so that its entry logs are scanned; None if it is."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What came up while reading that a person should know, and that is no fault."""
        ...

    @property
    def faults(self) -> Sequence[DecodeError]:
        """What turned out to be damaged while reading, apart from the entries that were asked for."""
        ...

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of which at least one entry is here, in order."""
        ...

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries held of a ledger within [first, last], in order."""
        ...

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id held of a ledger, None where the ledger is not here at all."""
        ...

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry; NotFoundError where it is not here, DecodeError where its record is broken."""
        ...

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield the entries held of a ledger within [first, last], in order; missing ones are passed over."""
        ...

    def copies(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        """Yield each copy of an entry that can be read, in the order in which they are asked for."""
        ...

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield (ledger, UUID of the offload) of each copy of a ledger in tiered storage.

        As of when the source was opened, or listed `again`.
        """
        ...

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return the bookies that should have an entry, were asked, and say that they have not got it."""
        ...

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Return where a ledger's entries lie, each once; None where the bytes do not lie in entry logs.

        For scanning without an object per entry: `files.view(location >> 32)` has the bytes.
        """
        ...

    def ledger_note(self, ledger_id: int) -> LedgerNote | None:
        """Return what bookies wrote down of a ledger beside its entries, None where that is not here.

        DecodeError where it is broken.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections. Safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Closing:
    """What makes a context manager of anything with a `close`."""

    def close(self) -> None:
        """Let go of what is held. Safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class BaseSource(Closing):
    """What a source can do that can do nothing special."""

    url: str
    entries_per_read: int = 1
    whole_ledgers: bool = True
    bookies: frozenset[str] | None = None
    cookies: Mapping[str, bytes] = MappingProxyType({})
    sees_open_ledgers: bool = False
    entry_logs: DataFiles | None = None
    index_fault: DecodeError | None = None
    notes: Sequence[str] = ()
    faults: Sequence[DecodeError] = ()

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of which at least one entry is here, in order."""
        raise NotImplementedError

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries held of a ledger within [first, last], in order."""
        raise NotImplementedError

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id held of a ledger, None where the ledger is not here at all."""
        raise NotImplementedError

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry."""
        raise NotImplementedError

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield the entries held of a ledger within [first, last], in order."""
        raise NotImplementedError

    @property
    def is_stale(self) -> bool:
        """No: it does not change, or what it has is asked for each time."""
        return False

    @property
    def parts(self) -> Sequence[EntrySource]:
        """The source itself: it joins no others."""
        return [self]

    def copies(self, ledger_id: int, entry_id: int) -> Iterator[RawEntry]:
        """Yield the entry, if it can be read."""
        with suppress(NotFoundError, DecodeError):
            yield self.read(ledger_id, entry_id)

    def lacking(self, ledger_id: int, entry_id: int) -> frozenset[str]:
        """Return nothing: nobody is asked."""
        return frozenset()

    def objects(self, *, again: bool = False) -> Iterator[tuple[int, str]]:
        """Yield nothing: this is no tiered storage."""
        yield from ()

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Return None: the bytes are not in files that could be mapped."""
        return None

    def ledger_note(self, ledger_id: int) -> LedgerNote | None:
        """Return None: nothing but entries is here."""
        return None


Outcome = RawEntry | DecodeError | NotFoundError


def read_each(
    source: EntrySource, ledger_id: int, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, Outcome]]:
    """Yield the id of each entry held of a ledger within [first, last], with the entry or what is wrong.

    The same as `entry_ids` and `read` give, in as few requests as `read_many` needs. UnreachableError.
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
    """Yield some entries; after one that cannot be had the rest of them is read one by one."""
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
    """Return the entry; raises why it cannot be had."""
    if isinstance(outcome, RawEntry):
        return outcome
    raise outcome


def outcome_of(source: EntrySource, ledger_id: int, entry_id: int) -> Outcome:
    """Return one entry, or why it cannot be had; UnreachableError."""
    try:
        return source.read(ledger_id, entry_id)
    except (DecodeError, NotFoundError) as error:
        return error
