"""What every source of entries can do. A source finds bytes; what they say is for the codecs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self


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
    """Entries by ledger and entry id. Reading never changes anything at the source and never fences."""

    url: str

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
