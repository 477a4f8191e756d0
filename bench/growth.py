"""Measure how time and memory grow with the store, for every command that reads a store.

    python -m bench.growth                          # 10 000, 100 000 and 1 000 000 values; takes an hour
    python -m bench.growth --sizes 2000 20000 200000
    python -m bench.growth --stores snapshot        # only this kind of store (snapshot, rocksdb, zk)
    python -m bench.growth --only ls top            # only these commands
    python -m bench.growth --seconds 60             # end each command after this time

The values are generated: namespaces of a hundred topics, with nine cursors per topic. Each command runs in a
separate process, and its processor seconds are measured. The exponent describes their growth over three
sizes, each ten times the previous one: 1 means proportional to the store, 2 to its square, 0 constant.
`B/value` is by how much the peak memory grows per additional value. The table flags commands that grow faster
than their input (exponent over 1.15), commands about a single thing that grow at all, and commands that keep
the store in memory (over 24 bytes per value). Commands on a snapshot build an index unless they only scan it,
so there even commands about a single thing grow.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import INSTANCE_ID, MetaValue

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MAIN = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")
TOPICS, CURSORS = 100, 9
# The first is the exponent of growing faster than the input; the second is more than an index needs per path.
STEEP, HOLDS = 1.15, 24
# Below this time, mostly Python's start-up is measured.
SECONDS, EXPONENT_OF_ONE = 0.5, 0.5
# Success, a fault found by a check (there are no entries), and not found.
FINE = {0, 1, 3}
# How many values are written together to a store on a network.
AT_ONCE = 1000
NAMESPACE, TOPIC, CURSOR = "bench/ns-0", "bench/ns-0/topic-1", "cursor-1"

# Commands about the complete store, and commands about a single thing.
ALL = (
    *("ls", "tree", "tree -d 3", "top", "decode", "decode -o json", "brokers"),
    "top -o openmetrics",
    "check -o ndjson",
    "check --before-upgrade 4.2.4",
    "check-readable --for-version 4.2.4",
    "snapshot FILE.zst",
    "bundle FILE.tar.gz",
    "diff STORE STORE",
    f"properties {NAMESPACE}",
    f"show-cursor {NAMESPACE}",
    "whois 5",
    "convert-cursor --to ranges --all --dry-run",
    "restore STORE --dry-run -o ndjson",
    "compress-cursors --estimate",
    "compress-cursors --dry-run --compression lz4 --threshold 0 -o ndjson",
    "compress-cursors --dry-run --compression zstd --threshold 0 -o json",
    "compress-ledgers --dry-run --compression lz4 --threshold 0 -o ndjson",
    "check-index --all --entries frames:none",
    "verify-entries --entries frames:none",
    "build-index --all --dry-run --entries frames:none",
    f"seek --namespace {NAMESPACE} --index 1 --entries frames:none",
)
ONE = (
    *(f"ls namespace {NAMESPACE}", f"ls -l topic {TOPIC}", f"tree topic {TOPIC}", f"get topic {TOPIC}"),
    *(f"get cursor {TOPIC} {CURSOR}", f"top topic {TOPIC}", f"properties {TOPIC}"),
    f"decode /managed-ledgers/bench/ns-0/persistent/topic-1/{CURSOR}",
    f"seek {TOPIC} --index 1 --entries frames:none",
    f"check {TOPIC}",
    f"show-cursor {TOPIC}",
    f"show-cursor {TOPIC} {CURSOR}",
    f"check-index {TOPIC} --entries frames:none",
    f"compress-cursors --dry-run --compression lz4 --threshold 0 --topic {TOPIC}",
    f"set-property {TOPIC} 3 a=b --dry-run",
)
WRITES = (
    "compress-cursors --compression zstd --threshold 0 --yes --undo-file FILE -o json",
    "undo FILE --yes -o json",
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One command on one size: processor seconds, peak memory in bytes, exit code (None: took too long)."""

    seconds: float
    peak: int
    code: int | None


