"""How time and memory grow with the store, for every command that reads one.

    python -m bench.growth                          # 10 000, 100 000 and 1 000 000 values; takes an hour
    python -m bench.growth --sizes 2000 20000 200000
    python -m bench.growth --stores snapshot        # in this form only (snapshot, rocksdb, zk)
    python -m bench.growth --only ls top            # only these commands
    python -m bench.growth --seconds 60             # no command runs longer than this

Values are generated: namespaces of a hundred topics, nine cursors a topic. Each command runs in a process of
its own; seconds are those of the processor. The exponent is that of their growth over three sizes, each ten
times the one before: 1 grows with the store, 2 with its square, 0 not at all. `B/value` is by how much the
peak of memory grew for each value more. Flagged are commands that grow faster than what they read (over
1.15), commands about one thing that grow at all, and commands that hold the store in memory (over 24 bytes
a value). Whatever is not a mere scan of a snapshot makes an index of it first, so there even what is about
one thing grows.
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

Asked = ParamSpec("Asked")
Made = TypeVar("Made")
MAIN = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")
TOPICS, CURSORS = 100, 9
# Faster than its input; more than a path's offset in an index takes.
STEEP, HOLDS = 1.15, 24
# Below this the start of Python is all that is measured.
SECONDS, EXPONENT_OF_ONE = 0.5, 0.5
# Found, a check found a fault (there are no entries), not found.
FINE = {0, 1, 3}
# So many values are written into a store on a network together.
AT_ONCE = 1000
NAMESPACE, TOPIC, CURSOR = "bench/ns-0", "bench/ns-0/topic-1", "cursor-1"

# About everything, and about one thing.
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
    """One command over one size: processor's seconds, peak memory in bytes, exit code (None: too long)."""

    seconds: float
    peak: int
    code: int | None


def cursor(number: int) -> bytes:
    """Return a cursor with a few holes, about 250 bytes of it."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number + 1, markDeleteEntryId=number)
    for hole in range(8):
        added = info.individualDeletedMessages.add()
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = number + 1
        added.lowerEndpoint.entryId, added.upperEndpoint.entryId = 10 * hole + number, 10 * hole + number + 5
    return info.SerializeToString()


def ledgers(number: int) -> bytes:
    """Return a topic's record: one closed ledger, one open."""
    info = ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=2 * number + 1, entries=100, size=1000, timestamp=1_700_000_000_000)
    info.ledgerInfo.add(ledgerId=2 * number + 2)
    return info.SerializeToString()


