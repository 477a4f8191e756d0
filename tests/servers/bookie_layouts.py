"""Make disks of a bookie in rare states: `python -m tests.servers.bookie_layouts DIRECTORY`.

    reused-*               reused journal files, with old records after the end
    per-ledger             entry logs of one ledger each, and shared ones that compaction rewrote
    compacting, compacted  killed while a compaction or its index was written
    journal-vN             killed before a flush; journals in format N, DbLedgerStorage

Each folder has the files of the disk and `served.json`. It lists the entries (SHA-256) of each ledger that
the bookie served after it came up on the same disk, and the deleted ledgers.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.bookie_truth import digest
from tests.servers import jars
from tests.servers.bookies import Bookies
from tests.servers.jvm import JavaFailed

LEDGERS: Final = "tests.servers.ledgers"
INTERLEAVED: Final = "org.apache.bookkeeper.bookie.InterleavedLedgerStorage"
# BookKeeper's own file channels can't be reused. A user of journalReuseFiles has to provide others.
PROVIDER: Final = """public class Reusing extends org.apache.bookkeeper.bookie.DefaultFileChannelProvider {
    public boolean supportReuseFile() { return true; }
}"""
COLLECTING: Final = {
    "gcWaitTime": "1000",
    "minorCompactionInterval": "2",
    "minorCompactionThreshold": "0.7",
    "majorCompactionInterval": "3",
    "majorCompactionThreshold": "0.9",
    "entryLogFilePreallocationEnabled": "false",
}
PATIENCE: Final = 60
# A compaction begins some seconds after ledgers were deleted. If it is missed, it does not happen again.
COMPACTION_SECONDS: Final = 30
ATTEMPTS: Final = 6


class Layout(Bookies):
    """A bookie whose disk is brought into a state. `written` are the ledgers that are not deleted."""

    def __init__(self, settings: Mapping[str, str], classes: Path | None = None) -> None:
        super().__init__(1, settings={"flushInterval": "300", **settings})
        if classes is not None:
            self.classpath += f":{classes}"
        self.written: dict[int, list[bytes]] = {}
        self.deleted: list[int] = []

    @property
    def current(self) -> Path:
        return self.directories[0] / "current"

    @property
    def pid(self) -> int:
        return self._bookies[0].pid

    def write(self, ledgers: int, entries: int, size: int, fill: int = 0) -> list[int]:
        """Write ledgers with this many entries that mostly consist of `fill` bytes. Returns their ids."""
        return [self._write_one(entries, size, fill) for _ in range(ledgers)]

    def delete(self, ledgers: Iterable[int]) -> None:
        for ledger_id in ledgers:
            self.call(f"{LEDGERS}:delete", ledger_id)
            self.deleted.append(ledger_id)
            del self.written[ledger_id]

    def change(self, **settings: str) -> None:
        """Restart the bookie with other settings."""
        self.stop(0)
        self._settings = {**self._settings, **settings}
        self.start(0)

    def save(self, into: Path, *, serves: bool = True) -> None:
        """Copy the disk of the killed bookie, then start the bookie and record what it serves.

        `serves` is False if the bookie can't start on such a disk. Then everything that was written is
        recorded.
        """
        shutil.copytree(self.directories[0], into)
        served = self.written
        if serves:
            self.start(0)
            served = {ledger_id: _patiently(partial(self._served, ledger_id)) for ledger_id in self.written}
        document = {
            "served": {str(ledger_id): list(map(digest, entries)) for ledger_id, entries in served.items()},
            "deleted": self.deleted,
        }
        (into / "served.json").write_text(json.dumps(document))

    def _served(self, ledger_id: int) -> list[bytes]:
        entries: list[bytes] = self.call(f"{LEDGERS}:read", ledger_id)
        return entries

    def _write_one(self, entries: int, size: int, fill: int) -> int:
        name = len(self.written) + len(self.deleted)
        data = [b"ledger %d entry %d " % (name, at) + bytes([fill]) * size for at in range(entries)]
        ledger_id = int(_patiently(lambda: self.call(f"{LEDGERS}:write", data, {})))
        self.written[ledger_id] = data
        return ledger_id


def reused(into: Path, classes: Path, *, old: int, new: int, fill: int, serves: bool) -> None:
    """Make a reused journal. `old` and `new` are the sizes of entries before and after the reuse.

    All old ledgers are deleted. Records end at blocks of 512 bytes. With equal sizes, an old record begins
    exactly where the new ones end; with other sizes, there are `fill` bytes of an old record.
    """
    settings = {
        "journalReuseFiles": "true",
        "journalChannelProvider": "Reusing",
        "journalMaxSizeMB": "1",
        "journalMaxBackups": "1",
        "gcWaitTime": "1000",
    }
    with Layout(settings, classes) as bookie:
        before = bookie.write(8, 420, old, fill)
        time.sleep(1.5)
        bookie.delete(before)
        time.sleep(3)
        newest = max(bookie.current.glob("*.txn"))
        while max(bookie.current.glob("*.txn")) == newest:
            bookie.write(1, 60, new, fill)
            time.sleep(0.3)
        time.sleep(1)
        # The number of blocks is odd, unless all records have two.
        bookie.write(1, 13, 333 if old != new else new, fill)
        bookie.kill(0)
        bookie.save(into, serves=serves)


def per_ledger(into: Path) -> None:
    """Make shared logs, then one log per ledger. Half of the ledgers are deleted, the rest rewritten."""
    with Layout({**COLLECTING, "ledgerStorageClass": INTERLEAVED, "logSizeLimit": "60000"}) as bookie:
        ledgers = bookie.write(8, 60, 200)
        time.sleep(1)
        bookie.change(entryLogPerLedgerEnabled="true")
        ledgers += bookie.write(6, 60, 200)
        time.sleep(1.5)
        logs = set(bookie.current.glob("*.log"))
        bookie.delete(ledgers[::2])
        _wait(lambda: len(logs - set(bookie.current.glob("*.log"))) >= 2)
        bookie.write(2, 40, 100)
        bookie.kill(0)
        bookie.save(into)


def compacting(into: Path, suffix: str) -> None:
    """Kill the bookie while a compaction file with this suffix exists (`.compacting` or `.compacted`).

    The file may come and go unnoticed, so bookies are created until one is killed in time.
    """
    for _ in range(ATTEMPTS - 1):
        with suppress(TimeoutError):
            _compacting(into, suffix)
            return
    _compacting(into, suffix)


def _compacting(into: Path, suffix: str) -> None:
    rate = {"compactionRateByEntries": "50"} if suffix == ".compacting" else {}
    with Layout(
        {**COLLECTING, **rate, "logSizeLimit": "400000", "useTransactionalCompaction": "true"}
    ) as bookie:
        ledgers = bookie.write(24, 120, 200)
        time.sleep(1)
        bookie.delete(ledgers[::2])
        _kill_at(bookie, suffix)
        bookie.save(into)


def journal_format(into: Path, version: int) -> None:
    """Leave everything in the journal, which has this format."""
    settings = {
        "journalFormatVersionToWrite": str(version),
        "fileInfoFormatVersionToWrite": "1" if version > 5 else "0",
        "flushInterval": "600000",
    }
    with Layout(settings) as bookie:
        for size in range(0, 500, 90):
            bookie.write(1, 40, size)
        bookie.kill(0)
        bookie.save(into)


def layouts(classes: Path | None) -> dict[str, Callable[[Path], None]]:
    """Map each layout to its function. Without `classes` (see `compile_provider`), no journal is reused."""
    makers: dict[str, Callable[[Path], None]] = {
        "per-ledger": per_ledger,
        "compacting": partial(compacting, suffix=".compacting"),
        "compacted": partial(compacting, suffix=".compacted"),
    }
    makers |= {f"journal-v{version}": partial(journal_format, version=version) for version in (4, 5, 6)}
    if classes is not None:
        again = partial(reused, classes=classes, old=900, fill=0xA7)
        makers["reused-aligned"] = partial(again, new=900, serves=True)
        # A bookie can't start if the bytes of a size are negative.
        makers["reused-within"] = partial(again, new=700, serves=False)
    return makers


def compile_provider(classes: Path) -> Path | None:
    """Compile the classes that let a bookie reuse journals to `classes`. Returns None without a compiler."""
    if shutil.which("javac") is None:
        return None
    source = classes / "Reusing.java"
    source.write_text(PROVIDER)
    command = ["javac", "-cp", jars.classpath("4.2.4"), "-d", str(classes), str(source)]
    subprocess.run(command, check=True)
    return classes


def _kill_at(bookie: Layout, suffix: str) -> None:
    """Kill the bookie while a file with this suffix has content, by letting it run for short moments."""
    deadline = time.monotonic() + COMPACTION_SECONDS
    while not _has_bytes(bookie.current, suffix):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no file with {suffix}")
        os.kill(bookie.pid, signal.SIGCONT)
        # The moments are long until a compaction begins, and short after that.
        begun = _has_bytes(bookie.current, ".compacting")
        time.sleep(0.0005 if begun else 0.002)
        if begun:
            os.kill(bookie.pid, signal.SIGSTOP)
    bookie.kill(0)


def _has_bytes(directory: Path, suffix: str) -> bool:
    with suppress(FileNotFoundError):
        return any(path.stat().st_size for path in directory.glob(f"*{suffix}"))
    return False


def _wait(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError("compaction does not come")
        time.sleep(0.2)


def _patiently(call: Callable[[], Any]) -> Any:
    """Return the result of a call to BookKeeper's client, which avoids a killed bookie for a while."""
    for _ in range(PATIENCE):
        try:
            return call()
        except JavaFailed:
            time.sleep(1)
    return call()


def main() -> None:
    """Make the layouts that the command line names, or all of them."""
    directory, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as classes:
        makers = layouts(compile_provider(Path(classes)))
        for name in names or makers:
            makers[name](Path(directory) / name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