def cursor(number: int) -> bytes:
    """Build a cursor with a few holes, of about 250 bytes."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number + 1, markDeleteEntryId=number)
    for hole in range(8):
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = number + 1
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 10 * hole + number, 10 * hole + number + 5
    return info.SerializeToString()


def ledgers(number: int) -> bytes:
    """Build a topic's record with a closed ledger and an open one."""
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=2 * number + 1, entries=100, size=1000, timestamp=1_700_000_000_000)
    info.ledgerInfo.add(ledgerId=2 * number + 2)
    return info.SerializeToString()


def values(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value), parents before children."""
    templates = [cursor(number) for number in range(64)]
    for topic in range(count // (1 + CURSORS)):
        path = f"/managed-ledgers/bench/ns-{topic // TOPICS}/persistent/topic-{topic}"
        yield path, ledgers(topic)
        for number in range(CURSORS):
            yield f"{path}/cursor-{number}", templates[(topic + number) % 64]


def make_snapshot(place: Path, count: int) -> str:
    """Write a snapshot and return its URL."""
    with (place / f"{count}.ndjson").open("w") as out:
        for path, value in values(count):
            out.write(json.dumps({"path": path, "version": 1, "value": b64encode(value).decode()}) + "\n")
    return f"snapshot:{count}.ndjson"


def make_rocksdb(place: Path, count: int) -> str:
    """Write a database like a standalone's and return its URL."""
    from rocksdict import Options, Rdict

    database = Rdict(str(place / f"{count}.rocksdb"), Options(raw_mode=True))
    database[INSTANCE_ID] = (1).to_bytes(8, "big")
    for path, value in values(count):
        database[path.encode()] = MetaValue(0, 1, 1, 1, False, value).encode()
    database.flush()
    database.close()
    with suppress(FileNotFoundError):
        (place / f"{count}.rocksdb" / "rocksdict-config.json").unlink()
    return f"rocksdb:{count}.rocksdb"


