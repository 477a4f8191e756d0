"""Writing into a database that Pulsar's own RocksDB made and has to open again.

The library here is newer than the ones in Pulsar (6.29 in 2.11, 7.9 from 3.0, 9.9 in 5.0), so the files
that it writes keep to what the database already has: its table format at most (version 5 can be read by all
of them, 6 cannot by 7.9), CRC32C, no compaction of the files that are there. Its own traces (LOG, its
configuration, its OPTIONS) are kept out of the directory or removed before the lock goes.

The lock is RocksDB's own, an fcntl lock on the file LOCK. It belongs to the process and goes when any
descriptor of the file is closed, so one process must not take it twice, and nobody else in it may open LOCK.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulsar_meta.access.files import ScratchDirectory
from pulsar_meta.codecs.errors import GuardError, UnreachableError

_held: Final[set[Path]] = set()


class DatabaseLock:
    """The lock, from construction until `release`: as long as it is held, no broker lives on the database."""

    def __init__(self, database: Path, url: str) -> None:
        """Take the lock; GuardError where another process holds it, UnreachableError without permission."""
        self._database = database.resolve()
        if self._database in _held:
            raise GuardError("this process has the database open for writing already", source=url)
        try:
            self._file: int | None = os.open(self._database / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnreachableError(f"cannot be written: {error.strerror}", source=url) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise GuardError(
                "another process holds this database; stop the broker, then run this again", source=url
            ) from error
        _held.add(self._database)

    def release(self) -> None:
        """Let go. Safe to call twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            _held.discard(self._database)


if TYPE_CHECKING:
    from rocksdict import Options, Rdict

TABLE_FORMAT: Final = 5
BINDING_CONFIG: Final = "rocksdict-config.json"
IMMUTABLE: Final = (".sst", ".blob")

_format_re = re.compile(r"^\s*format_version=(\d+)\s*$", re.MULTILINE)


def is_nowhere(database: Path) -> bool:
    """Return whether there is nothing yet where a database would be, or an empty directory."""
    return not database.exists() or (database.is_dir() and not any(database.iterdir()))


def create_database(database: Path, url: str) -> None:
    """Make an empty database, its tables in the format that every RocksDB in Pulsar reads.

    UnreachableError where none can be made.
    """
    from rocksdict import Rdict

    logs = ScratchDirectory()
    try:
        database.mkdir(parents=True, exist_ok=True)
        options = _options(TABLE_FORMAT, logs.path)
        options.create_if_missing(True)
        Rdict(str(database), options, column_families={"default": options}).close()
    except Exception as error:
        # rocksdict raises bare Exception for everything RocksDB says.
        raise UnreachableError(f"no database can be made: {error}", source=url) from error
    finally:
        logs.cleanup()
    _remove_traces(database)


class DatabaseWriter:
    """A database opened read-write, under its `DatabaseLock`. `checkpoint` holds what it was before."""

    def __init__(self, database: Path, url: str) -> None:
        """Take the checkpoint, then open; UnreachableError where one of them fails."""
        self._database, self._url = database, url
        self._logs = ScratchDirectory()
        try:
            self.checkpoint = take_checkpoint(database, url)
            self.db = self._open()
        except BaseException:
            self._logs.cleanup()
            raise

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write the values by their keys, None deletes, all or none; wait until it is on the disk."""
        from rocksdict import WriteBatch

        batch = WriteBatch(raw_mode=True)
        for key, raw in values.items():
            if raw is None:
                batch.delete(key)
            else:
                batch.put(key, raw)
        try:
            self.db.write(batch, self._synced)
        except Exception as error:
            # rocksdict raises bare Exception for everything RocksDB says.
            raise UnreachableError(f"RocksDB: {error}", source=self._url) from error

    def flush(self) -> None:
        """Write a table of everything that is only in the log so far."""
        try:
            self.db.flush()
        except Exception as error:
            raise UnreachableError(f"RocksDB: {error}", source=self._url) from error

    def close(self) -> None:
        """Leave nothing of ours in the directory and close; the database's lock goes with it."""
        try:
            self._clean()
        finally:
            self.db.close()
            self._logs.cleanup()

    def _open(self) -> Rdict:
        from rocksdict import Rdict, WriteOptions

        form = min(TABLE_FORMAT, table_format(self._database))
        options = _options(form, self._logs.path)
        try:
            db = Rdict(str(self._database), options, column_families={"default": options})
        except Exception as error:
            raise UnreachableError(f"RocksDB: {error}", source=self._url) from error
        with suppress(FileNotFoundError):
            (self._database / BINDING_CONFIG).unlink()
        self._synced = WriteOptions()
        self._synced.sync = True
        return db

    def _clean(self) -> None:
        for file in self._database.glob("OPTIONS-*"):
            if not (self.checkpoint / file.name).exists():
                file.unlink()
        for file in self.checkpoint.glob("OPTIONS-*"):
            if not (self._database / file.name).exists():
                shutil.copy2(file, self._database / file.name)
        with suppress(FileNotFoundError):
            (self._database / BINDING_CONFIG).unlink()


def _options(form: int, logs: Path) -> Options:
    """Return under which options tables of a format version are written, RocksDB's own log elsewhere."""
    from rocksdict import BlockBasedOptions, ChecksumType, DBCompressionType, Options

    table = BlockBasedOptions()
    table.set_format_version(form)
    table.set_checksum_type(ChecksumType.crc32c())
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.snappy())
    options.set_disable_auto_compactions(True)
    options.set_db_log_dir(str(logs))
    return options


def _remove_traces(database: Path) -> None:
    """Remove what the library here leaves beside a new database: other versions do not know all of it."""
    for file in (*database.glob("OPTIONS-*"), database / BINDING_CONFIG):
        with suppress(FileNotFoundError):
            file.unlink()


def table_format(database: Path) -> int:
    """Return the format version of the tables that the database's own RocksDB writes (its OPTIONS file)."""
    newest = max(database.glob("OPTIONS-*"), default=None)
    found = _format_re.findall(newest.read_text("utf-8", "replace")) if newest else []
    return min((int(number) for number in found), default=TABLE_FORMAT)


def take_checkpoint(database: Path, url: str) -> Path:
    """Copy a database that nobody writes to a new directory beside it and return that.

    Tables never change, so they are hard links where the file system has them. LOCK is not copied.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = database.with_name(f"{database.name}.checkpoint-{stamp}")
    try:
        target.mkdir(mode=0o700)
        for file in sorted(database.iterdir()):
            if file.is_file() and file.name != "LOCK":
                _link_or_copy(file, target / file.name)
    except OSError as error:
        raise UnreachableError(f"no checkpoint could be taken: {error.strerror}", source=url) from error
    return target


def _link_or_copy(file: Path, target: Path) -> None:
    if file.suffix in IMMUTABLE:
        try:
            os.link(file, target)
        except OSError:
            pass
        else:
            return
    shutil.copy2(file, target)
