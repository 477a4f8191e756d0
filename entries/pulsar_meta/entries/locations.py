"""Locations of entries: tables in memory, indexes of bookies, and scans without an index.

A location is BookKeeper's number (file number << 32) | offset. The offset is that of the entry, after the
record's size of 4 bytes. Columns are `array` objects, which NumPy uses without a copy
(`numpy.frombuffer(column, "int64")`).

Sources: apache/bookkeeper bookie/storage/ldb/EntryLocationIndex.java (DbLedgerStorage), FileInfo.java
(interleaved storage), EntryLogger.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.access.rocksdb import ReadOnlyDatabase, rocksdb_error
from pulsar_meta.codecs.bookie_files.entry_log import (
    Damage,
    IndexHeader,
    Record,
    decode_index_header,
    decode_log_header,
    location_of,
    locations,
)
from pulsar_meta.codecs.bookie_files.journal import is_entry, journal_records
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, decoding
from pulsar_meta.entries.data_files import DataFiles, MappedFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pulsar_meta.codecs.columns.records import RecordOffsets
    from pulsar_meta.codecs.columns.words import Positions


@dataclass(frozen=True, slots=True)
class LedgerLocations:
    """The entry ids of one ledger, sorted, and the location of each entry."""

    ledger_id: int
    entry_ids: array[int] = field(default_factory=lambda: array("q"))
    locations: array[int] = field(default_factory=lambda: array("q"))

    def between(self, first: int, last: int | None) -> LedgerLocations:
        """Return the entries within [first, last]."""
        start = bisect_left(self.entry_ids, first)
        end = len(self.entry_ids) if last is None else bisect_right(self.entry_ids, last)
        return LedgerLocations(self.ledger_id, self.entry_ids[start:end], self.locations[start:end])

    def rows(self, numbers: NDArray[np.int64]) -> LedgerLocations:
        """Return the entries in these rows."""
        import numpy as np

        columns = (np.frombuffer(column, np.int64)[numbers] for column in (self.entry_ids, self.locations))
        return LedgerLocations(self.ledger_id, *(array("q", column.tobytes()) for column in columns))

    def without(self, others: array[int]) -> LedgerLocations:
        """Return the entries that are not in `others`, which must be sorted."""
        import numpy as np

        if not others or self.entry_ids[-1:] < others[:1] or others[-1:] < self.entry_ids[:1]:
            return self
        entry_ids, removed = np.frombuffer(self.entry_ids, np.int64), np.frombuffer(others, np.int64)
        kept = removed[np.searchsorted(removed[:-1], entry_ids)] != entry_ids
        locations = np.frombuffer(self.locations, np.int64)
        return LedgerLocations(
            self.ledger_id, array("q", entry_ids[kept].tobytes()), array("q", locations[kept].tobytes())
        )

    def location(self, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""
        at = bisect_left(self.entry_ids, entry_id)
        known = at < len(self.entry_ids) and self.entry_ids[at] == entry_id
        return self.locations[at] if known else None


# Files, and the locations of a ledger's entries in them.
Located = tuple[DataFiles, LedgerLocations]


class LocationIndex(ABC):
    """An index from entries to locations. Every method raises DecodeError if the index is damaged."""

    @abstractmethod
    def ledgers(self) -> list[int]:
        """List all ledgers, sorted."""

    @abstractmethod
    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""

    @abstractmethod
    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger, or None if it has no entry."""
        entry_ids = self.ledger(ledger_id).entry_ids
        return entry_ids[-1] if entry_ids else None

    def close(self) -> None:  # noqa: B027 - most indexes have nothing to close
        """Close files. Can be called twice."""


