"""What bookies write down of a ledger beside its entries: its master key, and whether it was fenced.

DbLedgerStorage has a RocksDB of its own for that, interleaved storage the heads of its index files; what is
newer than the last flush stands in the journal. The key is SHA-1 of the ledger's password, not the password.

Sources: apache/bookkeeper bookie/storage/ldb/LedgerMetadataIndex.java, FileInfo.java, BookieImpl.java,
proto/checksum/DigestManager.java (the key).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from pulsar_meta.access.rocksdb import ReadOnlyDatabase, rocksdb_error
from pulsar_meta.codecs.bookie_files.journal import FENCE, MASTER_KEY, journal_records, noted_key
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, decoding
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.data_files import DataFiles
from pulsar_meta.entries.locations import InterleavedLocations
from pulsar_meta.proto.DbLedgerStorageDataFormats_pb2 import LedgerData

_KEY: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """A ledger's master key, None where only its fence is known, and whether a reader fenced it."""

    master_key: bytes | None = field(repr=False)
    fenced: bool


class LedgerNotes(Protocol):
    """Knows what a bookie wrote down of ledgers. `note` may raise DecodeError: what was written is broken."""

    def note(self, ledger_id: int) -> LedgerNote | None:
        """Return what is written down of a ledger, None where nothing is."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


class NoNotes:
    """Where nothing is written down."""

    def note(self, ledger_id: int) -> LedgerNote | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Nothing is open."""


class RocksdbNotes:
    """The database `ledgers` of a directory with DbLedgerStorage, opened when it is first asked."""

    def __init__(self, database: Path) -> None:
        self._path = database
        self._database: ReadOnlyDatabase | None = None
        self._absent = not database.is_dir()

    def note(self, ledger_id: int) -> LedgerNote | None:
        """Return what is written down of a ledger; DecodeError where the database is broken."""
        value = None if self._absent else self._value(ledger_id)
        if value is None:
            return None
        with decoding(str(self._path)):
            data = parse_message(LedgerData, value)
        return LedgerNote(data.masterKey, data.fenced)

    def close(self) -> None:
        """Close the database. Safe to call twice."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _value(self, ledger_id: int) -> bytes | None:
        source = str(self._path)
        try:
            if self._database is None:
                self._database = ReadOnlyDatabase(self._path, source)
        except (NotFoundError, UnreachableError) as error:
            raise DecodeError(error.message, source=source) from error
        rows: Any = self._database.db
        try:
            value: bytes | None = rows.get(_KEY.pack(ledger_id))
        except Exception as error:
            # The binding raises bare Exception.
            raise DecodeError(rocksdb_error(error, source).message, source=source) from error
        return value


class InterleavedNotes:
    """The heads of the index files of interleaved storage."""

    def __init__(self, directories: Iterable[Path]) -> None:
        self._index = InterleavedLocations(directories)

    def note(self, ledger_id: int) -> LedgerNote | None:
        """Return what the head of a ledger's index says; DecodeError where it is none."""
        head = self._index.header(ledger_id)
        return None if head is None else LedgerNote(head.master_key, head.fenced)

    def close(self) -> None:
        """Nothing stays open."""


class JournalNotes:
    """The notes in the files of a journal, read when first asked."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files
        self._found: dict[int, LedgerNote] | None = None

    def note(self, ledger_id: int) -> LedgerNote | None:
        """Return what the journal says of a ledger; a file that is damaged counts as far as it goes."""
        if self._found is None:
            self._found = {}
            for number in self._files.paths:
                self._read(self._found, number)
        return self._found.get(ledger_id)

    def close(self) -> None:
        """The files are closed by whoever opened them."""

    def _read(self, found: dict[int, LedgerNote], number: int) -> None:
        view = self._files.view(number)
        try:
            for record in journal_records(view):
                known = found.get(record.ledger_id, LedgerNote(None, fenced=False))
                if record.entry_id == MASTER_KEY:
                    key = noted_key(view[record.offset : record.offset + record.size])
                    found[record.ledger_id] = LedgerNote(key, known.fenced)
                elif record.entry_id == FENCE:
                    found[record.ledger_id] = LedgerNote(known.master_key, fenced=True)
        except DecodeError:
            # Whoever scans the journal's entries reports it.
            return
        finally:
            self._files.check(number)


def joined_note(notes: Iterable[LedgerNote | None]) -> LedgerNote | None:
    """Return what several places say of one ledger together: the first key, fenced if one says so."""
    known = [note for note in notes if note is not None]
    if not known:
        return None
    key = next((note.master_key for note in known if note.master_key is not None), None)
    return LedgerNote(key, any(note.fenced for note in known))
