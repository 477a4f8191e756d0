"""Disks of a bookie in states that are hard to come by: `python -m tests.servers.bookie_layouts DIRECTORY`.

    reused-*       journal files that were used again, with what an older journal left behind the end
    per-ledger     entry logs of one ledger each, beside shared ones that compaction rewrote
    compacting, compacted    killed while a compaction was written, and while its index was
    journal-vN     killed before a flush, journals in the format N, DbLedgerStorage

Each folder holds what lay on the disk, and `served.json`: of which ledgers the bookie serves which entries
(SHA-256, as it came up on the same disk), and which ledgers were deleted.
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
# BookKeeper's own file channels refuse to be used again; whoever sets journalReuseFiles brings others.
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
# A compaction begins some seconds after ledgers were deleted; one that was missed does not come again.
COMPACTION_SECONDS: Final = 30
ATTEMPTS: Final = 6


class Layout(Bookies):
    """One bookie whose disk is brought into a state; `written` are the ledgers that are not deleted."""

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
        """Write ledgers of so many entries, with `fill` as most of their bytes; return their ids."""
        return [self._write_one(entries, size, fill) for _ in range(ledgers)]

    def delete(self, ledgers: Iterable[int]) -> None:
        for ledger_id in ledgers:
            self.call(f"{LEDGERS}:delete", ledger_id)
            self.deleted.append(ledger_id)
            del self.written[ledger_id]

    def change(self, **settings: str) -> None:
        """Start again with other settings."""
        self.stop(0)
        self._settings = {**self._settings, **settings}
        self.start(0)

    def save(self, into: Path, *, serves: bool = True) -> None:
        """Copy the disk of the killed bookie; then have it come up, and note what it serves.

        `serves` is false where the bookie does not come up on such a disk: what was written counts.
        """
        shutil.copytree(self.directories[0], into)
        stated = self.written
        if serves:
            self.start(0)
            stated = {ledger_id: _patiently(partial(self._served, ledger_id)) for ledger_id in self.written}
        document = {
            "served": {str(ledger_id): list(map(digest, entries)) for ledger_id, entries in stated.items()},
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
    """A journal that was used again: `old` and `new` are the sizes of entries before and after.

    All of the old ledgers are deleted. Records end on blocks of 512 bytes: with equal sizes an old record
    begins right where the new ones end, else what is there are bytes `fill` out of one.
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
        # An odd number of blocks, unless all are of two.
        bookie.write(1, 13, 333 if old != new else new, fill)
        bookie.kill(0)
        bookie.save(into, serves=serves)


def per_ledger(into: Path) -> None:
    """Shared logs, then one for each ledger; half of the ledgers are deleted and what is left rewritten."""
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
    """Killed while there was a file with this suffix (`.compacting`, `.compacted`) of a compaction.

    The file may come and go unseen, so bookies are made until one was killed in time.
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
    """All is in the journal, which has this format."""
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
    """Return what makes each layout; without `classes` (see `compile_provider`) no journals are reused."""
    found: dict[str, Callable[[Path], None]] = {
        "per-ledger": per_ledger,
        "compacting": partial(compacting, suffix=".compacting"),
        "compacted": partial(compacting, suffix=".compacted"),
    }
    found |= {f"journal-v{version}": partial(journal_format, version=version) for version in (4, 5, 6)}
    if classes is not None:
        again = partial(reused, classes=classes, old=900, fill=0xA7)
        found["reused-aligned"] = partial(again, new=900, serves=True)
        # A bookie does not come up where the bytes of a size are negative.
        found["reused-within"] = partial(again, new=700, serves=False)
    return found


def compile_provider(classes: Path) -> Path | None:
    """Compile what lets a bookie use journal files again into `classes`; None without a compiler."""
    if shutil.which("javac") is None:
        return None
    source = classes / "Reusing.java"
    source.write_text(PROVIDER)
    command = ["javac", "-cp", jars.classpath("4.2.4"), "-d", str(classes), str(source)]
    subprocess.run(command, check=True)
    return classes


def _kill_at(bookie: Layout, suffix: str) -> None:
    """Kill the bookie while a file with this suffix has bytes: it is let run for moments and looked at."""
    deadline = time.monotonic() + COMPACTION_SECONDS
    while not _has_bytes(bookie.current, suffix):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no file with {suffix}")
        os.kill(bookie.pid, signal.SIGCONT)
        # Slowly until a compaction begins, then in slices.
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
    """Return what a call to BookKeeper's client says; it shuns a bookie for a while that was killed."""
    for _ in range(PATIENCE):
        try:
            return call()
        except JavaFailed:
            time.sleep(1)
    return call()


def main() -> None:
    """Make the layouts that the command line names, or all."""
    directory, *names = sys.argv[1:]
    with tempfile.TemporaryDirectory() as classes:
        makers = layouts(compile_provider(Path(classes)))
        for name in names or makers:
            makers[name](Path(directory) / name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
