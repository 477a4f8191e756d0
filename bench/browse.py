"""Measure how long `browse` takes until its first screen, compared with `--version` and `ls`.

    python -m bench.browse                            # 1 000 000 values of RocksDB
    python -m bench.browse --values 100000 --stores rocksdb zk etcd

The program runs in a terminal of 80 by 24 characters. Its screen is complete when the root's children are
drawn. The stores are those of `tests/large_store.py`; `zk` and `etcd` are real servers that are filled first.
The table shows the fastest of several rounds in wall-clock time. Start-up and imports are included; compare
with `--version` to see how much they are.
"""

from __future__ import annotations

import argparse
import os
import pty
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from fcntl import ioctl
from itertools import islice
from pathlib import Path
from termios import TIOCSWINSZ

from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.registry import open_store
from tests.large_store import topics_for, values, write_rocksdb
from tests.servers import etcd, zookeeper

MAIN = (sys.executable, "-c", "from pulsar_meta.cli.app import main; main()")
# The last child of the root.
DRAWN = b"managed-ledgers"


def first_screen(words: Sequence[str], drawn: bytes) -> float:
    """Start a program in a terminal, wait until it has written `drawn`, and end it; return the seconds."""
    our_end, program_end = pty.openpty()
    ioctl(program_end, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    begun, output = time.monotonic(), b""
    program = subprocess.Popen(
        [*MAIN, *words],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(program_end)
    while drawn not in output:
        output += os.read(our_end, 65536)
    seconds = time.monotonic() - begun
    os.write(our_end, b"q")
    # Reading from a terminal whose last process has ended fails with EIO.
    with suppress(OSError):
        while os.read(our_end, 65536):
            pass
    os.close(our_end)
    program.wait()
    return seconds


def fill(url: str, topics: int) -> str:
    """Write the values to an empty store and return its URL."""
    with open_store(url, read_only=False) as store:
        remaining = values(topics)
        while group := list(islice(remaining, 1000)):
            store.put_many([(path, value, ABSENT) for path, value in group])
    return url


def store_of(kind: str, topics: int, place: Path, stack: ExitStack) -> str:
    """Create a store of this kind, write the values to it, and return its URL."""
    if kind == "rocksdb":
        return write_rocksdb(place / "rocksdb", topics)
    if kind == "zk":
        return fill(f"zk://{stack.enter_context(zookeeper.ZookeeperServer(place / 'zk')).address}", topics)
    return fill(f"etcd://{stack.enter_context(etcd.EtcdServer(place / 'etcd')).address}", topics)


def main() -> None:
    """Create the stores, start the program several times, and print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--stores", nargs="+", default=["rocksdb"], choices=["rocksdb", "zk", "etcd"])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    version = min(first_screen(["--version"], b"pulsar-meta") for _ in range(options.rounds))
    print(f"{'--version':40}{version:6.2f} s")
    for kind in options.stores:
        with tempfile.TemporaryDirectory(prefix="browse-") as made, ExitStack() as stack:
            url = store_of(kind, topics_for(options.values), Path(made), stack)
            for command in ("ls", "browse"):
                words = [command, "--store", url]
                seconds = min(first_screen(words, DRAWN) for _ in range(options.rounds))
                print(f"{command:8}{kind:8} {options.values:10} values      {seconds:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