class TableLocations(LocationIndex):
    """Locations in memory, collected in any order. If an entry is added twice, the later location counts."""

    def __init__(self) -> None:
        self._tables: dict[int, LedgerLocations] = {}
        self._unsorted: set[int] = set()

    def add(self, ledger_id: int, entry_id: int, location: int) -> None:
        """Add one entry."""
        table = self._tables.get(ledger_id)
        if table is None:
            table = self._tables[ledger_id] = LedgerLocations(ledger_id)
        elif table.entry_ids[-1] >= entry_id:
            self._unsorted.add(ledger_id)
        table.entry_ids.append(entry_id)
        table.locations.append(location)

    def extend(self, more: LedgerLocations, *, ascending: bool) -> None:
        """Add one or more entries of a ledger. `ascending` means that they are sorted without repetition."""
        table = self._tables.setdefault(more.ledger_id, LedgerLocations(more.ledger_id))
        if not ascending or (table.entry_ids and table.entry_ids[-1] >= more.entry_ids[0]):
            self._unsorted.add(more.ledger_id)
        table.entry_ids.extend(more.entry_ids)
        table.locations.extend(more.locations)

    def ledgers(self) -> list[int]:
        """List all ledgers, sorted."""
        return sorted(self._tables)

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger, or None if it has no entry."""
        table = self._sorted(ledger_id)
        return table.entry_ids[-1] if table.entry_ids else None

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""
        return self._sorted(ledger_id).location(entry_id)

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        return self._sorted(ledger_id).between(first, last)

    def _sorted(self, ledger_id: int) -> LedgerLocations:
        table = self._tables.get(ledger_id, LedgerLocations(ledger_id))
        if ledger_id in self._unsorted:
            latest = dict(zip(table.entry_ids, table.locations, strict=True))
            entry_ids = array("q", sorted(latest))
            places = array("q", (latest[entry_id] for entry_id in entry_ids))
            table = self._tables[ledger_id] = LedgerLocations(ledger_id, entry_ids, places)
            self._unsorted.discard(ledger_id)
        return table


PATTERN: Final = "*/*/*.idx"

_index_re = re.compile(r"^[0-9a-f]{1,2}/[0-9a-f]{1,2}/([0-9a-f]{1,16})\.idx$")


class InterleavedLocations(LocationIndex):
    """The index files of interleaved storage, in all index directories of a bookie."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """List the index files below `current` directories. They are read on demand."""
        self._paths: dict[int, Path] = {}
        for directory in directories:
            for path in directory.glob(PATTERN):
                match = _index_re.match(path.relative_to(directory).as_posix())
                if match:
                    self._paths[int(match[1], 16)] = path

    def ledgers(self) -> list[int]:
        """List all ledgers with an entry, sorted."""
        return [ledger_id for ledger_id in sorted(self._paths) if self.last_entry(ledger_id) is not None]

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""
        with self._view(ledger_id) as view:
            location = location_of(view, entry_id)
        return location if location > 0 else None

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        with self._view(ledger_id) as view:
            return LedgerLocations(ledger_id, *locations(view)).between(first, last)

    def header(self, ledger_id: int) -> IndexHeader | None:
        """Return the header of a ledger's index file, or None if there is no file."""
        if ledger_id not in self._paths:
            return None
        with self._view(ledger_id) as view:
            return decode_index_header(view)

    @contextmanager
    def _view(self, ledger_id: int) -> Iterator[memoryview]:
        """Map a ledger's index file. Raises UnreachableError if a part of it could not be read."""
        path = self._paths.get(ledger_id)
        if path is None:
            yield memoryview(b"")
            return
        mapped = MappedFile(path)
        try:
            with decoding(str(path)):
                decode_index_header(mapped.view)
            yield mapped.view
        finally:
            mapped.check()


Report = Callable[[DecodeError], None]


def scan_entry_logs(files: DataFiles, report: Report) -> TableLocations:
    """Locate every entry of the logs; newer logs win. Calls `report` for each damaged part.

    An incomplete last record is not damage, because a killed bookie leaves one. Neither is a log of zeros,
    because bookies allocate logs in advance.
    """
    from pulsar_meta.codecs.columns.records import find_records

    table = TableLocations()
    for number in files.paths:
        view = files.view(number)
        try:
            if any(view[:4]):
                decode_log_header(view)
        except DecodeError as error:
            report(error.within(files.name(number)))
        records = find_records(view)
        files.check(number)
        for more, ascending in records_by_ledger(records, number):
            table.extend(more, ascending=ascending)
        for damage in records.damage:
            if damage.end < len(view):
                report(_damaged(damage, files.name(number)))
    return table


