"""`bookie-disk:PATH`: the disks of one bookie or several, read without the bookies.

Entries come from the entry logs through the index, or from a scan if the index is missing or damaged. Entries
beyond the last mark come from the journals, because after a crash some exist only there.

Bookies also record the master key and the fence of a ledger. DbLedgerStorage keeps this state
in a RocksDB, interleaved storage in the headers of its index files. Changes since the last flush are in the
journal. The master key is the SHA-1 of the ledger's password, not the password.

Sources: apache/bookkeeper bookie/storage/ldb/LedgerMetadataIndex.java, FileInfo.java, BookieImpl.java,
proto/checksum/DigestManager.java (the key).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pulsar_meta.access.files import Stamps
from pulsar_meta.access.rocksdb import ReadOnlyDatabase, rocksdb_error
from pulsar_meta.codecs.bookie_files.entry_log import record_at, split_location
from pulsar_meta.codecs.bookie_files.journal import FENCE, MASTER_KEY, journal_records, noted_key
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, decoding
from pulsar_meta.codecs.frames.bookie_entry import read_header
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import BookieLedgerState, EntrySource, RawEntry
from pulsar_meta.entries.bookie_layout import BookieLayout, layouts_of, split_url
from pulsar_meta.entries.data_files import DataFiles, entry_logs, journals, misnamed_logs
from pulsar_meta.entries.locations import (
    InterleavedLocations,
    Located,
    LocationIndex,
    RocksdbLocations,
    TableLocations,
    scan_entry_logs,
    scan_journals,
)
from pulsar_meta.entries.sources import JoinedEntries
from pulsar_meta.proto.DbLedgerStorageDataFormats_pb2 import LedgerData

_KEY: Final = struct.Struct(">q")


class LedgerStates:
    """The recorded states of ledgers; this base class has none."""

    def state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger, or None if none is recorded. Raises DecodeError if it is damaged."""
        return None

    def missing(self, ledgers: Iterable[int]) -> list[int]:
        """Return those of the sorted ledgers that need a state and have none. Raises DecodeError."""
        return []

    def ledgers(self) -> list[int]:
        """List the ledgers with a state, sorted. This class lists none. Raises DecodeError."""
        return []

    def close(self) -> None:
        """Close files. Can be called twice."""


class RocksdbStates(LedgerStates):
    """The database `ledgers` of a directory with DbLedgerStorage, which the first request opens."""

    def __init__(self, database: Path) -> None:
        self._path = database
        self._database: ReadOnlyDatabase | None = None
        self._absent = not database.is_dir()

    def state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger. Raises DecodeError if the database is damaged."""
        value = None if self._absent else self._value(ledger_id)
        if value is None:
            return None
        with decoding(str(self._path)):
            data = parse_message(LedgerData, value)
        return BookieLedgerState(data.masterKey, data.fenced)

    def missing(self, ledgers: Iterable[int]) -> list[int]:
        """Read the whole database and return the ledgers that it lacks.

        Raises DecodeError if the database is missing or damaged.
        """
        if self._absent:
            raise DecodeError("the database does not exist", source=str(self._path))
        missing = []
        with self._opened() as database:
            known = _ledgers_in(database, str(self._path))
            found = next(known, None)
            for ledger_id in ledgers:
                while found is not None and found < ledger_id:
                    found = next(known, None)
                if found != ledger_id:
                    missing.append(ledger_id)
            # The damage may be behind the last ledger.
            deque(known, maxlen=0)
        return missing

    def ledgers(self) -> list[int]:
        """List the ledgers with a state, sorted. Raises DecodeError if the database is damaged."""
        if self._absent:
            return []
        with self._opened() as database:
            return list(_ledgers_in(database, str(self._path)))

    def close(self) -> None:
        """Close the database. Can be called twice."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _value(self, ledger_id: int) -> bytes | None:
        with self._opened() as database:
            value: bytes | None = database.get(_KEY.pack(ledger_id))
        return value

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the database at the first use, and raise DecodeError for every error of it."""
        source = str(self._path)
        try:
            if self._database is None:
                self._database = ReadOnlyDatabase(self._path, source)
        except (NotFoundError, UnreachableError) as error:
            raise DecodeError(error.message, source=source) from error
        try:
            yield self._database.db
        except DecodeError:
            raise
        except Exception as error:
            # rocksdict raises a bare Exception for every error of RocksDB.
            raise DecodeError(rocksdb_error(error, source).message, source=source) from error


def _ledgers_in(database: Any, source: str) -> Iterator[int]:
    """Yield the ledgers of a database, sorted. Raises DecodeError if a state is damaged."""
    rows = database.iter()
    rows.seek_to_first()
    while rows.valid():
        key = rows.key()
        ledger_id = _KEY.unpack(key)[0] if len(key) == _KEY.size else -1
        # A starting bookie reads all of them. Rows with negative keys are something else.
        if ledger_id >= 0:
            with decoding(source):
                parse_message(LedgerData, rows.value())
            yield ledger_id
        rows.next()
    rows.status()


class InterleavedStates(LedgerStates):
    """The headers of the index files of interleaved storage."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._index = InterleavedLocations(directories)

    def state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state in the header of a ledger's index. Raises DecodeError if it is damaged."""
        header = self._index.header(ledger_id)
        return None if header is None else BookieLedgerState(header.master_key, header.fenced)


