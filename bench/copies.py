"""What it costs to write a whole store down, to bring it into another one, and to compare the two.

    python -m bench.copies                              # 10 000, 100 000 and 1 000 000 values
    python -m bench.copies --sizes 10000 100000
    python -m bench.copies --targets rocksdb            # not etcd and zk, which gets 100 000 at most

The values are those of growth.py. For each target: a restore from a snapshot, a snapshot of what came of
it, the comparison of both, and the undoing; `zk` and `etcd` are real servers. Seconds are those of the
processor, without the servers'; `MB` is the peak of memory. The last columns are by how much time and memory
grew for each value more, between the two largest sizes: below them caches fill (SQLite's 64 MB in `diff`,
RocksDB's write buffers). What a command holds of the store would be in the last one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.growth import Measured, cell, made_apart, make_snapshot, measure

from tests.servers import etcd, zookeeper

SECONDS: Final = 3600.0
# More values than these are too many for the memory of the ZooKeeper of the tests.
ZOOKEEPER_HOLDS: Final = 100_000
STEPS: Final = (
    ("restore", "restore {from} --store {target} --allow-unreadable --yes --undo-file {size}.{kind}.undo"),
    ("restore again", "restore {from} --store {target} --allow-unreadable --yes"),
    ("snapshot", "snapshot {size}.{kind}.ndjson.zst --store {target}"),
    ("diff", "diff {from} {target} --ignore brokers --ignore parents --bytes"),
    ("undo", "undo {size}.{kind}.undo --allow-unreadable --yes"),
)


def rocksdb(stack: ExitStack, place: Path, size: int) -> str:
    """Return the URL of a database that is not there yet."""
    return f"rocksdb:{size}.database"


def zk(stack: ExitStack, place: Path, size: int) -> str:
    """Start an empty ZooKeeper; return its URL."""
    return f"zk://{stack.enter_context(zookeeper.ZookeeperServer(place / f'zk-{size}')).address}"


def etcd_(stack: ExitStack, place: Path, size: int) -> str:
    """Start an empty etcd; return its URL."""
    return f"etcd://{stack.enter_context(etcd.EtcdServer(place / f'etcd-{size}')).address}"


TARGETS: Final[dict[str, Callable[[ExitStack, Path, int], str]]] = {
    "rocksdb": rocksdb,
    "zk": zk,
    "etcd": etcd_,
}


def row(name: str, sizes: list[int], found: list[Measured]) -> str:
    """Return a step's row."""
    before = max(len(sizes) - 2, 0)
    more = sizes[-1] - sizes[before] or 1
    micros = (found[-1].seconds - found[before].seconds) / more * 1e6
    held = (found[-1].peak - found[before].peak) / more
    codes = {one.code for one in found} - {0}
    wrong = "".join(f"  exit {code}" for code in codes)
    return f"{name:16}{''.join(map(cell, found))}{micros:10.0f}{held:9.1f}{wrong}"


def table(kind: str, sizes: list[int], place: Path) -> None:
    """Print the rows of one kind of target, size by size, then step by step."""
    found: dict[str, list[Measured]] = {name: [] for name, _ in STEPS}
    for size in sizes:
        with ExitStack() as stack:
            names = {"from": f"snapshot:{size}.ndjson", "target": TARGETS[kind](stack, place, size)}
            for name, command in STEPS:
                words = command.format(size=size, kind=kind, **names).split()
                found[name].append(measure(words, place, SECONDS))
                print(f"{kind} {size}: {name}{cell(found[name][-1])}", file=sys.stderr, flush=True)
                if found[name][-1].code != 0:
                    print((place / "stderr").read_text()[-500:], file=sys.stderr)
    heads = "".join(f"{size:>10}{'MB':>6}" for size in sizes)
    print(f"\n{kind}\n{'step':16}{heads}{'us/value':>10}{'B/value':>9}")
    for name, some in found.items():
        print(row(name, sizes, some), flush=True)


def main() -> None:
    """Write the snapshots, take the steps, print a table for each kind of target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copies-") as made:
        place = Path(made)
        for size in asked.sizes:
            made_apart(make_snapshot, place, size)
        for kind in asked.targets:
            sizes = [size for size in asked.sizes if kind != "zk" or size <= ZOOKEEPER_HOLDS]
            table(kind, sizes, place)


if __name__ == "__main__":
    main()
