"""`bookie-disk:` on the directories of real bookies: each kind of storage, running, killed and stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_disk import LocatedEntries
from pulsar_meta.entries.sources import JoinedEntries, open_entries
from tests.servers.bookies import Bookies
from tests.servers.jvm import JavaFailed

pytestmark = pytest.mark.interop

STORAGES: Mapping[str, Mapping[str, str]] = {
    "DbLedgerStorage": {"ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage"},
    "direct I/O": {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_directIOEntryLogger": "true",
        "dbStorage_directIOEntryLoggerTotalWriteBufferSizeMB": "16",
        "dbStorage_directIOEntryLoggerTotalReadBufferSizeMB": "16",
        "dbStorage_directIOEntryLoggerReadBufferSizeMB": "8",
    },
    "InterleavedLedgerStorage": {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
    },
    "SortedLedgerStorage": {"ledgerStorageClass": "org.apache.bookkeeper.bookie.SortedLedgerStorage"},
}
WRITE = "tests.servers.ledgers:write"
Written = dict[int, list[bytes]]


class SpreadBookies(Bookies):
    """One bookie with three ledger directories, their indexes elsewhere, and two journals."""

    @property
    def spread(self) -> dict[str, list[Path]]:
        """The directories by their setting; the names sort in another order than they are listed in."""
        data = self.directories[0]
        return {
            "ledgerDirectories": [data / name for name in ("z", "m", "a")],
            "indexDirectories": [data / name for name in ("index-9", "index-10", "index-1")],
            "journalDirectories": [data / name for name in ("journal-2", "journal-1")],
        }

    def _write_settings(self, number: int) -> Path:
        file = super()._write_settings(number)
        # A key that is written twice counts as a list of both.
        replaced = ("ledgerDirectories=", "journalDirectory=")
        lines = [line for line in file.read_text().splitlines() if not line.startswith(replaced)]
        lines += [f"{setting}={','.join(map(str, dirs))}" for setting, dirs in self.spread.items()]
        file.write_text("\n".join(lines))
        return file


@pytest.fixture(scope="module", params=STORAGES)
def bookies(request: pytest.FixtureRequest) -> Iterator[SpreadBookies]:
    with SpreadBookies(1, settings=STORAGES[request.param]) as running:
        yield running


def write(bookies: Bookies, ledgers: int) -> Written:
    written = {}
    for number in range(ledgers):
        entries = [b"ledger %d entry %d " % (number, at) + bytes(at * 7) for at in range(100)]
        written[write_ledger(bookies, entries)] = entries
    return written


def write_ledger(bookies: Bookies, entries: list[bytes]) -> int:
    """Write one ledger; the client shuns a bookie for a while that was killed under it."""
    for _ in range(60):
        try:
            return int(bookies.call(WRITE, entries, {"digest": "CRC32C"}))
        except JavaFailed:
            time.sleep(1)
    raise AssertionError("the bookie takes no writes")


def read(source: EntrySource, ledgers: Written) -> Written:
    found: Written = {}
    for ledger_id in ledgers:
        entries = [decode_bookie_entry(entry.data) for entry in source.read_many(ledger_id)]
        assert {entry.digest for entry in entries} <= {"ok"}
        found[ledger_id] = [bytes(entry.data) for entry in entries]
    return found


def any_log(part: LocatedEntries) -> bool:
    return any(path.suffix == ".log" for path in part.files.paths.values())


def test_running_killed_stopped_and_scanned(bookies: SpreadBookies) -> None:
    url = f"bookie-disk:{bookies.directories[0]}"
    written = write(bookies, 7)
    with open_entries([url]) as running:
        assert read(running, written) == written
    bookies.kill(0)
    with open_entries([url]) as killed:
        assert read(killed, written) == written
        assert killed.faults == []
    bookies.start(0)
    written |= write(bookies, 2)
    bookies.stop(0)
    with open_entries([url]) as stopped, open_entries([f"{url}?index=scan"]) as scanned:
        assert read(stopped, written) == written
        assert read(scanned, written) == written
        assert (stopped.notes, stopped.faults) == (scanned.notes, scanned.faults) == ([], [])
        # After a clean stop everything is in entry logs and their index, nothing in the journals' rest.
        assert isinstance(stopped, JoinedEntries)
        logs = [part for part in stopped.parts if isinstance(part, LocatedEntries) and any_log(part)]
        assert set(written) <= {ledger_id for part in logs for ledger_id in part.ledgers()}
    spread = bookies.spread
    named = f"{url}?index={bookies.directories[0]}&journal={bookies.directories[0]}"
    with open_entries([named]) as source:
        assert read(source, written) == written
    assert not list(spread["indexDirectories"][0].rglob("rocksdict-config.json"))
    bookies.start(0)
