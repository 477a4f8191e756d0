"""The state that bookies record for a ledger in addition to its entries: its master key and its fence.

DbLedgerStorage keeps it in a RocksDB, interleaved storage in the headers of its index files. Changes since
the last flush are in the journal. The master key is the SHA-1 of the ledger's password, not the password.

Sources: apache/bookkeeper bookie/storage/ldb/LedgerMetadataIndex.java, FileInfo.java, BookieImpl.java,
proto/checksum/DigestManager.java (the key).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pulsar_meta.access.rocksdb import ReadOnlyDatabase, rocksdb_error
from pulsar_meta.codecs.bookie_files.journal import FENCE, MASTER_KEY, journal_records, noted_key
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, decoding
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.base import BookieLedgerState
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import InterleavedLocations
from pulsar_meta.proto.DbLedgerStorageDataFormats_pb2 import LedgerData

_KEY: Final = struct.Struct(">q")


class LedgerStates:
    """The recorded states of ledgers; this base class has none."""

    def state(self, ledger_id: int) -> BookieLedgerState | None:
        """Return the state of a ledger, or None if none is recorded. Raises DecodeError if it is damaged."""
        return None

    def ledgers(self) -> frozenset[int] | None:
        """Return the ledgers with a state; None if a missing state means nothing. Raises DecodeError."""
        return None

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

    def ledgers(self) -> frozenset[int]:
        """Read the whole database and return its ledgers. Raises DecodeError if it is missing or damaged."""
        if self._absent:
            raise DecodeError("the database does not exist", source=str(self._path))
        ledgers = []
        with self._opened() as database:
            rows = database.iter()
            rows.seek_to_first()
            while rows.valid():
                ledgers.append(rows.key())
                rows.next()
            rows.status()
        return frozenset(_KEY.unpack(key)[0] for key in ledgers if len(key) == _KEY.size)

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
        except Exception as error:
            # rocksdict raises a bare Exception for every error of RocksDB.
            raise DecodeError(rocksdb_error(error, source).message, source=source) from error


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


def merge_states(states: Iterable[BookieLedgerState | None]) -> BookieLedgerState | None:
    """Merge the states of one ledger in several places: the first key, and fenced if any is fenced."""
    known = [state for state in states if state is not None]
    if not known:
        return None
    key = next((state.master_key for state in known if state.master_key is not None), None)
    return BookieLedgerState(key, any(state.fenced for state in known))
