"""Make a new capture: `python -m tests.servers.capture VERSION DIRECTORY [BOOKIES]`, see docs/captures.md.

Real clients drive a standalone of VERSION through four starts of the broker. Then the standalone is stopped,
and its data and what it reported are written to DIRECTORY in the form of the shipped captures. With one
bookie, it is started once more and killed before its bookie flushes: DIRECTORY-killed. Each run writes other
bytes, because ids, times and payloads differ.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
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
YEAR: Final = 365 * 24 * 3600
DEFAULT: Final = "persistent://public/default"
CODECS: Final = ("none", "lz4", "zlib", "zstd", "snappy")

_ALWAYS: Final = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "50",
}


_LONG_ARRAYS: Final = {"managedLedgerPersistIndividualAckAsLongArray": "true"}
_BUCKETS: Final = {
    "delayedDeliveryTrackerFactoryClassName": (
        "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
    ),
    "delayedDeliveryMinIndexCountPerBucket": "50",
    "delayedDeliveryMaxIndexesPerBucketSnapshotSegment": "20",
}
# Without a flush for ten minutes, everything written stays in the journal.
_NO_FLUSH: Final = {"flushInterval": "600000", "dbStorage_writeCacheMaxSizeMb": "64"}


def _compression(ledgers: str, cursors: str, over: int = 0, cursors_over: int = 0) -> dict[str, str]:
    return {
        "managedLedgerInfoCompressionType": ledgers,
        "managedCursorInfoCompressionType": cursors,
        "managedLedgerInfoCompressionThresholdInBytes": str(over),
        "managedCursorInfoCompressionThresholdInBytes": str(cursors_over),
    }


class Driver:
    """The running cluster and its Java client, with the actions of the steps."""

    def __init__(self, pulsar: PulsarStandalone, java: Jvm) -> None:
        self.pulsar, self.java = pulsar, java
        self.source = random.Random(pulsar.version)

    def produce(
        self, name: str, count: int, subscriptions: tuple[str, ...] = ("keep",), **options: Any
    ) -> None:
        """Publish `count` random messages to a topic with subscriptions that keep its ledgers."""
        topic = name if "://" in name else f"{DEFAULT}/{name}"
        for subscription in subscriptions:
            self.call("subscribe", topic, subscription)
        self.call("produce", topic, [self._message(number) for number in range(count)], options)

    def acknowledge(
        self, name: str, subscription: str, total: int, places: list[int], **options: Any
    ) -> None:
        """Acknowledge the messages at these places among the next `total`."""
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
    """Step 1: no broker metadata, no compression."""
    driver.produce("late-index", 300, batch=10)
    driver.produce("plain-old", 120, ("s1",))


def everything(driver: Driver) -> None:
    """Step 2: broker metadata, ledgers LZ4, cursors ZSTD, no thresholds."""
    driver.produce("late-index", 300, batch=10)
    driver.produce("orders", 1000, ("batch-idx",), batch=20, compression="lz4")
    # A complete entry comes last. Otherwise 4.2.4 does not write partly acknowledged batches
    # (apache/pulsar#26498).
    driver.acknowledge("orders", "batch-idx", 200, [*range(0, 180, 3), *range(180, 200)])
    _schema_and_delays(driver)
    driver.produce("plain", 230)
    for codec in CODECS:
        driver.produce(f"codec-{codec}", 200, compression=codec, batch=13)
        driver.produce(f"codec-{codec}", 20, compression=codec)
    _other_clients(driver)
    driver.produce("chunked", 12, chunk=100)
    # The name has no slash, because 4.0.7 takes "TOPIC-SUBSCRIPTION" for a topic's name and never answers;
    # see `marks`.
    driver.produce("we ird:näme", 46, ("odd name with %2F & ü",), batch=4)
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
    if release(driver.pulsar.version) >= (3, 0):
        _delayed(driver, "delayed-buckets", 400)
    # Not on `marks`, because 4.2.4 could no longer load a compressed cursor with properties, nor its topic.
    driver.acknowledge("fanout", "fan-001", 300, list(range(1, 300, 2)))
    # Wait more than a second after the last write, because the bookie flushes every second.
    time.sleep(4)


def last(driver: Driver) -> None:
    """Step 4: ledgers ZSTD over 256 bytes, cursors LZ4 over 64 bytes."""
    driver.produce("orders", 300, batch=30, compression="zstd")
    driver.produce("plain-old", 20, ("s1",))
    if release(driver.pulsar.version) >= (4, 2):
        _ledger_properties(driver)


def last_words(driver: Driver) -> None:
    """The start after the last step, killed before the bookie flushes, so all data is in the journal."""
    driver.produce("last-words", 550, batch=10)
    driver.produce("orders", 50, batch=10)


STEPS: Final[list[tuple[dict[str, str], Callable[[Driver], None]]]] = [
    (_compression("NONE", "NONE") | {"brokerEntryMetadataInterceptors": ""}, without_broker_metadata),
    (_compression("LZ4", "ZSTD"), everything),
    (_compression("SNAPPY", "ZLIB") | _LONG_ARRAYS, crash),
    (_compression("ZSTD", "LZ4", 256, 64), last),
]


def _schema_and_delays(driver: Driver) -> None:
    """Make a topic with a schema, one with properties, and one with messages that are delayed for a year."""
    texts = [{"payload": f"text {number} ü".encode()} for number in range(30)]
    driver.call("subscribe", f"{DEFAULT}/strings", "keep")
    driver.call("produce", f"{DEFAULT}/strings", texts, {"schema": "STRING"})
    driver.produce("with-properties", 60, batch=10)
    if release(driver.pulsar.version) >= (3, 0):
        driver.admin("PUT", "with-properties", "/properties", {"team": "billing", "x": "y"})
    _delayed(driver, "delayed", 30)


def _delayed(driver: Driver, name: str, count: int) -> None:
    driver.call("subscribe", f"{DEFAULT}/{name}", "later", {}, True)
    driver.produce(name, count, ("later",), delay=YEAR)
    driver.call("subscribe", f"{DEFAULT}/{name}", "later", {}, True)


def _ledger_properties(driver: Driver) -> None:
    """Set ledger properties on `orders` with Pulsar's own API (PIP-404, since 4.2)."""
    topic = f"{DEFAULT}/orders"
    ledgers = [ledger["ledgerId"] for ledger in driver.admin("GET", "orders", "/internalStats")["ledgers"]]
    for ledger, key, value in (
        (ledgers[0], "first-index", "0"),
        (ledgers[1], "a", "one"),
        (ledgers[1], "b", "zwei €"),
        (ledgers[2], "gone", "soon"),
    ):
        driver.pulsar.call("tests.servers.inside:add_ledger_property", topic, ledger, key, value)
    driver.pulsar.call("tests.servers.inside:remove_ledger_property", topic, ledgers[2], "gone")


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
    """Make partitions, other namespaces, a topic without messages, and one whose ledgers are all trimmed."""
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
    """Make a subscription for each form of a cursor's position."""
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
    """Run the steps and write the capture (and with one bookie the killed one). Raises FileExistsError."""
    directory.mkdir(parents=True, exist_ok=True)
    killed = directory.with_name(f"{directory.name}-killed")
    if any(directory.iterdir()) or killed.exists():
        raise FileExistsError(f"{directory} is not empty, or {killed} exists")
    quorums = {f"managedLedgerDefault{name}": str(min(bookies, 2)) for name in ("WriteQuorum", "AckQuorum")}
    fixed = {**_ALWAYS, "managedLedgerDefaultEnsembleSize": str(bookies), **quorums}
    pulsar = PulsarStandalone(version, settings=fixed, bookies=bookies)
    plain = dict(pulsar.settings)
    try:
        for number, (settings, step) in enumerate(STEPS, 1):
            buckets = _BUCKETS if step is crash and release(version) >= (3, 0) else {}
            pulsar.settings = {**plain, **settings, **buckets}
            _run_step(pulsar, number, step, directory)
        pulsar.save_data(directory)
    finally:
        pulsar.close()
    if not pulsar.uses_zookeeper:
        _add_truth_after_revert(version, directory, fixed)
        if bookies == 1:
            _kill_after_last_words(version, directory, killed, fixed)


