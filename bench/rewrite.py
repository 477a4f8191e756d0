"""How fast compress-cursors is, and how much memory it takes.

    python -m bench.rewrite                      # 20 000 cursors, against a raw kazoo loop, in five turns
    python -m bench.rewrite --turns 1            # in one
    python -m bench.rewrite --cursors 100000     # so many
    python -m bench.rewrite --memory 1000000     # peak memory at a million generated cursors
    python -m bench.rewrite --stores zk etcd oxia rocksdb dir --cursors 5000    # each store, goal 0.8

The raw loop only sets the same bytes, 256 requests under way, and looks at nothing; compress-cursors scans,
decodes, packs, checks what it packed, looks at the guards, syncs the undo file and compares-and-sets.
Each gets a fresh server with a tree of the same values, in turns; the ratio is of the medians. Needs Java.

With --stores: how near compress-cursors comes to the slower of two, for each store. `writes`: the same client
sends the same bytes in groups, as many under way as the command has (RocksDB: a synced batch a group; a
directory: each file written, synced and renamed). `loop`: our own loop without a store, values kept in
memory: decoded, packed, checked, hashed, undo records on the disk. Each runs over all values and over a
tenth; the difference is what the other nine tenths take, so that start-up is not counted (`with_start`: the
ratio over all values, the start of the process that decides included).
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
from pulsar_meta.jobs.rewrite.apply import GROUP_VALUES
from pulsar_meta.jobs.rewrite.batches import chunks
from pulsar_meta.jobs.rewrite.decision import Summary
from pulsar_meta.jobs.rewrite.rules import Recompression
from pulsar_meta.jobs.rewrite.run import Listener, Terms, rewrite_values, run
from pulsar_meta.jobs.topics.scope import Scope, select
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import ABSENT, BaseStore, Store, Versioned, is_within
from pulsar_meta.stores.registry import open_store
from pulsar_meta.stores.rocksdb import MetaValue
from pulsar_meta.stores.rocksdb_writer import create_database

IN_FLIGHT = 256
TOPICS = 100
RULE = Recompression("cursor", "zstd", threshold=256)


def cursor(number: int, ranges: int = 200) -> bytes:
    """Return a cursor with holes, about 4 kB of it."""
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
    """Return where cursor `number` lies."""
    return f"/managed-ledgers/bench/ns/persistent/topic-{number % TOPICS}/cursor-{number}"


def rewrite(store: Store, undo_file: Path) -> Summary:
    """Run compress-cursors over everything in `store`."""
    cursors = rewrite_values("compress-cursors", lambda: select(store, Scope(), "cursor"), RULE)
    return run(store, cursors, Terms(undo_file=undo_file), Listener()).summary


class GeneratedStore(BaseStore):
    """As many cursors as wished, made when they are read; what is written is forgotten."""

    def __init__(self, count: int) -> None:
        self.url, self.writable, self.count = "generated:", True, count
        self.templates = [cursor(number, 30) for number in range(16)]

    def read(self, path: str) -> Versioned:
        """There is nothing else."""
        raise NotFoundError(f"nothing at {path}", source=self.url)

    def children(self, path: str) -> list[str]:
        """No owners, no brokers."""
        return []

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Make the cursors one by one."""
        for number in range(self.count):
            if is_within(path(number), prefix):
                yield Versioned(path(number), self.templates[number % 16], 0)

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Forget it."""
        return expected + 1

    def delete(self, path: str, expected: int) -> None:
        """Never asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to let go of."""


def fill(address: str, values: list[tuple[str, bytes]]) -> None:
    """Create the cursors."""
    with connected(address) as client:
        for parent in {where.rpartition("/")[0] for where, _ in values}:
            client.ensure_path(parent)
        pipelined(values, client.create_async)


def raw_loop(address: str, values: list[tuple[str, bytes]]) -> float:
    """Set the same bytes with nothing around it; return the seconds."""
    with connected(address) as client:
        begun = time.perf_counter()
        pipelined(values, client.set_async)
        return time.perf_counter() - begun


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Give a client of kazoo's own."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=30)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def pipelined(values: list[tuple[str, bytes]], send: Callable[[str, bytes], Any]) -> None:
    """Send all, so many under way at once, and wait for the answers."""
    rest = iter(values)
    pending = deque(send(*value) for value in islice(rest, IN_FLIGHT))
    while pending:
        pending.popleft().get()
        pending.extend(send(*value) for value in islice(rest, 1))


def on_zookeeper(count: int, turns: int) -> dict[str, object]:
    """Return cursors a second of both, the median of so many turns, each on a server of its own."""
    values = [(path(number), cursor(number)) for number in range(count)]
    packed = [(where, wrap_envelope(value, RULE.codec)) for where, value in values]
    # As the command line does when it has loaded its modules: what stays is not looked at again and again.
    gc.freeze()
    ours, raw = [], []
    for _ in range(turns):
        ours.append(on_fresh_server(values, partial(timed_rewrite, count=count)))
        raw.append(on_fresh_server(values, lambda address, folder: raw_loop(address, packed)))
    return {
        "cursors": count,
        "turns": turns,
        "compress_cursors_per_second": round(count / median(ours)),
        "raw_sets_per_second": round(count / median(raw)),
        "ratio": round(median(raw) / median(ours), 2),
        "ratio_of_each_turn": [round(there / here, 2) for here, there in zip(ours, raw, strict=True)],
    }


def on_fresh_server(values: list[tuple[str, bytes]], work: Callable[[str, Path], float]) -> float:
    """Return what `work` measures on a server that holds `values`."""
    # The server is that of the tests.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.servers.zookeeper import ZookeeperServer

    with tempfile.TemporaryDirectory() as name, ZookeeperServer(Path(name)) as server:
        fill(server.address, values)
        return work(server.address, Path(name))


def timed_rewrite(address: str, folder: Path, count: int) -> float:
    """Compress everything; return the seconds."""
    begun = time.perf_counter()
    with open_store(f"zk://{address}?timeout=60", read_only=False) as store:
        tally = rewrite(store, folder / "undo.ndjson")
    if tally.rewritten != count:
        raise SystemExit(f"rewrote {tally.rewritten} of {count}")
    return time.perf_counter() - begun


Values = list[tuple[str, bytes]]


class Kept(BaseStore):
    """Values in memory: a store that costs nothing."""

    def __init__(self, values: Values) -> None:
        self.url, self.writable = "kept:", True
        self.held = {where: Versioned(where, value, 0) for where, value in values}

    def read(self, path: str) -> Versioned:
        """Return what was kept."""
        if path not in self.held:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self.held[path]

    def children(self, path: str) -> list[str]:
        """No owners, no brokers."""
        return []

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield all."""
        yield from list(self.held.values())

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Keep it."""
        self.held[path] = Versioned(path, value, expected + 1)
        return expected + 1

    def delete(self, path: str, expected: int) -> None:
        """Never asked for."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to let go of."""


