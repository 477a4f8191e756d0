"""Measure how fast compress-cursors is and how much memory it needs.

    python -m bench.rewrite                      # 20 000 cursors, against a raw kazoo loop, in five turns
    python -m bench.rewrite --turns 1            # in one turn
    python -m bench.rewrite --cursors 100000     # more cursors
    python -m bench.rewrite --memory 1000000     # peak memory for a million generated cursors
    python -m bench.rewrite --stores zk etcd oxia rocksdb dir --cursors 5000    # each store, goal 0.8

The raw loop only sets the same bytes, with 256 requests in flight. compress-cursors scans, decodes,
compresses, verifies, checks the guards, syncs the undo file, and writes with compare-and-set. Both get a new
server with the same values, alternately; the ratio is that of the medians. This needs Java.

With --stores, compress-cursors is compared with the slower of two others on each store. `writes`: the same
client sends the same bytes in groups, with as many in flight as the command has (RocksDB: a synced batch per
group; a directory: each file written, synced and renamed). `loop`: our own loop without a store, on values in
memory, which are decoded, compressed, verified and hashed, with undo records on disk. Each runs on all values
and on a tenth; the difference is the time of nine tenths without start-up. `with_start` is the ratio on all
values, including the start of the process that decides.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.jobs.rewrite.apply import GROUP_VALUES, chunks
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.rules import Recompression
from pulsar_meta.jobs.rewrite.run import Listener, Terms, rewrite_values, run
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT, Store, Versioned, is_within
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import MetaValue
from pulsar_meta.stores.rocksdb_writer import create_database

IN_FLIGHT = 256
TOPICS = 100
RULE = Recompression("cursor", "zstd", threshold=256)


def cursor(number: int, ranges: int = 200) -> bytes:
    """Build a cursor with holes, of about 4 kB."""
    chance = random.Random(number)
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=number + 1, markDeleteEntryId=0)
    entry = 0
    for _ in range(ranges):
        added = info.individualDeletedMessages.add()
        entry += chance.randrange(2, 50)
        added.lowerEndpoint.ledgerId = added.upperEndpoint.ledgerId = number + 1
        added.lowerEndpoint.entryId = entry
        entry += chance.randrange(1, 50)
        added.upperEndpoint.entryId = entry
    return info.SerializeToString()


def path(number: int) -> str:
    """Return the path of cursor `number`."""
    return f"/managed-ledgers/bench/ns/persistent/topic-{number % TOPICS}/cursor-{number}"


def rewrite(store: Store, undo_file: Path) -> Summary:
    """Run compress-cursors on everything in `store`."""
    cursors = rewrite_values("compress-cursors", lambda: select(store, Scope(), "cursor"), RULE)
    return run(store, cursors, Terms(undo_file=undo_file), Listener()).summary


class GeneratedStore(Store):
    """A store of `count` cursors, generated when they are read. Writes are discarded."""

    def __init__(self, count: int) -> None:
        self.url, self.writable, self.count = "generated:", True, count
        self.templates = [cursor(number, 30) for number in range(16)]

    def read(self, path: str) -> Versioned:
        """Raise NotFoundError, because there are no other values."""
        raise NotFoundError(f"nothing at {path}", source=self.url)

    def children(self, path: str) -> list[str]:
        """Return no children, so that there are no owners and no brokers."""
        return []

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Generate the cursors one at a time."""
        for number in range(self.count):
            if is_within(path(number), prefix):
                yield Versioned(path(number), self.templates[number % 16], 0)

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Discard the value."""
        return expected + 1

    def delete(self, path: str, expected: int) -> None:
        """Is never called."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""


def fill(address: str, values: list[tuple[str, bytes]]) -> None:
    """Create the cursors."""
    with connected(address) as client:
        for parent in {path.rpartition("/")[0] for path, _ in values}:
            client.ensure_path(parent)
        pipelined(values, client.create_async)


def raw_loop(address: str, values: list[tuple[str, bytes]]) -> float:
    """Set the same bytes without any other work; return the seconds."""
    with connected(address) as client:
        begun = time.perf_counter()
        pipelined(values, client.set_async)
        return time.perf_counter() - begun


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Open a kazoo client."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=30)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def pipelined(values: list[tuple[str, bytes]], send: Callable[[str, bytes], Any]) -> None:
    """Send all values with IN_FLIGHT requests at once, and wait for the answers."""
    remaining = iter(values)
    pending = deque(send(*value) for value in islice(remaining, IN_FLIGHT))
    while pending:
        pending.popleft().get()
        pending.extend(send(*value) for value in islice(remaining, 1))


