"""Entries by their location: an index that says where, files that say what."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_meta.access.stamps import Stamps
from pulsar_meta.codecs.bookie_files.entry_log import record_at, split_location
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import read_header
from pulsar_meta.entries.base import BaseSource, Located, RawEntry
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.ledger_notes import LedgerNote, LedgerNotes, NoNotes
from pulsar_meta.entries.locations import LocationIndex


class LocatedEntries(BaseSource):
    """Bookie entries in entry logs or journals. `notes` and `faults` say what was found on the way."""

    def __init__(self, url: str, index: LocationIndex, files: DataFiles) -> None:
        self.url = url
        self.index = index
        self.files = files
        self.ledger_notes: LedgerNotes = NoNotes()
        self.stamps = Stamps(())
        self.index_fault: DecodeError | None = None
        self.notes: list[str] = []
        self.faults: list[DecodeError] = []

    @property
    def behind(self) -> bool:
        """Whether the bookie has written since it was opened."""
        return self.stamps.changed

    def ledgers(self) -> list[int]:
        """Return the ids of all ledgers of which an entry is here, in order."""
        return self.index.ledgers()

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of the entries held of a ledger within [first, last], in order."""
        yield from self.index.ledger(ledger_id, first, last).entry_ids

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id held of a ledger, None where the ledger is not here."""
        return self.index.last_entry(ledger_id)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry; NotFoundError where it is not here, DecodeError where its record is broken."""
        location = self.index.location(ledger_id, entry_id)
        if location is None:
            raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)
        return self._entry(ledger_id, entry_id, location)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield the entries held of a ledger within [first, last], in order; DecodeError at a broken one."""
        table = self.index.ledger(ledger_id, first, last)
        for entry_id, location in zip(table.entry_ids, table.locations, strict=True):
            yield self._entry(ledger_id, entry_id, location)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Return where the entries of a ledger lie; `files.view(location >> 32)` has the bytes."""
        table = self.index.ledger(ledger_id, first, last)
        return iter([(self.files, table)] if table.entry_ids else [])

    def ledger_note(self, ledger_id: int) -> LedgerNote | None:
        """Return what the bookie wrote down of a ledger here; DecodeError where it is broken."""
        return self.ledger_notes.note(ledger_id)

    def close(self) -> None:
        """Let go of index and files. Safe to call twice."""
        self.index.close()
        self.ledger_notes.close()
        self.files.close()

    def _entry(self, ledger_id: int, entry_id: int, location: int) -> RawEntry:
        return RawEntry(ledger_id, entry_id, entry_at(self.files, ledger_id, entry_id, location))


def entry_at(files: DataFiles, ledger_id: int, entry_id: int, location: int) -> bytes:
    """Return the bookie entry at a location; DecodeError where another one, or none, lies there."""
    number, offset = split_location(location)
    view = files.view(number)
    try:
        record = record_at(view, offset)
        found = read_header(view[offset : offset + record.size])[:2]
        if found != (ledger_id, entry_id):
            raise DecodeError(
                f"expected entry {ledger_id}:{entry_id}, found {found[0]}:{found[1]}", offset=offset
            )
    except DecodeError as error:
        files.check(number)
        raise error.within(files.name(number)) from error
    data = bytes(view[offset : offset + record.size])
    files.check(number)
    return data
