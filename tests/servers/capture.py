"""Make a new capture: `python -m tests.servers.capture VERSION DIRECTORY [BOOKIES]`.

A standalone of VERSION is driven by real clients through four starts of the broker and stopped; its
bytes and what it said of them are written to DIRECTORY in the form of the shipped captures
(`bookie0/`, `rocksdb/`, `metadata*.ndjson`, `truth.json`). The steps and the topics are those of the
shipped ones, smaller: see STEPS. Each run writes other bytes (ids, times, payloads of the clients).

Missing against the shipped captures: the topics `strings` (schema), `delayed`, `delayed-buckets` and
`with-properties` (`marks` has a subscription with properties); ledger properties through Pulsar's own
API; the second start that is killed (`-killed`); the truth after reverting (`truth-after-revert.json`).
"""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.servers import truth
from tests.servers.clients import programs
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone, release

JAVA: Final = "tests.servers.clients.java"
DEFAULT: Final = "persistent://public/default"
CODECS: Final = ("none", "lz4", "zlib", "zstd", "snappy")

_ALWAYS: Final = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "50",
}


def _compression(ledgers: str, cursors: str, over: int = 0, cursors_over: int = 0) -> dict[str, str]:
    return {
        "managedLedgerInfoCompressionType": ledgers,
        "managedCursorInfoCompressionType": cursors,
        "managedLedgerInfoCompressionThresholdInBytes": str(over),
        "managedCursorInfoCompressionThresholdInBytes": str(cursors_over),
    }


class Driver:
    """The cluster under way and its Java client; what the steps do to it."""

    def __init__(self, pulsar: PulsarStandalone, java: Jvm) -> None:
        self.pulsar, self.java = pulsar, java
        self.source = random.Random(pulsar.version)

    def produce(
        self, name: str, count: int, subscriptions: tuple[str, ...] = ("keep",), **options: Any
    ) -> None:
        """Publish `count` random messages to a topic, with subscriptions that keep its ledgers."""
        topic = name if "://" in name else f"{DEFAULT}/{name}"
        for subscription in subscriptions:
            self.call("subscribe", topic, subscription)
        self.call("produce", topic, [self._message(number) for number in range(count)], options)

    def acknowledge(
        self, name: str, subscription: str, total: int, places: list[int], **options: Any
    ) -> None:
        """Acknowledge the messages at these places of the next `total`."""
        self.call("acknowledge", f"{DEFAULT}/{name}", subscription, total, places, options)

    def call(self, function: str, *arguments: object) -> Any:
        return self.java.call(f"{JAVA}:{function}", self.pulsar.service_url, *arguments)

    def admin(self, method: str, topic: str, what: str = "", body: object = None) -> Any:
        full = topic if "://" in topic else f"{DEFAULT}/{topic}"
        return self.pulsar.admin(method, truth.admin_path(full) + what, body)

    def _message(self, number: int) -> dict[str, Any]:
        source = self.source
        return {
            "payload": source.choice([b"", b"x" * 300, source.randbytes(source.randrange(60))]),
            "key": f"k{number % 16}" if number % 3 else None,
            "properties": {"region": source.choice(["eu", "us", "apac"])} if number % 2 else {},
            "event_time": 1_700_000_000_000 + number if number % 4 == 0 else 0,
        }


def without_broker_metadata(driver: Driver) -> None:
    """Step 1: no broker metadata, nothing compressed."""
    driver.produce("late-index", 300, batch=10)
    driver.produce("plain-old", 120, ("s1",))


def everything(driver: Driver) -> None:
    """Step 2: broker metadata; ledgers LZ4, cursors ZSTD, no thresholds."""
    driver.produce("late-index", 300, batch=10)
    driver.produce("orders", 1000, ("batch-idx",), batch=20, compression="lz4")
    driver.acknowledge("orders", "batch-idx", 200, list(range(0, 200, 3)))
    driver.produce("plain", 230)
    for codec in CODECS:
        driver.produce(f"codec-{codec}", 200, compression=codec, batch=13)
        driver.produce(f"codec-{codec}", 20, compression=codec)
    _other_clients(driver)
    driver.produce("chunked", 12, chunk=100)
    driver.produce("we ird:näme", 46, ("odd/name with %2F & ü",), batch=4)
    _odd_places(driver)
    for how in ("commit", "abort", "commit"):
        driver.produce("txn", 40, batch=8, transaction=how)
    keys = driver.java.call(f"{JAVA}:make_keys", str(driver.pulsar.directory))
    driver.produce("encrypted", 40, batch=5, compression="lz4", public_key=keys["public_key"])
    driver.produce("terminated", 120, batch=10)
    driver.admin("POST", "terminated", "/terminate")
    driver.produce("compacted", 200, batch=10)
    _compact(driver)
    _marks(driver)
    for number in range(60):
        driver.call("subscribe", f"{DEFAULT}/fanout", f"fan-{number:03}")
    driver.produce("fanout", 300)
    for number in range(0, 60, 3):
        driver.acknowledge("fanout", f"fan-{number:03}", 40, list(range(0, 40, 1 + number % 5)))


def crash(driver: Driver) -> None:
    """Step 3: ledgers SNAPPY, cursors ZLIB, acknowledgements as long arrays; killed after a flush."""
    driver.produce("orders", 200, batch=20, compression="zstd")
    # Not on `marks`: 4.2.4 cannot load a compressed cursor with properties any more, nor its topic.
    driver.acknowledge("fanout", "fan-001", 300, list(range(1, 300, 2)))
    # A second and more after the last write: the bookie flushes every second.
    time.sleep(4)