def opened(kind: str, stack: ExitStack, place: Path) -> str:
    """Return the URL of a fresh store."""
    # The servers are those of the tests.
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


def filled(url: str, values: Values) -> None:
    """Create the values."""
    with open_store(url, read_only=False) as store:
        for group in chunks(values, GROUP_VALUES):
            store.put_many([(where, value, ABSENT) for where, value in group])


def compressed(url: str, values: Values, folder: Path) -> float:
    """Run compress-cursors; return the seconds, those of opening and closing too."""
    begun = time.perf_counter()
    with open_store(url, read_only=False) as store:
        tally = rewrite(store, folder / "undo.ndjson")
    if tally.rewritten != len(values):
        raise SystemExit(f"rewrote {tally.rewritten} of {len(values)}")
    return time.perf_counter() - begun


def prepared(url: str, values: Values, folder: Path) -> float:
    """Write prepared bytes over what is there; return the seconds."""
    packed = [(where, wrap_envelope(value, RULE.codec)) for where, value in values]
    kind, _, place = url.partition(":")
    if kind == "zk":
        return raw_loop(place.removeprefix("//"), packed)
    if kind == "rocksdb":
        return raw_batches(place, packed)
    if kind == "dir":
        return raw_files(Path(place), packed)
    with open_store(url, read_only=False) as store:
        versions = {seen.path: seen.version for seen in store.scan("/")}
        begun = time.perf_counter()
        for group in chunks(packed, GROUP_VALUES):
            if None in store.put_many([(where, value, versions[where]) for where, value in group]):
                raise SystemExit("a prepared write met a conflict")
        return time.perf_counter() - begun


