"""`bookie-disk:PATH`: the disks of one bookie or several, read without the bookies.

Entry logs through the index; by scanning where the index is missing or broken; then what the journals
hold beyond the last mark, which after a crash is nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from pulsar_meta.access.stamps import Stamps
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.entries.bookie_layout import BookieLayout, find_bookies, split_url
from pulsar_meta.entries.data_files import DataFiles, entry_logs, journals, misnamed_logs
from pulsar_meta.entries.interleaved_locations import InterleavedLocations
from pulsar_meta.entries.joined import JoinedEntries
from pulsar_meta.entries.ledger_notes import InterleavedNotes, JournalNotes, RocksdbNotes
from pulsar_meta.entries.located_entries import LocatedEntries
from pulsar_meta.entries.locations import FallbackLocations, LocationIndex, TableLocations
from pulsar_meta.entries.rocksdb_locations import RocksdbLocations
from pulsar_meta.entries.scanned_locations import scan_entry_logs, scan_journals


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
