"""Measure snapshot, restore, diff and undo of complete stores.

    python -m bench.copies                              # 10 000, 100 000 and 1 000 000 values
    python -m bench.copies --sizes 10000 100000
    python -m bench.copies --targets rocksdb            # only this target (zk gets at most 100 000 values)

The values are those of growth.py. For each target, the steps are a restore from a snapshot, a snapshot of the
restored store, a comparison of both, and an undo; `zk` and `etcd` are real servers. Seconds are processor
seconds without the servers; `MB` is the peak memory. The last two columns show by how much time and memory
grow per additional value between the two largest sizes, because caches fill at smaller sizes (SQLite's 64 MB
in `diff`, RocksDB's write buffers). A command that keeps the store in memory would show up in the last
column.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.growth import Measured, cell, in_new_process, make_snapshot, measure

from tests.servers import etcd, zookeeper

SECONDS: Final = 3600.0
# The ZooKeeper of the tests has too little memory for more values.
ZOOKEEPER_HOLDS: Final = 100_000
STEPS: Final = (
    ("restore", "restore {from} --store {target} --allow-unreadable --yes --undo-file {size}.{kind}.undo"),
    ("restore again", "restore {from} --store {target} --allow-unreadable --yes"),
    ("snapshot", "snapshot {size}.{kind}.ndjson.zst --store {target}"),
    ("diff", "diff {from} {target} --ignore brokers --ignore parents --bytes"),
    ("undo", "undo {size}.{kind}.undo --allow-unreadable --yes"),
)


def rocksdb(stack: ExitStack, place: Path, size: int) -> str:
    """Return the URL of a database that does not exist yet."""
    return f"rocksdb:{size}.database"


def zk(stack: ExitStack, place: Path, size: int) -> str:
    """Start an empty ZooKeeper and return its URL."""
    return f"zk://{stack.enter_context(zookeeper.ZookeeperServer(place / f'zk-{size}')).address}"


def etcd_(stack: ExitStack, place: Path, size: int) -> str:
    """Start an empty etcd and return its URL."""
    return f"etcd://{stack.enter_context(etcd.EtcdServer(place / f'etcd-{size}')).address}"


TARGETS: Final[dict[str, Callable[[ExitStack, Path, int], str]]] = {
    "rocksdb": rocksdb,
    "zk": zk,
    "etcd": etcd_,
}


def row(name: str, sizes: list[int], runs: list[Measured]) -> str:
    """Format the line of a step."""
    before = max(len(sizes) - 2, 0)
    more = sizes[-1] - sizes[before] or 1
    micros = (runs[-1].seconds - runs[before].seconds) / more * 1e6
    memory = (runs[-1].peak - runs[before].peak) / more
    codes = {run.code for run in runs} - {0}
    wrong = "".join(f"  exit {code}" for code in codes)
    return f"{name:16}{''.join(map(cell, runs))}{micros:10.0f}{memory:9.1f}{wrong}"


def table(kind: str, sizes: list[int], place: Path) -> None:
    """Measure one kind of target, size by size, and print a line for each step."""
    runs: dict[str, list[Measured]] = {name: [] for name, _ in STEPS}
    for size in sizes:
        with ExitStack() as stack:
            names = {"from": f"snapshot:{size}.ndjson", "target": TARGETS[kind](stack, place, size)}
            for name, command in STEPS:
                words = command.format(size=size, kind=kind, **names).split()
                runs[name].append(measure(words, place, SECONDS))
                print(f"{kind} {size}: {name}{cell(runs[name][-1])}", file=sys.stderr, flush=True)
                if runs[name][-1].code != 0:
                    print((place / "stderr").read_text()[-500:], file=sys.stderr)
    heads = "".join(f"{size:>10}{'MB':>6}" for size in sizes)
    print(f"\n{kind}\n{'step':16}{heads}{'us/value':>10}{'B/value':>9}")
    for name, step_runs in runs.items():
        print(row(name, sizes, step_runs), flush=True)


def main() -> None:
    """Write the snapshots, run the steps, and print a table for each kind of target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copies-") as made:
        place = Path(made)
        for size in options.sizes:
            in_new_process(make_snapshot, place, size)
        for kind in options.targets:
            sizes = [size for size in options.sizes if kind != "zk" or size <= ZOOKEEPER_HOLDS]
            table(kind, sizes, place)


if __name__ == "__main__":
    main()