def last(driver: Driver) -> None:
    """Step 4: ledgers ZSTD over 256 bytes, cursors LZ4 over 64 bytes."""
    driver.produce("orders", 300, batch=30, compression="zstd")
    driver.produce("plain-old", 20, ("s1",))


STEPS: Final[list[tuple[dict[str, str], Callable[[Driver], None]]]] = [
    (_compression("NONE", "NONE") | {"brokerEntryMetadataInterceptors": ""}, without_broker_metadata),
    (_compression("LZ4", "ZSTD"), everything),
    (_compression("SNAPPY", "ZLIB") | {"managedLedgerPersistIndividualAckAsLongArray": "true"}, crash),
    (_compression("ZSTD", "LZ4", 256, 64), last),
]


def _other_clients(driver: Driver) -> None:
    url = driver.pulsar.service_url
    for codec in ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"):
        driver.call("subscribe", f"{DEFAULT}/cpp-{codec.lower()}", "keep")
        programs.produce_cpp(url, f"{DEFAULT}/cpp-{codec.lower()}", codec, 15, 180)
    reason = programs.why_no_go()
    if reason:
        print(f"no go-* topics: {reason}", file=sys.stderr)
        return
    for codec in ("NONE", "LZ4", "ZLib", "ZSTD"):
        driver.call("subscribe", f"{DEFAULT}/go-{codec.lower()}", "keep")
        programs.produce_go(url, f"{DEFAULT}/go-{codec.lower()}", codec, 15, 200)


def _odd_places(driver: Driver) -> None:
    """Partitions, other namespaces, a topic without messages, one whose ledgers are all trimmed."""
    driver.pulsar.admin("PUT", "persistent/public/default/parted/partitions", 3)
    for number in range(3):
        driver.produce(f"parted-partition-{number}", 50 + 30 * number, batch=10)
    for namespace in ("a.b-c_d=e", "zero"):
        driver.pulsar.admin("PUT", f"namespaces/public/{namespace}", {})
    driver.produce("persistent://public/a.b-c_d=e/t.1-2", 20, batch=5)
    driver.produce("persistent://public/zero/trimmed", 100, ("all",))
    options = {"cumulative": True}
    driver.call("acknowledge", "persistent://public/zero/trimmed", "all", 100, [99], options)
    driver.call("subscribe", f"{DEFAULT}/empty", "nobody")


def _compact(driver: Driver) -> None:
    driver.admin("PUT", "compacted", "/compaction")
    deadline = time.monotonic() + 60
    while driver.admin("GET", "compacted", "/compaction")["status"] != "SUCCESS":
        if time.monotonic() > deadline:
            raise TimeoutError("compaction does not end")
        time.sleep(0.2)


def _marks(driver: Driver) -> None:
    """A subscription for each way in which a cursor can stand."""
    total = 1000
    topic, properties = f"{DEFAULT}/marks", {"owner": "team a", "ü": "ß", "empty": ""}
    for name in ("holes", "half", "cumulative", "untouched", "done", "first-open", "odd/name with %2F & ü"):
        driver.call("subscribe", topic, name)
    if release(driver.pulsar.version) >= (2, 9):
        driver.call("subscribe", topic, "with-properties", properties)
    driver.produce("marks", total, batch=4)
    driver.acknowledge("marks", "holes", total, sorted(driver.source.sample(range(total), 100)))
    driver.acknowledge("marks", "half", total, list(range(0, total, 2)))
    driver.acknowledge("marks", "cumulative", 700, [699], cumulative=True)
    driver.acknowledge("marks", "done", total, [total - 1], cumulative=True)
    driver.acknowledge("marks", "first-open", total, list(range(1, total)))
    driver.acknowledge("marks", "odd/name with %2F & ü", 10, [0, 9])


def make(version: str, directory: Path, bookies: int = 1) -> None:
    """Run the steps and write the capture; FileExistsError if `directory` is not empty."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    quorums = {f"managedLedgerDefault{name}": str(min(bookies, 2)) for name in ("WriteQuorum", "AckQuorum")}
    fixed = {**_ALWAYS, "managedLedgerDefaultEnsembleSize": str(bookies), **quorums}
    pulsar = PulsarStandalone(version, settings=fixed, bookies=bookies)
    with_metadata = dict(pulsar.settings)
    try:
        for number, (settings, step) in enumerate(STEPS, 1):
            pulsar.settings = {**with_metadata, **settings}
            _run_step(pulsar, number, step, directory)
        pulsar.save_data(directory)
    finally:
        pulsar.close()


def _run_step(pulsar: PulsarStandalone, number: int, step: Callable[[Driver], None], directory: Path) -> None:
    pulsar.start()
    with Jvm(pulsar.version, heap="1g") as java:
        step(Driver(pulsar, java))
        if number == len(STEPS):
            told = truth.told(pulsar, java)
            (directory / "truth.json").write_text(json.dumps(told, ensure_ascii=False, sort_keys=True))
        java.call(f"{JAVA}:close")
    # Before 2.11 the metadata is in ZooKeeper, which is in the same process.
    values = dump(pulsar) if pulsar.uses_zookeeper else None
    pulsar.kill() if step is crash else pulsar.stop()
    suffix = "" if number == len(STEPS) else f"-after-step-{number}" + ("-killed" if step is crash else "")
    with (directory / f"metadata{suffix}.ndjson").open("w") as file:
        for value in dump(pulsar) if values is None else values:
            value["value"] = base64.b64encode(value["value"]).decode()
            file.write(json.dumps(value) + "\n")
    print(f"{pulsar.version}: step {number} of {len(STEPS)} done", flush=True)


def main() -> None:
    """Make the capture that the command line asks for."""
    version, directory, *bookies = sys.argv[1:]
    make(version, Path(directory), *map(int, bookies))


if __name__ == "__main__":
    main()