def on_zookeeper(count: int, turns: int) -> dict[str, object]:
    """Measure both on a new server each turn; return cursors per second, from the median of `turns`."""
    values = [(path(number), cursor(number)) for number in range(count)]
    compressed = [(name, wrap_envelope(value, RULE.codec)) for name, value in values]
    # The command line does the same after loading its modules: the garbage collector skips existing objects.
    gc.freeze()
    command_seconds, raw_seconds = [], []
    for _ in range(turns):
        command_seconds.append(on_fresh_server(values, partial(timed_rewrite, count=count)))
        raw_seconds.append(on_fresh_server(values, lambda address, folder: raw_loop(address, compressed)))
    return {
        "cursors": count,
        "turns": turns,
        "compress_cursors_per_second": round(count / median(command_seconds)),
        "raw_sets_per_second": round(count / median(raw_seconds)),
        "ratio": round(median(raw_seconds) / median(command_seconds), 2),
        "ratio_of_each_turn": [
            round(raw / command, 2) for command, raw in zip(command_seconds, raw_seconds, strict=True)
        ],
    }


def on_fresh_server(values: list[tuple[str, bytes]], work: Callable[[str, Path], float]) -> float:
    """Run `work` on a new server that contains `values`, and return its result."""
    # Uses the server of the tests.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.servers.zookeeper import ZookeeperServer

    with tempfile.TemporaryDirectory() as name, ZookeeperServer(Path(name)) as server:
        fill(server.address, values)
        return work(server.address, Path(name))


def timed_rewrite(address: str, folder: Path, count: int) -> float:
    """Compress everything and return the seconds."""
    begun = time.perf_counter()
    with open_store(f"zk://{address}?timeout=60", read_only=False) as store:
        tally = rewrite(store, folder / "undo.ndjson")
    if tally.rewritten != count:
        raise SystemExit(f"rewrote {tally.rewritten} of {count}")
    return time.perf_counter() - begun


Values = list[tuple[str, bytes]]


class ValuesInMemory(Store):
    """A store that costs nothing, because its values are in memory."""

    def __init__(self, values: Values) -> None:
        self.url, self.writable = "memory:", True
        self.values = {path: Versioned(path, value, 0) for path, value in values}

    def read(self, path: str) -> Versioned:
        """Return a value."""
        if path not in self.values:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self.values[path]

    def children(self, path: str) -> list[str]:
        """Return no children, so that there are no owners and no brokers."""
        return []

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield all values."""
        yield from list(self.values.values())

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Store the value."""
        self.values[path] = Versioned(path, value, expected + 1)
        return expected + 1

    def delete(self, path: str, expected: int) -> None:
        """Is never called."""
        raise NotImplementedError

    def close(self) -> None:
        """Do nothing."""


def new_store(kind: str, stack: ExitStack, place: Path) -> str:
    """Create a new store and return its URL."""
    # Uses the servers of the tests.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.servers import etcd, oxia, zookeeper

    if kind in ("rocksdb", "dir"):
        if kind == "rocksdb":
            create_database(place / "store", "rocksdb:")
        return f"{kind}:{place / 'store'}"
    servers: dict[str, Any] = {
        "zk": zookeeper.ZookeeperServer,
        "etcd": etcd.EtcdServer,
        "oxia": oxia.OxiaServer,
    }
    return f"{kind}://{stack.enter_context(servers[kind](place / 'server')).address}"


def fill_store(url: str, values: Values) -> None:
    """Create the values."""
    with open_store(url, read_only=False) as store:
        for group in chunks(values, GROUP_VALUES):
            store.put_many([(path, value, ABSENT) for path, value in group])


def compress(url: str, values: Values, folder: Path) -> float:
    """Run compress-cursors and return the seconds, including opening and closing the store."""
    begun = time.perf_counter()
    with open_store(url, read_only=False) as store:
        tally = rewrite(store, folder / "undo.ndjson")
    if tally.rewritten != len(values):
        raise SystemExit(f"rewrote {tally.rewritten} of {len(values)}")
    return time.perf_counter() - begun