def in_new_process(
    make: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run a function in a new process.

    Linux gives a process the peak memory of its parent (setmax_mm_hiwater_rss in fs/exec.c). If this process
    itself created the stores, every small command would appear to need as much memory.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as maker:
        return maker.submit(make, *args, **kwargs).result()


def make_zookeeper(stack: ExitStack, place: Path, count: int) -> str:
    """Fill a new ZooKeeper and return its URL."""
    from tests.servers import zookeeper

    server = zookeeper.ZookeeperServer(place / f"zk-{count}", java_options=("-Xmx3g",))
    stack.enter_context(server)
    url, remaining = f"zk://{server.address}", values(count)
    with open_store(url, read_only=False) as store:
        while group := [(path, value, ABSENT) for path, value in islice(remaining, AT_ONCE)]:
            store.put_many(group)
    return url


def measure(words: Sequence[str], place: Path, limit: float, *, mapped: bool = True) -> Measured:
    """Run the program once, at most for `limit` seconds; without `mapped`, mapped files are not counted."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_META_")}
    state = str(place / "state")
    # Only one process is used, because the memory of others can't be measured from here.
    environment = inherited | {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "PULSAR_META_JOBS": "1"}
    begun = time.monotonic()
    with (place / "stderr").open("wb") as stderr:
        child = subprocess.Popen(
            [*MAIN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr, cwd=place,
            env=environment,
        )  # fmt: skip
    ended, status, usage, own = 0, 0, None, 0
    while not ended and time.monotonic() - begun < limit:
        own = max(own, own_memory(child.pid))
        ended, status, usage = os.wait4(child.pid, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        child.kill()
        _, status, usage = os.wait4(child.pid, 0)
    assert usage is not None
    code = os.waitstatus_to_exitcode(status) if ended else None
    child.returncode = code if code is not None else -9
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10 if mapped else own, code)


def own_memory(process: int) -> int:
    """Return how many bytes of memory a process uses now, without mapped files."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("RssAnon:")[2].split(maxsplit=1)[0] or 0) << 10 if "RssAnon:" in status else 0


def cell(run: Measured) -> str:
    """Format the seconds and megabytes of a run."""
    shown = f"{run.seconds:.1f}" if run.code is not None else f">{run.seconds:.0f}"
    return f"{shown:>10}{run.peak / 2**20:6.0f}"


def flags(command: str, runs: Sequence[Measured], seconds: float, exponent: float, memory: float) -> str:
    """Return the problems of a command's growth."""
    wrong = {
        "STEEP": seconds > SECONDS and exponent > STEEP,
        "READS ALL": seconds > SECONDS and command in ONE and exponent > EXPONENT_OF_ONE,
        "HOLDS": memory > HOLDS,
    }
    codes = {run.code for run in runs} - FINE
    ended = [f"exit {code}" if code is not None else "TOO LONG" for code in sorted(codes, key=str)]
    return " ".join([*(name for name, true in wrong.items() if true), *ended])


def line(command: str, sizes: Sequence[int], runs: Sequence[Measured], start: float) -> str:
    """Format a command's line: seconds and MB for each size, the exponent, bytes per value, and flags."""
    own = max(runs[-1].seconds - start, 0.01)
    exponent = memory = 0.0
    if len(runs) > 2:
        # Differences between sizes don't contain the start-up.
        steps = [max(after.seconds - before.seconds, 0.01) for before, after in pairwise(runs)]
        exponent = math.log(steps[-1] / steps[-2]) / math.log(sizes[len(runs) - 1] / sizes[len(runs) - 2])
    if len(runs) > 1:
        memory = (runs[-1].peak - runs[0].peak) / (sizes[len(runs) - 1] - sizes[0])
    cells = "".join(map(cell, runs)) + " " * 16 * (len(sizes) - len(runs))
    wrong = flags(command, runs, own, exponent, memory)
    return f"{command[:70]:70}{cells}{exponent:6.2f}{memory:8.1f}  {wrong}"


def table(kind: str, urls: dict[int, str], commands: Sequence[str], place: Path, limit: float) -> None:
    """Measure one kind of store and print its lines."""
    start = min(measure(["--version"], place, limit).seconds for _ in range(3))
    sizes = list(urls)
    heads = "".join(f"{size:>10}{'MB':>6}" for size in sizes)
    print(f"\n{kind}: start {start:.2f} s\n{'command':70}{heads}{'exp':>6}{'B/value':>8}", flush=True)
    for command in commands:
        runs: list[Measured] = []
        for size, url in urls.items():
            words = command.replace("FILE", f"{kind}-{size}.undo").replace("STORE", url).split()
            if words[0] == "diff":
                runs.append(measure(words, place, limit))
            else:
                runs.append(measure([*words, "--store", url], place, limit))
            if runs[-1].code is None:
                break
        print(line(command, sizes, runs, start), flush=True)


def main() -> None:
    """Generate the stores, run the commands, and print a table for each kind of store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--stores", nargs="+", default=["snapshot", "rocksdb"], choices=["snapshot", "rocksdb", "zk"]
    )
    parser.add_argument("--only", nargs="+", help="commands by their first word")
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="growth-") as made, ExitStack() as servers:
        place = Path(made)
        (place / "none").write_bytes(b"")
        for kind in options.stores:
            if kind == "zk":
                urls = {size: make_zookeeper(servers, place, size) for size in options.sizes}
            else:
                make = make_snapshot if kind == "snapshot" else make_rocksdb
                urls = {size: in_new_process(make, place, size) for size in options.sizes}
            commands = [*ALL, *ONE, *(WRITES if kind != "snapshot" else ())]
            chosen = [
                command for command in commands if not options.only or command.split()[0] in options.only
            ]
            table(kind, urls, chosen, place, options.seconds)


if __name__ == "__main__":
    main()
