"""How fast compress-cursors is, and how much memory it takes.

    python bench/rewrite.py                      # 20 000 cursors, against a raw kazoo loop
    python bench/rewrite.py --cursors 100000     # so many
    python bench/rewrite.py --memory 1000000     # peak memory at a million generated cursors

The raw loop only sets the same bytes, 256 requests under way, and looks at nothing; compress-cursors scans,
decodes, packs, checks what it packed, looks at the guards, syncs the undo file and compares-and-sets.
Each gets a fresh tree of the same values. Needs Java, and the package with its extra `zookeeper`.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.jobs.rewrite.apply import Run, Speed
from pulsar_meta.jobs.rewrite.batches import Batches
from pulsar_meta.jobs.rewrite.guards import Guards, Overrides
from pulsar_meta.jobs.rewrite.identity import read_identity
from pulsar_meta.jobs.rewrite.readable import Readers
from pulsar_meta.jobs.rewrite.recompress import Recompression
from pulsar_meta.jobs.rewrite.scope import Scope, select
from pulsar_meta.jobs.rewrite.tally import Tally
from pulsar_meta.jobs.rewrite.undo_file import UndoLog
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.guarded import GuardedStore
from pulsar_meta.stores.paths import is_within
from pulsar_meta.stores.registry import open_store

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


def rewrite(store: Store, undo_file: Path) -> Tally:
    """Run compress-cursors over everything in `store`."""
    undo = UndoLog(undo_file, "compress-cursors", read_identity(store))
    run, batches = Run(Guards.of(store, Overrides(), Readers()), undo, Speed()), Batches(store, 64)
    try:
        return run.apply(((v, RULE(v)) for v in batches.ahead(select(store, Scope(), "cursor"))), RULE)
    finally:
        undo.close()


class GeneratedStore(GuardedStore):
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

    def scan(self, prefix: str = "/") -> Iterator[Versioned]:
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


def fill(address: str, count: int) -> None:
    """Create the cursors."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=30)
    client.start()
    for topic in range(min(TOPICS, count)):
        client.ensure_path(path(topic).rpartition("/")[0])
    pending = deque(
        client.create_async(path(number), cursor(number)) for number in range(min(IN_FLIGHT, count))
    )
    for number in range(IN_FLIGHT, count):
        pending.popleft().get()
        pending.append(client.create_async(path(number), cursor(number)))
    for one in pending:
        one.get()
    client.stop()
    client.close()


def raw_loop(address: str, values: list[tuple[str, bytes]]) -> float:
    """Set the same bytes with nothing around it; return the seconds."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=address, timeout=30)
    client.start()
    begun = time.perf_counter()
    rest = iter(values)
    pending = deque(client.set_async(where, value) for where, value in islice(rest, IN_FLIGHT))
    while pending:
        pending.popleft().get()
        for where, value in islice(rest, 1):
            pending.append(client.set_async(where, value))
    seconds = time.perf_counter() - begun
    client.stop()
    client.close()
    return seconds


def on_zookeeper(count: int) -> dict[str, object]:
    """Return cursors a second of both, each on a server of its own."""
    # The server is that of the tests.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.servers.zookeeper import ZookeeperServer

    with tempfile.TemporaryDirectory() as name, ZookeeperServer(Path(name)) as server:
        fill(server.address, count)
        begun = time.perf_counter()
        with open_store(f"zk://{server.address}?timeout=60", read_only=False) as store:
            tally = rewrite(store, Path(name) / "undo.ndjson")
        ours = time.perf_counter() - begun
        with open_store(f"zk://{server.address}?timeout=60") as store:
            values = [(value.path, value.value) for value in select(store, Scope(), "cursor")]
    with tempfile.TemporaryDirectory() as name, ZookeeperServer(Path(name)) as server:
        fill(server.address, count)
        raw = raw_loop(server.address, values)
    if tally.rewritten != count or len(values) != count:
        raise SystemExit(f"rewrote {tally.rewritten} of {count}")
    return {
        "cursors": count,
        "compress_cursors_per_second": round(count / ours),
        "raw_sets_per_second": round(count / raw),
        "ratio": round(raw / ours, 2),
    }


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
    parser.add_argument("--memory", type=int, default=0)
    asked = parser.parse_args()
    if asked.memory:
        print(json.dumps(in_memory(asked.memory)))
    if asked.cursors or not asked.memory:
        print(json.dumps(on_zookeeper(asked.cursors or 20_000)))


if __name__ == "__main__":
    main()
