"""The location index of DbLedgerStorage, a RocksDB of (ledger, entry) → location.

Keys are two big-endian int64, values one. Ids are never negative, so keys sort by ledger and entry. Deleting
a ledger writes a range tombstone, which only RocksDB can evaluate.

Source: apache/bookkeeper bookie/storage/ldb/EntryLocationIndex.java.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pulsar_meta.access.rocksdb import ReadOnlyDatabase, rocksdb_error
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError
from pulsar_meta.entries.locations import LedgerLocations, LocationIndex

MAX_ID: Final = 2**63 - 1

_KEY: Final = struct.Struct(">qq")
_VALUE: Final = struct.Struct(">q")


class RocksdbLocations(LocationIndex):
    """The location index of one ledger directory."""

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