def write_prepared(url: str, values: Values, folder: Path) -> float:
    """Overwrite the values with prepared bytes and return the seconds."""
    compressed_values = [(path, wrap_envelope(value, RULE.codec)) for path, value in values]
    kind, _, place = url.partition(":")
    if kind == "zk":
        return raw_loop(place.removeprefix("//"), compressed_values)
    if kind == "rocksdb":
        return raw_batches(place, compressed_values)
    if kind == "dir":
        return raw_files(Path(place), compressed_values)
    with open_store(url, read_only=False) as store:
        versions = {stored.path: stored.version for stored in store.scan("/")}
        begun = time.perf_counter()
        for group in chunks(compressed_values, GROUP_VALUES):
            if None in store.put_many([(path, value, versions[path]) for path, value in group]):
                raise SystemExit("a prepared write met a conflict")
        return time.perf_counter() - begun


def raw_batches(database: str, values: Values) -> float:
    """Write groups with rocksdict alone, each synced, and return the seconds."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    begun = time.perf_counter()
    opened, synced = Rdict(database, Options(raw_mode=True)), WriteOptions()
    synced.sync = True
    for group in chunks(values, GROUP_VALUES):
        batch = WriteBatch(raw_mode=True)
        for path, value in group:
            batch.put(path.encode(), MetaValue(1, 1, 1, 1, False, value).encode())
        opened.write(batch, synced)
    opened.close()
    return time.perf_counter() - begun


def raw_files(root: Path, values: Values) -> float:
    """Replace files one after the other, each synced, and return the seconds."""
    begun = time.perf_counter()
    for path, value in values:
        folder = root / path[1:]
        with (folder / "new").open("wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        (folder / "new").replace(folder / ".value")
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return time.perf_counter() - begun


def loop_in_memory(values: Values, folder: Path) -> float:
    """Run compress-cursors on values in memory and return the seconds."""
    store = ValuesInMemory(values)
    begun = time.perf_counter()
    rewrite(store, folder / "undo.ndjson")
    return time.perf_counter() - begun


def on_each_store(kinds: list[str], count: int, turns: int) -> Iterator[dict[str, object]]:
    """Measure all three on each kind of store; yield cursors per second and the ratio.

    Each runs on all values and on a tenth, alternately. The result is the difference of the best times.
    """
    values = [(path(number), cursor(number)) for number in range(count)]
    gc.freeze()
    for kind in kinds:
        rounds = [(seconds_on(kind, values[: count // 10]), seconds_on(kind, values)) for _ in range(turns)]
        tenth, complete = (
            {name: min(run[name] for run in each) for name in each[0]} for each in zip(*rounds, strict=True)
        )
        speeds = {name: round((count - count // 10) / (complete[name] - tenth[name])) for name in complete}
        command_speed = speeds.pop("compress_cursors")
        yield {
            "store": kind,
            "cursors": count,
            "compress_cursors": command_speed,
            **speeds,
            "ratio_to_the_slower": round(command_speed / min(speeds.values()), 2),
            "with_start": round(max(complete["writes"], complete["loop"]) / complete["compress_cursors"], 2),
            "goal": 0.8,
        }


def seconds_on(kind: str, values: Values) -> dict[str, float]:
    """Measure each of the three on a new store and return their seconds."""
    with tempfile.TemporaryDirectory() as name:
        seconds = {"loop": loop_in_memory(values, Path(name))}
    for name, work in (("compress_cursors", compress), ("writes", write_prepared)):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            url = new_store(kind, stack, Path(folder))
            fill_store(url, values)
            seconds[name] = work(url, values, Path(folder))
    return seconds


def in_memory(count: int) -> dict[str, object]:
    """Rewrite generated cursors; return the peak memory and the seconds."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        tally = rewrite(GeneratedStore(count), Path(name) / "undo.ndjson")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "cursors": count,
        "rewritten": tally.rewritten,
        "peak_mib": round(peak),
        "seconds": round(time.perf_counter() - begun, 1),
    }


def main() -> None:
    """Print a line of JSON for each benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cursors", type=int, default=0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--stores", nargs="+", choices=["zk", "etcd", "oxia", "rocksdb", "dir"])
    options = parser.parse_args()
    if options.stores:
        for line in on_each_store(options.stores, options.cursors or 5_000, options.turns):
            print(json.dumps(line), flush=True)
        return
    if options.memory:
        print(json.dumps(in_memory(options.memory)))
    if options.cursors or not options.memory:
        print(json.dumps(on_zookeeper(options.cursors or 20_000, options.turns)))


if __name__ == "__main__":
    main()