def _add_truth_after_revert(version: str, directory: Path, fixed: dict[str, str]) -> None:
    """Add the truth of the topics that could not be loaded, after removing compression from all cursors."""
    topics = json.loads((directory / "truth.json").read_text())
    lost = [name for name, topic in topics.items() if isinstance(topic["internalStats"], str)]
    if not lost:
        return
    pulsar = PulsarStandalone(version, data=directory, settings=fixed)
    store = pulsar.store_url
    command = [sys.executable, "-c", "from pulsar_meta.cli.app import main; main()", "compress-cursors"]
    environment = {**os.environ, "XDG_STATE_HOME": str(pulsar.directory / "state")}
    subprocess.run(
        [*command, "--compression", "none", "--yes", "--store", store], env=environment, check=True
    )
    with pulsar:
        again = _truth(pulsar)
    cured = {name: again[name] for name in lost}
    write_json(directory / "truth-after-revert.json", cured)
    print(f"{version}: loads again with plain cursors: {', '.join(lost)}", flush=True)


def _kill_after_last_words(version: str, directory: Path, killed: Path, fixed: dict[str, str]) -> None:
    """Start the capture once more, write and kill it. The next start provides the truth."""
    with PulsarStandalone(version, data=directory, settings={**fixed, **STEPS[-1][0], **_NO_FLUSH}) as pulsar:
        with Jvm(version, heap="1g") as java:
            last_words(Driver(pulsar, java))
        pulsar.kill()
        pulsar.save_data(killed)
        write_metadata(killed / "metadata.ndjson", dump(pulsar))
        pulsar.start()
        write_json(killed / "truth.json", _truth(pulsar))
    print(f"{version}: killed after its last words", flush=True)