def records_by_ledger(records: RecordOffsets, number: int) -> Iterator[tuple[LedgerLocations, bool]]:
    """Yield the records of file `number` by ledger, and whether their entry ids are sorted."""
    import numpy as np

    order = np.argsort(records.ledgers, kind="stable")
    ends = np.flatnonzero(np.diff(records.ledgers[order])) + 1
    for rows in np.split(order, ends) if order.size else ():
        entry_ids = records.entry_ids[rows]
        locations = records.offsets[rows] | number << 32
        more = LedgerLocations(
            int(records.ledgers[rows[0]]), array("q", entry_ids.tobytes()), array("q", locations.tobytes())
        )
        yield more, bool((np.diff(entry_ids) > 0).all())


def scan_journals(files: DataFiles, start: int, report: Report) -> TableLocations:
    """Locate the entries of journals. In the first journal, only those that end after `start` count."""
    table = TableLocations()
    for number in files.paths:
        try:
            for record in _entries_after(journal_records(files.view(number)), start):
                table.add(record.ledger_id, record.entry_id, number << 32 | record.offset)
            files.check(number)
        except DecodeError as error:
            files.check(number)
            report(error.within(files.name(number)))
        start = 0
    return table


def _entries_after(records: Iterable[Record], start: int) -> Iterable[Record]:
    # A mark can be in the middle of a record. Records that end after it may not have been flushed.
    return (record for record in records if is_entry(record) and record.offset + record.size > start)


def _damaged(damage: Damage, source: str) -> DecodeError:
    size = damage.end - damage.offset
    return DecodeError(f"expected a record, found {size} invalid bytes", offset=damage.offset, source=source)


MAX_ID: Final = 2**63 - 1

_KEY: Final = struct.Struct(">qq")
_VALUE: Final = struct.Struct(">q")


