"""Measure the time until the first row: `python -m bench.first_row [--values 1000000] [--only ls tree]`.

For each command on each source, the table shows the wall-clock time from the start of the process to its
first line of output, and the processor time until then; on a busy machine, only the latter is meaningful. For
comparison, it shows both for a store of a hundred values, which is the cost of start-up. All numbers are the
best of --rounds. The goal is half a second if the source can be streamed. Values are those of growth.py, and
entries those of commands.py. `scan` is a log without a bookie's index, which must be read completely before
the first entry is known.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.commands import batch_frames, write_bookie
from bench.growth import MAIN, make_rocksdb, values
from bench.ledgers import add_index

GOAL: Final = 0.5
SMALL: Final = 100
COMMANDS: Final = (
    "decode -o ndjson", "decode", "ls /managed-ledgers", "tree", "tree -o ndjson", "check", "check -o ndjson",
)  # fmt: skip
TICKS: Final = os.sysconf("SC_CLK_TCK")


def make_etcd(stack: ExitStack, place: Path, count: int) -> str:
    """Fill a new etcd and return its URL."""
    # Uses the server of the tests.
    from pulsar_meta.jobs.rewrite.apply import chunks
    from pulsar_meta.stores.base import ABSENT
    from pulsar_meta.stores.registry import open_store
    from tests.servers.etcd import EtcdServer

    url = f"etcd://{stack.enter_context(EtcdServer(place / f'etcd-{count}')).address}"
    with open_store(url, read_only=False) as store:
        for group in chunks(values(count), 1024):
            store.put_many([(path, value, ABSENT) for path, value in group])
    return url


def make_snapshot(place: Path, count: int, suffix: str = "") -> str:
    """Write a sorted snapshot, like `snapshot` does, and return its URL."""
    from pulsar_meta.stores.base import Versioned
    from pulsar_meta.stores.snapshot_writer import SnapshotWriter

    file = place / f"ordered-{count}.ndjson{suffix}"
    writer = SnapshotWriter(file, {})
    for path, value in sorted(values(count)):
        writer.add(Versioned(path, value, 1))
    writer.finish({})
    return f"snapshot:{file}"


def make_log(place: Path, count: int, *, index: bool = True) -> str:
    """Write an entry log and return its URL."""
    bookie = write_bookie(place / f"log-{count}-{index}", batch_frames(), count)
    return f"bookie-disk:{add_index(bookie, count) if index else bookie}"


def first_row(words: list[str], place: Path) -> tuple[float, float]:
    """Run a command until its first line; return the wall-clock and the processor seconds."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [*MAIN, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place,
    )
    assert child.stdout is not None
    line = child.stdout.readline()
    elapsed = time.perf_counter() - begun
    if not line:
        raise SystemExit(f"{' '.join(words)}: no row")
    # The usage of a process can only be read while it exists.
    counted = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    child.kill()
    child.wait()
    return elapsed, (int(counted[11]) + int(counted[12])) / TICKS


def rows(
    kind: str, large: str, small: str, commands: tuple[str, ...], place: Path, rounds: int
) -> Iterator[str]:
    """Measure each command on one kind of source and yield a line of the table."""
    for command in commands:
        option = "--entries" if kind in ("log", "scan") else "--store"
        times = [
            tuple(
                map(
                    min,
                    zip(
                        *(first_row([*command.split(), option, url], place) for _ in range(rounds)),
                        strict=True,
                    ),
                )
            )
            for url in (large, small)
        ]
        (clock, cpu), (bare_clock, bare_cpu) = times
        missed = "" if cpu <= GOAL else "  over"
        yield f"{kind:9}{command:22}{clock:8.2f}{cpu:7.2f}{bare_clock:10.2f}{bare_cpu:7.2f}{missed}"


def main() -> None:
    """Create the sources and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sources", nargs="+", default=["rocksdb", "etcd", "snapshot", "zst", "log", "scan"])
    parser.add_argument("--only", nargs="+", help="commands by their first word")
    options = parser.parse_args()
    chosen = tuple(command for command in COMMANDS if not options.only or command.split()[0] in options.only)
    print(
        f"{'':31}{options.values:>15,}{SMALL:>17} values\n"
        f"{'':31}{'clock':>8}{'cpu':>7}{'clock':>10}{'cpu':>7}"
    )
    with tempfile.TemporaryDirectory(prefix="first-row-") as made, ExitStack() as stack:
        place = Path(made)
        makers: dict[str, Callable[[int], str]] = {
            "rocksdb": lambda count: make_rocksdb(place, count),
            "etcd": lambda count: make_etcd(stack, place, count),
            "snapshot": lambda count: make_snapshot(place, count),
            "zst": lambda count: make_snapshot(place, count, ".zst"),
            "log": lambda count: make_log(place, count),
            "scan": lambda count: make_log(place, count, index=False),
        }
        for kind in options.sources:
            commands = ("dump-entries", "dump-entries -o ndjson") if kind in ("log", "scan") else chosen
            for line in rows(
                kind, makers[kind](options.values), makers[kind](SMALL), commands, place, options.rounds
            ):
                print(line, flush=True)


if __name__ == "__main__":
    main()