def values(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield (path, value), parents first."""
    templates = [cursor(number) for number in range(64)]
    for topic in range(count // (1 + CURSORS)):
        path = f"/managed-ledgers/bench/ns-{topic // TOPICS}/persistent/topic-{topic}"
        yield path, ledgers(topic)
        for number in range(CURSORS):
            yield f"{path}/cursor-{number}", templates[(topic + number) % 64]


def make_snapshot(place: Path, count: int) -> str:
    """Write a snapshot; return its URL."""
    with (place / f"{count}.ndjson").open("w") as out:
        for path, value in values(count):
            out.write(json.dumps({"path": path, "version": 1, "value": b64encode(value).decode()}) + "\n")
    return f"snapshot:{count}.ndjson"


def make_rocksdb(place: Path, count: int) -> str:
    """Write a database as a standalone has it; return its URL."""
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


def made_apart(make: Callable[Asked, Made], *what: Asked.args, **how: Asked.kwargs) -> Made:
    """Make something in a process of its own.

    Linux gives a process the peak of the one that starts it (setmax_mm_hiwater_rss in fs/exec.c), and so what
    makes stores itself would measure its own memory in every small command.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as maker:
        return maker.submit(make, *what, **how).result()


def make_zookeeper(stack: ExitStack, place: Path, count: int) -> str:
    """Fill a fresh ZooKeeper; return its URL."""
    from tests.servers import zookeeper

    server = zookeeper.ZookeeperServer(place / f"zk-{count}", java_options=("-Xmx3g",))
    stack.enter_context(server)
    url, waiting = f"zk://{server.address}", values(count)
    with open_store(url, read_only=False) as store:
        while some := [(path, value, ABSENT) for path, value in islice(waiting, AT_ONCE)]:
            store.put_many(some)
    return url


def measure(words: Sequence[str], place: Path, limit: float, *, mapped: bool = True) -> Measured:
    """Run the program once, and kill it when it takes too long; without `mapped`, files are no memory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PULSAR_META_")}
    state = str(place / "state")
    # One process: what several take is not to be seen from here.
    environment = kept | {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state, "PULSAR_META_JOBS": "1"}
    begun = time.monotonic()
    with (place / "stderr").open("wb") as talk:
        child = subprocess.Popen(
            [*MAIN, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=talk, cwd=place,
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
    """Return the bytes of memory that a process has now beside those of files."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("RssAnon:")[2].split(maxsplit=1)[0] or 0) << 10 if "RssAnon:" in status else 0


def cell(one: Measured) -> str:
    """Return the seconds and megabytes of one run."""
    shown = f"{one.seconds:.1f}" if one.code is not None else f">{one.seconds:.0f}"
    return f"{shown:>10}{one.peak / 2**20:6.0f}"


def flags(command: str, found: Sequence[Measured], seconds: float, exponent: float, held: float) -> str:
    """Return what is wrong with the growth of a command."""
    wrong = {
        "STEEP": seconds > SECONDS and exponent > STEEP,
        "READS ALL": seconds > SECONDS and command in ONE and exponent > EXPONENT_OF_ONE,
        "HOLDS": held > HOLDS,
    }
    codes = {one.code for one in found} - FINE
    ended = [f"exit {code}" if code is not None else "TOO LONG" for code in sorted(codes, key=str)]
    return " ".join([*(name for name, true in wrong.items() if true), *ended])


def line(command: str, sizes: Sequence[int], found: Sequence[Measured], start: float) -> str:
    """Return a command's row: seconds and megabytes for each size, the exponent, bytes a value, flags."""
    own = max(found[-1].seconds - start, 0.01)
    exponent = held = 0.0
    if len(found) > 2:
        # Of the differences: what every run takes for itself is in none of them.
        steps = [max(after.seconds - before.seconds, 0.01) for before, after in pairwise(found)]
        exponent = math.log(steps[-1] / steps[-2]) / math.log(sizes[len(found) - 1] / sizes[len(found) - 2])
    if len(found) > 1:
        held = (found[-1].peak - found[0].peak) / (sizes[len(found) - 1] - sizes[0])
    cells = "".join(map(cell, found)) + " " * 16 * (len(sizes) - len(found))
    wrong = flags(command, found, own, exponent, held)
    return f"{command[:70]:70}{cells}{exponent:6.2f}{held:8.1f}  {wrong}"


def table(kind: str, urls: dict[int, str], commands: Sequence[str], place: Path, limit: float) -> None:
    """Print the rows of one kind of store as they come."""
    start = min(measure(["--version"], place, limit).seconds for _ in range(3))
    sizes = list(urls)
    heads = "".join(f"{size:>10}{'MB':>6}" for size in sizes)
    print(f"\n{kind}: start {start:.2f} s\n{'command':70}{heads}{'exp':>6}{'B/value':>8}", flush=True)
    for command in commands:
        found: list[Measured] = []
        for size, url in urls.items():
            words = command.replace("FILE", f"{kind}-{size}.undo").replace("STORE", url).split()
            if words[0] == "diff":
                found.append(measure(words, place, limit))
            else:
                found.append(measure([*words, "--store", url], place, limit))
            if found[-1].code is None:
                break
        print(line(command, sizes, found, start), flush=True)


def main() -> None:
    """Generate the stores, run the commands, print a table for each kind of store."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument(
        "--stores", nargs="+", default=["snapshot", "rocksdb"], choices=["snapshot", "rocksdb", "zk"]
    )
    parser.add_argument("--only", nargs="+", help="commands by their first word")
    parser.add_argument("--seconds", type=float, default=300)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="growth-") as made, ExitStack() as servers:
        place = Path(made)
        (place / "none").write_bytes(b"")
        for kind in asked.stores:
            if kind == "zk":
                urls = {size: make_zookeeper(servers, place, size) for size in asked.sizes}
            else:
                make = make_snapshot if kind == "snapshot" else make_rocksdb
                urls = {size: made_apart(make, place, size) for size in asked.sizes}
            commands = [*ALL, *ONE, *(WRITES if kind != "snapshot" else ())]
            chosen = [one for one in commands if not asked.only or one.split()[0] in asked.only]
            table(kind, urls, chosen, place, asked.seconds)


if __name__ == "__main__":
    main()