def raw_batches(database: str, values: Values) -> float:
    """Write groups by rocksdict alone, each synced; return the seconds."""
    from rocksdict import Options, Rdict, WriteBatch, WriteOptions

    begun = time.perf_counter()
    opened, synced = Rdict(database, Options(raw_mode=True)), WriteOptions()
    synced.sync = True
    for group in chunks(values, GROUP_VALUES):
        batch = WriteBatch(raw_mode=True)
        for where, value in group:
            batch.put(where.encode(), MetaValue(1, 1, 1, 1, False, value).encode())
        opened.write(batch, synced)
    opened.close()
    return time.perf_counter() - begun


def raw_files(root: Path, values: Values) -> float:
    """Replace files, each on the disk before the next; return the seconds."""
    begun = time.perf_counter()
    for where, value in values:
        folder = root / where[1:]
        with (folder / "new").open("wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        (folder / "new").replace(folder / ".value")
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
    return time.perf_counter() - begun


def looped(values: Values, folder: Path) -> float:
    """Run compress-cursors over values in memory; return the seconds."""
    store = Kept(values)
    begun = time.perf_counter()
    rewrite(store, folder / "undo.ndjson")
    return time.perf_counter() - begun


def on_each_store(kinds: list[str], count: int, turns: int) -> Iterator[dict[str, object]]:
    """Yield for each kind of store cursors a second of all three, and the ratio.

    All values and a tenth of them, in turns, the best of each; the difference is what nine tenths take.
    """
    values = [(path(number), cursor(number)) for number in range(count)]
    gc.freeze()
    for kind in kinds:
        rounds = [(taken(kind, values[: count // 10]), taken(kind, values)) for _ in range(turns)]
        few, all_ = (
            {what: min(one[what] for one in each) for what in each[0]} for each in zip(*rounds, strict=True)
        )
        speeds = {what: round((count - count // 10) / (all_[what] - few[what])) for what in all_}
        ours = speeds.pop("compress_cursors")
        yield {
            "store": kind,
            "cursors": count,
            "compress_cursors": ours,
            **speeds,
            "ratio_to_the_slower": round(ours / min(speeds.values()), 2),
            "with_start": round(max(all_["writes"], all_["loop"]) / all_["compress_cursors"], 2),
            "goal": 0.8,
        }


def taken(kind: str, values: Values) -> dict[str, float]:
    """Return the seconds that each of the three takes, each on a fresh store."""
    with tempfile.TemporaryDirectory() as name:
        seconds = {"loop": looped(values, Path(name))}
    for what, work in (("compress_cursors", compressed), ("writes", prepared)):
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            url = opened(kind, stack, Path(name))
            filled(url, values)
            seconds[what] = work(url, values, Path(name))
    return seconds


def in_memory(count: int) -> dict[str, object]:
    """Return the peak memory of a run over generated cursors, and how long it took."""
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
    """Print a line of JSON for each benchmark asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cursors", type=int, default=0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--stores", nargs="+", choices=["zk", "etcd", "oxia", "rocksdb", "dir"])
    asked = parser.parse_args()
    if asked.stores:
        for line in on_each_store(asked.stores, asked.cursors or 5_000, asked.turns):
            print(json.dumps(line), flush=True)
        return
    if asked.memory:
        print(json.dumps(in_memory(asked.memory)))
    if asked.cursors or not asked.memory:
        print(json.dumps(on_zookeeper(asked.cursors or 20_000, asked.turns)))


if __name__ == "__main__":
    main()
