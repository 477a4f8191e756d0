"""Compare our commands that list the ledgers of an entry log with BookKeeper's own `readlogmetadata`.

    python -m bench.ledgers [--entries 300000] [--rounds 3]

BookKeeper's shell comes from the jars of Pulsar 4.2.4; without them and Java nothing is compared. It reads
the header of each record and adds up sizes by ledger. `ledgers --by-log` and `disk --by log` also count
entries, and `ledgers` also has first and last entries and times. The table shows processor time (user and
system) and wall-clock time of complete processes, then both without start-up, from the difference between a
log of all entries and one of a thousandth. The goal is half of BookKeeper's time. `index` is a bookie's disk
with its index, which `ledgers` and `disk` then use. The log is that of commands.py, in ledgers of 50 000
entries, without a ledgers map. Sizes must equal BookKeeper's. All times are the best of --rounds.
"""

from __future__ import annotations

import argparse
import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.commands import LEDGER_SIZE, MAIN, real_frames, write_bookie

GOAL: Final = 0.5
VERSION: Final = "4.2.4"
ROWS: Final = (
    ("ledgers --by-log", "scan"), ("disk --by log", "scan"), ("ledgers", "scan"),
    ("disk --by log", "index"), ("ledgers", "index"),
)  # fmt: skip
_LINE: Final = re.compile(r"Lid=(\d+), TotalSizeOfEntriesOfLedger=(\d+)")


@dataclass(frozen=True)
class Usage:
    """Processor and wall-clock seconds, and the output."""

    cpu: float
    clock: float
    output: str = ""

    def without(self, start: Usage) -> Usage:
        """Subtract the usage of another run."""
        return Usage(max(self.cpu - start.cpu, 0.001), max(self.clock - start.clock, 0.001))


def add_index(bookie: Path, count: int, per_ledger: int = LEDGER_SIZE) -> Path:
    """Add the index of locations to a ledger directory, for every entry of its log."""
    from rocksdict import Options, Rdict, WriteBatch

    from pulsar_meta.codecs.columns.records import find_records

    offsets = find_records((bookie / "current" / "0.log").read_bytes()).offsets.tolist()
    assert len(offsets) == count
    path = bookie / "current" / "locations"
    database = Rdict(str(path), Options(raw_mode=True))
    batch = WriteBatch(raw_mode=True)
    for number, offset in enumerate(offsets):
        ledger, entry = divmod(number, per_ledger)
        batch.put(struct.pack(">qq", ledger + 7, entry), struct.pack(">q", offset))
    database.write(batch)
    database.flush()
    database.close()
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    return bookie


def run(words: Sequence[str], place: Path) -> Usage:
    """Run a process to its end; raise SystemExit if it fails."""
    begun = time.perf_counter()
    with (place / "out").open("w+") as out, (place / "err").open("w") as err:
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=place)
        _, status, usage = os.wait4(child.pid, 0)
        elapsed = time.perf_counter() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if child.returncode:
            raise SystemExit(f"{' '.join(words)}: exit {child.returncode}\n{(place / 'err').read_text()}")
        return Usage(usage.ru_utime + usage.ru_stime, elapsed, out.read())


def shell_words(bookie: Path, place: Path) -> list[str]:
    """Return the command line of BookKeeper's shell; raises NoJars."""
    from tests.servers.jars import classpath

    conf = place / f"{bookie.name}.conf"
    conf.write_text(
        f"ledgerDirectories={bookie}\nindexDirectories={bookie}\njournalDirectory={place / 'journal'}\n"
        "metadataServiceUri=zk+hierarchical://127.0.0.1:1/ledgers\nallowLoopback=true\n"
    )
    shell = ["java", "-cp", classpath(VERSION), "org.apache.bookkeeper.bookie.BookieShell"]
    return [*shell, "-conf", str(conf), "readlogmetadata", "0"]


def best(runs: Sequence[Usage]) -> Usage:
    """Return the least processor and wall-clock time of several runs."""
    return Usage(min(run.cpu for run in runs), min(run.clock for run in runs), runs[0].output)


def complete_and_net(
    large: Sequence[str], small: Sequence[str], place: Path, rounds: int
) -> tuple[Usage, Usage]:
    """Return the best usage of complete processes, and the best without start-up."""
    pairs = [(run(large, place), run(small, place)) for _ in range(rounds)]
    complete, start = (best(runs) for runs in zip(*pairs, strict=True))
    return complete, complete.without(start)


def line(name: str, complete: Usage, net: Usage, bookkeeper: tuple[Usage, Usage] | None) -> str:
    """Format a line of the table; a share is relative to BookKeeper's processor time."""
    cells = "".join(f"{usage.cpu:9.2f}{usage.clock:7.2f}" for usage in (complete, net))
    if bookkeeper is None:
        return f"{name:28}{cells}"
    shares = [ours.cpu / other.cpu for ours, other in zip((complete, net), bookkeeper, strict=True)]
    missed = "  over" if max(shares) > GOAL else ""
    return f"{name:28}{cells}{shares[0]:9.2f}{shares[1]:7.2f}{missed}"


def check_sizes(ours: str, bookkeeper: str) -> None:
    """Compare the sizes of `ledgers` with BookKeeper's; raise SystemExit if one differs."""
    cells = [row.split("\t") for row in ours.splitlines()]
    if {int(row[0]): int(row[5]) for row in cells} != {
        int(ledger): int(size) for ledger, size in _LINE.findall(bookkeeper)
    }:
        raise SystemExit(f"other sizes than BookKeeper's:\n{ours}\n{bookkeeper}")


def compare(place: Path, entries: int, rounds: int) -> None:
    """Create the logs and print the table."""
    from tests.servers.jars import NoJars

    frames = real_frames(place)
    logs = {
        count: write_bookie(place / f"scan-{count}", frames, count) for count in (entries, entries // 1000)
    }
    indexed = {
        count: add_index(write_bookie(place / f"index-{count}", frames, count), count) for count in logs
    }
    print(
        f"{entries} entries\n{'':28}{'whole':>9}{'clock':>7}{'entries':>9}{'clock':>7}{'share of time':>16}"
    )
    bookkeeper = None
    try:
        large, small = (shell_words(log, place) for log in logs.values())
        bookkeeper = complete_and_net(large, small, place, rounds)
        print(line("BookKeeper readlogmetadata", *bookkeeper, None), flush=True)
    except NoJars as error:
        print(f"BookKeeper readlogmetadata: not compared: {error}")
    for command, kind in ROWS:
        disks = logs if kind == "scan" else indexed
        large, small = (
            [*MAIN, *command.split(), "--entries", f"bookie-disk:{disk}"] for disk in disks.values()
        )
        complete, net = complete_and_net(large, small, place, rounds)
        if bookkeeper is not None and command == "ledgers":
            check_sizes(complete.output, bookkeeper[0].output)
        print(line(f"{command}, {kind}", complete, net, bookkeeper), flush=True)


def main() -> None:
    """Compare in a temporary directory."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ledgers-") as made:
        compare(Path(made), options.entries, options.rounds)


if __name__ == "__main__":
    main()
