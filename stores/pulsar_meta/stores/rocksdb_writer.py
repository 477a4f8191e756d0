"""Write into a database that Pulsar's RocksDB created and must be able to open again.

The RocksDB in rocksdict is newer than the ones in Pulsar (6.29 in 2.11, 7.9 since 3.0, 9.9 in 5.0). New files
are therefore written in the database's own table format or an older one (all of these versions can read
format 5, but 7.9 can't read 6), with CRC32C, and existing files are not compacted. The library's own files
(LOG, its configuration, its OPTIONS) are written elsewhere or removed before the lock is released.

The lock is RocksDB's fcntl lock on the file LOCK. It belongs to the process and is released when any
descriptor of the file is closed. A process must therefore not take it twice, and no other code in it may open
LOCK.
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

_locked: Final[set[Path]] = set()


class DatabaseLock:
    """The database's lock, from construction until `release`. While it is held, no broker can run."""

    def __init__(self, database: Path, url: str) -> None:
        """Take the lock.

        Raises GuardError if another process holds it, UnreachableError if LOCK can't be opened for writing.
        """
        self._database = database.resolve()
        if self._database in _locked:
            raise GuardError("this process already has the database open for writing", source=url)
        try:
            self._file: int | None = os.open(self._database / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise UnreachableError(f"cannot open LOCK for writing: {error.strerror}", source=url) from error
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise GuardError(
                "another process has this database open; stop the broker and try again", source=url
            ) from error
        _locked.add(self._database)

    def release(self) -> None:
        """Release the lock. Can be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            _locked.discard(self._database)


if TYPE_CHECKING:
    from rocksdict import Options, Rdict

TABLE_FORMAT: Final = 5
BINDING_CONFIG: Final = "rocksdict-config.json"
IMMUTABLE: Final = (".sst", ".blob")

_partial_re = re.compile(r"\d{8}T\d{6}\.\d{6}\.partial")
_format_re = re.compile(r"^[ \t]*format_version=(\d{1,9})[ \t]*$", re.MULTILINE)


def is_nowhere(database: Path) -> bool:
    """Whether `database` doesn't exist or is an empty directory."""
    return not database.exists() or (database.is_dir() and not any(database.iterdir()))


def create_database(database: Path, url: str) -> None:
    """Create an empty database with tables in the format that every RocksDB in Pulsar can read.

    Raises UnreachableError if it can't be created.
    """
    from rocksdict import Rdict

    logs = ScratchDirectory()
    try:
        database.mkdir(parents=True, exist_ok=True)
        options = _options(TABLE_FORMAT, logs.path)
        options.create_if_missing(True)
        Rdict(str(database), options, column_families={"default": options}).close()
    except Exception as error:
        # rocksdict raises a bare Exception for every error of RocksDB.
        raise UnreachableError(f"cannot create the database: {error}", source=url) from error
    finally:
        logs.cleanup()
    _remove_traces(database)


class DatabaseWriter:
    """A database open for writing, under its `DatabaseLock`. `checkpoint` has its files from before."""

    def __init__(self, database: Path, url: str) -> None:
        """Take the checkpoint, then open the database. Raises UnreachableError if either fails."""
        self._database, self._url = database, url
        self._logs = ScratchDirectory()
        try:
            self.checkpoint = take_checkpoint(database, url)
            self.db = self._open()
        except BaseException:
            self._logs.cleanup()
            raise

    def write(self, values: Mapping[bytes, bytes | None]) -> None:
        """Write a batch of values by key, where None deletes, and sync it. All of it succeeds or none."""
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
            # rocksdict raises a bare Exception for every error of RocksDB.
            raise UnreachableError(f"RocksDB: {error}", source=self._url) from error

    def flush(self) -> None:
        """Write everything that is only in the log to a table."""
        try:
            self.db.flush()
        except Exception as error:
            raise UnreachableError(f"RocksDB: {error}", source=self._url) from error

    def close(self) -> None:
        """Remove the library's own files and close the database, which releases its lock."""
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
    """Return options that write tables in format `form` and put RocksDB's own log into `logs`."""
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
    """Remove the library's own files from a new database, because other versions can't read all of them."""
    for file in (*database.glob("OPTIONS-*"), database / BINDING_CONFIG):
        with suppress(FileNotFoundError):
            file.unlink()


def table_format(database: Path) -> int:
    """Return the table format that the database's own RocksDB writes, according to its OPTIONS file."""
    newest = max(database.glob("OPTIONS-*"), default=None)
    formats = _format_re.findall(newest.read_text("utf-8", "replace")) if newest else []
    return min(map(int, formats), default=TABLE_FORMAT)


def take_checkpoint(database: Path, url: str) -> Path:
    """Copy a database that no process writes to a new directory with the suffix `.checkpoint-TIME`.

    Tables never change, so they become hard links if the file system supports them. LOCK is not copied. An
    incomplete copy has the suffix `.partial`. Those of killed processes are removed, because the caller's
    lock proves that no process works on them. Raises UnreachableError if the copy fails.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = database.with_name(f"{database.name}.checkpoint-{stamp}")
    partial = target.with_name(f"{target.name}.partial")
    try:
        _remove_partial(database)
        partial.mkdir(mode=0o700)
        for file in sorted(database.iterdir()):
            if file.is_file() and file.name != "LOCK":
                _link_or_copy(file, partial / file.name)
        partial.rename(target)
    except OSError as error:
        _remove_partial(database)
        raise UnreachableError(f"cannot create the checkpoint: {error.strerror}", source=url) from error
    return target


def _remove_partial(database: Path) -> None:
    beginning = f"{database.name}.checkpoint-"
    for left in database.parent.iterdir():
        if left.name.startswith(beginning) and _partial_re.fullmatch(left.name, len(beginning)):
            shutil.rmtree(left, ignore_errors=True)


def _link_or_copy(file: Path, target: Path) -> None:
    if file.suffix in IMMUTABLE:
        try:
            os.link(file, target)
        except OSError:
            pass
        else:
            return
    shutil.copy2(file, target)