class JournalStates(LedgerStates):
    """The records of master keys and fences in a journal, which the first request reads."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files

    def state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger. Damaged files are read up to the damage."""
        return self._states.get(ledger_id)

    @cached_property
    def _states(self) -> dict[int, BookieLedgerState]:
        states: dict[int, BookieLedgerState] = {}
        for number in self._files.paths:
            self._read(states, number)
        return states

    def _read(self, states: dict[int, BookieLedgerState], number: int) -> None:
        view = self._files.view(number)
        try:
            for record in journal_records(view):
                known = states.get(record.ledger_id, BookieLedgerState(None, fenced=False))
                if record.entry_id == MASTER_KEY:
                    key = noted_key(view[record.offset : record.offset + record.size])
                    states[record.ledger_id] = BookieLedgerState(key, known.fenced)
                elif record.entry_id == FENCE:
                    states[record.ledger_id] = BookieLedgerState(known.master_key, fenced=True)
        except DecodeError:
            # The scan of the journal's entries reports the damage.
            return
        finally:
            self._files.check(number)


Answer = TypeVar("Answer")


class LocatedEntries(EntrySource):
    """Bookie entries in entry logs or journals.

    `index` has their locations. If it turns out to be damaged, `scan` creates another one.
    """

    def __init__(self, url: str, files: DataFiles) -> None:
        """Create a source without entries; `open_index` or an assignment to `index` adds them."""
        self.url = url
        self.files = files
        self.index: LocationIndex = TableLocations()
        self.scan: Callable[[], LocationIndex] | None = None
        self.ledger_states = LedgerStates()
        self.stamps = Stamps(())
        self._index_fault: DecodeError | None = None
        self._notes: list[str] = []
        self._faults: list[DecodeError] = []

    @property
    def is_stale(self) -> bool:
        """Whether the bookie has written since the source was opened."""
        return self.stamps.changed

    @property
    def index_fault(self) -> DecodeError | None:
        """Why the index is not used, or None if it is used."""
        return self._index_fault

    @property
    def notes(self) -> list[str]:
        """Notes about missing and damaged indexes."""
        return self._notes

    @property
    def faults(self) -> list[DecodeError]:
        """Damage that a scan found."""
        return self._faults

    def open_index(self, index: Callable[[], LocationIndex], scan: Callable[[], LocationIndex]) -> None:
        """Use `index()`, and `scan()` as soon as the index turns out to be damaged."""
        self.scan = scan
        try:
            self.index = index()
        except DecodeError as error:
            self._scan_instead(error)

    def ledgers(self) -> list[int]:
        """List the ids of all ledgers with an entry, sorted."""
        return self._ask(lambda index: index.ledgers())

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        """Yield the ids of a ledger's entries within [first, last], sorted."""
        yield from self._ask(lambda index: index.ledger(ledger_id, first, last)).entry_ids

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger, or None if it has no entry here."""
        return self._ask(lambda index: index.last_entry(ledger_id))

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        """Return one entry. Raises NotFoundError if it is missing, DecodeError if its record is damaged."""
        location = self._ask(lambda index: index.location(ledger_id, entry_id))
        if location is None:
            raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)
        return self._entry(ledger_id, entry_id, location)

    def read_many(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[RawEntry]:
        """Yield a ledger's entries within [first, last], sorted. Raises DecodeError at a damaged one."""
        table = self._ask(lambda index: index.ledger(ledger_id, first, last))
        for entry_id, location in zip(table.entry_ids, table.locations, strict=True):
            yield self._entry(ledger_id, entry_id, location)

    def located(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[Located] | None:
        """Yield the files and the locations of a ledger's entries."""
        table = self._ask(lambda index: index.ledger(ledger_id, first, last))
        return iter([(self.files, table)] if table.entry_ids else [])

    def ledger_state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the recorded state of a ledger. Raises DecodeError if it is damaged."""
        return self.ledger_states.state(ledger_id)

    def ledgers_without_state(self) -> list[int]:
        """Return the ledgers with entries and no state, sorted, from one pass over their database.

        Raises DecodeError if the database is missing or damaged.
        """
        return self._without_state

    @cached_property
    def _without_state(self) -> list[int]:
        return self.ledger_states.missing(self.ledgers())

    def close(self) -> None:
        """Close the index and the files. Can be called twice."""
        self.index.close()
        self.ledger_states.close()
        self.files.close()

    def _entry(self, ledger_id: int, entry_id: int, location: int) -> RawEntry:
        return RawEntry(ledger_id, entry_id, entry_at(self.files, ledger_id, entry_id, location))

    def _ask(self, question: Callable[[LocationIndex], Answer]) -> Answer:
        try:
            return question(self.index)
        except DecodeError as error:
            if self.scan is None:
                raise
            self.index.close()
            self._scan_instead(error)
            return question(self.index)

    def _scan_instead(self, error: DecodeError) -> None:
        assert self.scan is not None
        self._index_fault = error
        self._notes.append(f"scanning the entry logs, because their index can't be used: {error}")
        self.index, self.scan = self.scan(), None


def entry_at(files: DataFiles, ledger_id: int, entry_id: int, location: int) -> bytes:
    """Return the bookie entry at a location. Raises DecodeError if there is no entry or another one."""
    number, offset = split_location(location)
    view = files.view(number)
    try:
        record = record_at(view, offset)
        ids = read_header(view[offset : offset + record.size])[:2]
        if ids != (ledger_id, entry_id):
            raise DecodeError(
                f"expected entry {ledger_id}:{entry_id}, found {ids[0]}:{ids[1]}", offset=offset
            )
    except DecodeError as error:
        files.check(number)
        raise error.within(files.name(number)) from error
    data = bytes(view[offset : offset + record.size])
    files.check(number)
    return data


def open_bookie_disk(url: str) -> JoinedEntries:
    """Open `bookie-disk:PATH[?journal=PATH&index=PATH]`.

    `index=scan` scans the entry logs instead of using the index. A bookie stores a ledger in directory number
    (id modulo the number of directories), but every ledger is looked up in all directories, so that a single
    directory can be read as well. Raises NotFoundError if there is no data of a bookie.
    """
    scan = split_url(url)[1].get("index") == "scan"
    parts = [part for bookie in layouts_of(url) for part in _open_bookie(url, bookie, scan)]
    return JoinedEntries(parts, url)


def directories_of(url: str) -> list[Path]:
    """List the top directories of a `bookie-disk:` URL. Raises UsageError for another URL."""
    path, options = split_url(url)
    return [path, *(Path(value) for name, value in options.items() if (name, value) != ("index", "scan"))]


def _open_bookie(url: str, bookie: BookieLayout, scan: bool) -> list[LocatedEntries]:
    """Open a bookie's directories. Journals come first, so that entries flushed meanwhile are not missed."""
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
    """Open a ledger directory with its own database. Log ids are only unique within the directory."""
    part = _open_logs(url, [directory])
    scan_logs = partial(scan_entry_logs, part.files, part.faults.append)
    database = bookie.database(directory)
    if database is not None:
        part.ledger_states = RocksdbStates(database.with_name("ledgers"))
    elif (directory / "ledgers").is_dir():
        # Only the index is lost.
        part.ledger_states = RocksdbStates(directory / "ledgers")
    if scan:
        part.index = scan_logs()
    elif database is not None:
        part.open_index(partial(RocksdbLocations, database), scan_logs)
    elif part.files.paths:
        part.open_index(partial(_no_index, directory), scan_logs)
    return part


def _no_index(directory: Path) -> LocationIndex:
    raise DecodeError("there is none", source=str(directory))


def _open_interleaved(url: str, bookie: BookieLayout) -> LocatedEntries:
    """Open all ledger directories of a bookie with interleaved storage, where log ids are unique."""
    part = _open_logs(url, bookie.ledger_dirs)
    part.ledger_states = InterleavedStates(bookie.index_dirs)
    scan_logs = partial(scan_entry_logs, part.files, part.faults.append)
    part.open_index(partial(InterleavedLocations, bookie.index_dirs), scan_logs)
    return part


def _open_logs(url: str, directories: Sequence[Path]) -> LocatedEntries:
    """Map the entry logs, and report files with impossible log ids."""
    part = LocatedEntries(url, DataFiles(entry_logs(directories), directories))
    part.entry_logs = part.files
    reason = "not read, because no entry log has such a number"
    part.faults.extend(DecodeError(reason, source=str(path)) for path in misnamed_logs(directories))
    return part


def _open_journal(url: str, bookie: BookieLayout, directory: Path) -> LocatedEntries:
    """Open the files of a journal after its mark. They are numbered from 0, as their ids are too large."""
    marked, offset = bookie.mark(directory) or (0, 0)
    kept = {file_id: path for file_id, path in journals(directory).items() if file_id >= marked}
    part = LocatedEntries(url, DataFiles(dict(enumerate(kept.values()))))
    part.ledger_states = JournalStates(part.files)
    part.index = scan_journals(part.files, offset if marked in kept else 0, part.faults.append)
    return part
