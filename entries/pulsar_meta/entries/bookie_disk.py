"""`bookie-disk:PATH`: the disks of one bookie or several, read without the bookies.

Entries come from the entry logs through the index, or by a scan if the index is missing or broken, and from
the
journals beyond the last mark: after a crash some entries exist only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from pulsar_meta.access.files import Stamps
from pulsar_meta.codecs.bookie_files.entry_log import record_at, split_location
from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import read_header
from pulsar_meta.entries.base import BaseSource, Located, RawEntry
from pulsar_meta.entries.bookie_layout import BookieLayout, find_bookies, split_url
from pulsar_meta.entries.data_files import DataFiles, entry_logs, journals, misnamed_logs
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.ledger_notes import (
    InterleavedNotes,
    JournalNotes,
    LedgerNote,
    LedgerNotes,
    NoNotes,
    RocksdbNotes,
)
from pulsar_meta.entries.locations import (
    FallbackLocations,
    InterleavedLocations,
    LocationIndex,
    TableLocations,
    scan_entry_logs,
    scan_journals,
)
from pulsar_meta.entries.rocksdb_locations import RocksdbLocations


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
    def is_stale(self) -> bool:
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


def open_bookie_disk(url: str) -> JoinedEntries:
    """Open `bookie-disk:PATH[?journal=PATH&index=PATH]`; NotFoundError where no bookie's data is.

    `index=scan` reads the entry logs from end to end in place of the index. Ledgers are looked for in
    every directory: a ledger lies in directory number (id modulo their count), but one directory alone
    can be read as well.
    """
    path, options = split_url(url)
    journal, index = options.get("journal"), options.get("index")
    scan = index == "scan"
    bookies = find_bookies(
        path, Path(journal) if journal else None, Path(index) if index and not scan else None
    )
    parts = [part for bookie in bookies for part in _open_bookie(url, bookie, scan)]
    return JoinedEntries(parts, url)


def directories_of(url: str) -> list[Path]:
    """Return below which directories a `bookie-disk:` URL has its files; UsageError for another URL."""
    path, options = split_url(url)
    named = [Path(held) for name, held in options.items() if held != "scan" or name != "index"]
    return [path, *named]


def _open_bookie(url: str, bookie: BookieLayout, scan: bool) -> list[LocatedEntries]:
    """Open a bookie's directories, the journals first: what is flushed meanwhile is in one of both."""
    stamps = Stamps(bookie.written)
    journaled = [_open_journal(url, bookie, directory) for directory in bookie.journal_dirs]
    if bookie.interleaved and not scan:
        logs = [_open_interleaved(url, bookie)]
    else:
        logs = [_open_ledger_dir(url, bookie, directory, scan) for directory in bookie.ledger_dirs]
    parts = logs + journaled
    for part in parts:
        part.stamps = stamps
        if bookie.bookie_id is not None:
            part.bookies = frozenset({bookie.bookie_id})
            part.cookies = {bookie.bookie_id: bookie.cookie}
    return parts


def _open_ledger_dir(url: str, bookie: BookieLayout, directory: Path, scan: bool) -> LocatedEntries:
    """Open one ledger directory with its own database; log ids count for this directory only."""
    files = DataFiles(entry_logs([directory]))
    part = LocatedEntries(url, TableLocations(), files)
    part.entry_logs = files
    part.faults += _misnamed([directory])
    scanned = partial(scan_entry_logs, files, part.faults.append)
    database = bookie.database(directory)
    if database is not None:
        part.ledger_notes = RocksdbNotes(database.with_name("ledgers"))
    if scan:
        part.index = scanned()
    elif database is not None:
        part.index = _with_fallback(part, partial(RocksdbLocations, database), scanned)
    elif files.paths:
        part.notes.append(f"{directory}: no index, its entry logs are scanned")
        part.index_fault = DecodeError("there is none", source=str(directory))
        part.index = scanned()
    return part


def _open_interleaved(url: str, bookie: BookieLayout) -> LocatedEntries:
    """Open all ledger directories of a bookie whose log ids are unique over them."""
    files = DataFiles(entry_logs(bookie.ledger_dirs))
    part = LocatedEntries(url, TableLocations(), files)
    part.entry_logs = files
    part.faults += _misnamed(bookie.ledger_dirs)
    part.ledger_notes = InterleavedNotes(bookie.index_dirs)
    scanned = partial(scan_entry_logs, files, part.faults.append)
    part.index = _with_fallback(part, partial(InterleavedLocations, bookie.index_dirs), scanned)
    return part


def _misnamed(directories: Iterable[Path]) -> list[DecodeError]:
    reason = "no entry log has such a number: it is not read"
    return [DecodeError(reason, source=str(path)) for path in misnamed_logs(directories)]


def _open_journal(url: str, bookie: BookieLayout, directory: Path) -> LocatedEntries:
    """Open the files of a journal from its mark on, numbered from 0: their ids do not fit a location."""
    marked, offset = bookie.mark(directory) or (0, 0)
    kept = {file_id: path for file_id, path in journals(directory).items() if file_id >= marked}
    files = DataFiles(dict(enumerate(kept.values())))
    part = LocatedEntries(url, TableLocations(), files)
    part.ledger_notes = JournalNotes(files)
    part.index = scan_journals(files, offset if marked in kept else 0, part.faults.append)
    return part


def _with_fallback(
    part: LocatedEntries, index: Callable[[], LocationIndex], scanned: Callable[[], LocationIndex]
) -> FallbackLocations:
    def note(error: DecodeError) -> None:
        part.index_fault = error
        part.notes.append(f"the index cannot be used, entry logs are scanned: {error}")

    return FallbackLocations(index, scanned, note)