class RocksdbLocations(LocationIndex):
    """The RocksDB of a ledger directory with DbLedgerStorage.

    Keys are (ledger, entry) as two big-endian int64, values are locations. Ids are never negative, so keys
    sort by ledger and entry. Deleting a ledger writes a range tombstone, which only RocksDB can evaluate.
    """

    def __init__(self, database: Path) -> None:
        """Open the database in `…/current/locations`. Raises DecodeError if it can't be used."""
        self._source = str(database)
        try:
            self._database = ReadOnlyDatabase(database, self._source)
        except (NotFoundError, UnreachableError) as error:
            # A DecodeError, because the entry logs can be scanned instead.
            raise DecodeError(error.message, source=self._source) from error
        self._db: Any = self._database.db

    def ledgers(self) -> list[int]:
        """List all ledgers, skipping from one to the next."""
        ledgers: list[int] = []
        with self._translated():
            rows = self._db.iter()
            rows.seek(_KEY.pack(0, 0))
            while (key := self._key(rows)) is not None:
                ledgers.append(key[0])
                if key[0] == MAX_ID:
                    break
                rows.seek(_KEY.pack(key[0] + 1, 0))
            rows.status()
        return ledgers

    def last_entry(self, ledger_id: int) -> int | None:
        """Return the highest entry id of a ledger, or None if it has no entry."""
        with self._translated():
            rows = self._db.iter()
            rows.seek_for_prev(_KEY.pack(ledger_id, MAX_ID))
            key = self._key(rows)
            rows.status()
        return key[1] if key is not None and key[0] == ledger_id else None

    def location(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the location of one entry, or None if it is unknown."""
        with self._translated():
            value = self._db.get(_KEY.pack(ledger_id, entry_id))
        return (_VALUE.unpack(value)[0] or None) if value is not None and len(value) == 8 else None

    def ledger(self, ledger_id: int, first: int = 0, last: int | None = None) -> LedgerLocations:
        """Return the entries of a ledger within [first, last]."""
        from rocksdict import ReadOptions

        entry_ids, locations = array("q"), array("q")
        bound = ReadOptions()
        # The bound is exclusive, but no entry has the highest id.
        bound.set_iterate_upper_bound(_KEY.pack(ledger_id, MAX_ID if last is None else min(last + 1, MAX_ID)))
        start = last_key = _KEY.pack(ledger_id, max(first, 0))
        with self._translated():
            for last_key, value in self._db.items(from_key=start, read_opt=bound):
                location = _VALUE.unpack(value)[0]
                if location > 0:
                    entry_ids.append(_KEY.unpack(last_key)[1])
                    locations.append(location)
            self._check_end(last_key, bound)
        return LedgerLocations(ledger_id, entry_ids, locations)

    def close(self) -> None:
        """Close the database. Can be called twice."""
        self._database.close()

    def _check_end(self, last_key: bytes, bound: object) -> None:
        """Raise an error if the rows ended at a damaged block, which rocksdict's `items` doesn't report."""
        rows = self._db.iter(bound)
        rows.seek(last_key)
        if rows.valid():
            rows.next()
        rows.status()

    @staticmethod
    def _key(rows: Any) -> tuple[int, int] | None:
        """Return (ledger, entry) at the iterator, or None after the last ledger."""
        if not rows.valid():
            return None
        ledger_id, entry_id = _KEY.unpack(rows.key())
        return None if ledger_id < 0 else (ledger_id, entry_id)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # rocksdict raises a bare Exception, and keys or values of another size raise struct.error.
            raise DecodeError(rocksdb_error(error, self._source).message, source=self._source) from error


_SIZE = 4
_IDS = 16


def record_sizes(files: DataFiles, number: int, offsets: Positions) -> Positions:
    """Return the size of each record including its size field, or 0 if no record fits at the offset.

    Raises DecodeError if the file is missing, UnreachableError if it can't be read.
    """
    import numpy as np

    from pulsar_meta.codecs.columns.words import WordReader

    view = files.view(number)
    within = (offsets >= _SIZE) & (offsets <= len(view) - 8)
    sizes = np.zeros(len(offsets), np.int64)
    if within.any():
        sizes[within] = WordReader(view).sizes(offsets[within] - _SIZE)
    files.check(number)
    return np.where((sizes > 0) & (offsets + sizes <= len(view)), sizes + _SIZE, 0)


def within_files(located: Located) -> Positions:
    """Return the ids of the entries whose records are completely within their files.

    Only the last record of each file is read, because a truncated file ends in it. A missing file has no
    entries. Raises UnreachableError if a file can't be read.
    """
    import numpy as np

    files, table = located
    locations = np.frombuffer(table.locations, np.int64)
    numbers, kept = locations >> 32, np.zeros(len(locations), np.bool_)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        kept[rows] = _is_within(files, number, locations[rows] & 0xFFFFFFFF)
    return np.frombuffer(table.entry_ids, np.int64)[kept]


def has_records(files: DataFiles, number: int, rows: LedgerLocations) -> NDArray[np.bool_]:
    """Return, for each entry that an index places in file `number`, whether the file has its ids there.

    Raises DecodeError if the file is missing, UnreachableError if it can't be read.
    """
    import numpy as np

    from pulsar_meta.codecs.columns.words import WordReader

    view, offsets = files.view(number), np.frombuffer(rows.locations, np.int64) & 0xFFFFFFFF
    found = (offsets >= _SIZE) & (offsets + _IDS <= len(view))
    if found.any():
        reader, at = WordReader(view), offsets[found]
        entry_ids = np.frombuffer(rows.entry_ids, np.int64)[found]
        found[found] = (reader.big_endian(at) == rows.ledger_id) & (reader.big_endian(at + 8) == entry_ids)
    files.check(number)
    return found


def _is_within(files: DataFiles, number: int, offsets: Positions) -> NDArray[np.bool_]:
    import numpy as np

    try:
        size = len(files.view(number))
    except DecodeError:
        return np.zeros(len(offsets), np.bool_)
    within = (offsets >= _SIZE) & (offsets + _IDS <= size)
    if within.any():
        last = int(np.where(within, offsets, 0).argmax())
        within[last] = record_sizes(files, number, offsets[last : last + 1])[0] > 0
    return within
