"""How long `browse` takes from its start to its first screen, by the clock, beside `--version` and `ls`.

    python -m bench.browse                            # 1 000 000 values of RocksDB
    python -m bench.browse --values 100000 --stores rocksdb zk etcd

The program runs in a terminal of 80 by 24 characters; the screen is there when the root's children are drawn.
The stores are those of `tests/large_store.py`; `zk` and `etcd` are real servers that are filled first. The
least of several rounds is shown: the start of Python and the imports are in it, which `--version` has, too.
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
# The last of the root's children.
DRAWN = b"managed-ledgers"


def first_screen(words: Sequence[str], drawn: bytes) -> float:
    """Return the seconds until a program in a terminal has written something; it is ended then."""
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    begun, seen = time.monotonic(), b""
    program = subprocess.Popen(
        [*MAIN, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm-256color"},
    )
    os.close(theirs)
    while drawn not in seen:
        seen += os.read(ours, 65536)
    taken = time.monotonic() - begun
    os.write(ours, b"q")
    # A terminal whose last user has gone answers with EIO.
    with suppress(OSError):
        while os.read(ours, 65536):
            pass
    os.close(ours)
    program.wait()
    return taken


def filled(url: str, topics: int) -> str:
    """Write the values into an empty store; return its URL."""
    with open_store(url, read_only=False) as store:
        waiting = values(topics)
        while some := list(islice(waiting, 1000)):
            store.put_many([(path, value, ABSENT) for path, value in some])
    return url


def store_of(kind: str, topics: int, place: Path, stack: ExitStack) -> str:
    """Return the URL of a store of that kind with the values in it."""
    if kind == "rocksdb":
        return write_rocksdb(place / "rocksdb", topics)
    if kind == "zk":
        return filled(f"zk://{stack.enter_context(zookeeper.ZookeeperServer(place / 'zk')).address}", topics)
    return filled(f"etcd://{stack.enter_context(etcd.EtcdServer(place / 'etcd')).address}", topics)


def main() -> None:
    """Make the stores, start the program a few times, print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--stores", nargs="+", default=["rocksdb"], choices=["rocksdb", "zk", "etcd"])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    version = min(first_screen(["--version"], b"pulsar-meta") for _ in range(asked.rounds))
    print(f"{'--version':40}{version:6.2f} s")
    for kind in asked.stores:
        with tempfile.TemporaryDirectory(prefix="browse-") as made, ExitStack() as stack:
            url = store_of(kind, topics_for(asked.values), Path(made), stack)
            for command in ("ls", "browse"):
                words = [command, "--store", url]
                taken = min(first_screen(words, DRAWN) for _ in range(asked.rounds))
                print(f"{command:8}{kind:8} {asked.values:10} values      {taken:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