def _run_step(pulsar: PulsarStandalone, number: int, step: Callable[[Driver], None], directory: Path) -> None:
    pulsar.start()
    with Jvm(pulsar.version, heap="1g") as java:
        step(Driver(pulsar, java))
        java.call(f"{JAVA}:close")
    if number == len(STEPS):
        write_json(directory / "truth.json", _truth(pulsar))
    # Before 2.11, the metadata is in a ZooKeeper in the same process.
    values = dump(pulsar) if pulsar.uses_zookeeper else None
    pulsar.kill() if step is crash else pulsar.stop()
    suffix = "" if number == len(STEPS) else f"-after-step-{number}" + ("-killed" if step is crash else "")
    write_metadata(directory / f"metadata{suffix}.ndjson", dump(pulsar) if values is None else values)
    print(f"{pulsar.version}: step {number} of {len(STEPS)} done", flush=True)


def _truth(pulsar: PulsarStandalone) -> dict[str, Any]:
    with Jvm(pulsar.version, heap="1g") as java:
        topics = truth.truth_of_topics(pulsar, java)
        java.call(f"{JAVA}:close")
    return topics


def write_json(file: Path, value: object) -> None:
    """Write a JSON file of a capture."""
    file.write_text(json.dumps(value, ensure_ascii=False, sort_keys=True))


def write_metadata(file: Path, values: list[dict[str, Any]]) -> None:
    """Write values in the form of a `snapshot:` store."""
    with file.open("w") as lines:
        for value in values:
            value["value"] = base64.b64encode(value["value"]).decode()
            lines.write(json.dumps(value) + "\n")


def main() -> None:
    """Make the capture."""
    version, directory, *bookies = sys.argv[1:]
    make(version, Path(directory), *map(int, bookies))


if __name__ == "__main__":
    main()
