"""Make a capture of scalable topics: `python -m tests.servers.scalable DIRECTORY`, see docs/captures.md.

Pulsar 5's own client drives a standalone: topics are created, split, merged and migrated, with odd names and
in transactions. DIRECTORY is stopped in order; DIRECTORY-running is killed while producers, consumers and an
open transaction exist. The truth of a segment has the form of `tests.servers.truth` under the segment's name,
and also the client's facts about every message when it was published.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.servers.capture import write_json, write_metadata
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone

VERSION: Final = "5.0.0-M1"
V4: Final = "tests.servers.clients.java"
V5: Final = "tests.servers.clients.java_v5"
DEFAULT: Final = "public/default"
# Requested names, and the names that 5.0.0-M1 makes of them. Its REST call keeps a name encoded as in a URL.
ODD: Final = {
    "od%20d:näme": "od%20d:n%C3%A4me",
    "we ird.n.ä~me*": "we%20ird.n.%C3%A4~me*",
    "a.b-c_d=e": "a.b-c_d=e",
}
SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "transactionCoordinatorScalableTopicsEnabled": "true",
    "transactionCoordinatorScalableTopicsGcRetentionSeconds": "86400",
    "scalableTopicAutoScaleEnabled": "false",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "8",
    # Acknowledged messages are kept, because the truth has them.
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
# Only ledger infos are compressed, because this broker can't load compressed cursors with properties.
COMPRESSED: Final = {
    "managedLedgerInfoCompressionType": "ZSTD",
    "managedLedgerInfoCompressionThresholdInBytes": "256",
}


class Driver:
    """The running cluster, its clients, and every position that a producer received."""

    def __init__(self, pulsar: PulsarStandalone, java: Jvm) -> None:
        self.pulsar, self.java = pulsar, java
        self.source = random.Random(VERSION)
        self.sent: dict[str, list[dict[str, int]]] = {}

    def admin(self, call: str, *arguments: object) -> None:
        self.java.call(f"{V5}:admin", self.pulsar.admin_url, call, *arguments)

    def create(self, name: str, segments: int, properties: dict[str, str] | None = None) -> None:
        self.admin("createScalableTopic", name, segments, *([properties] if properties else []))

    def produce(self, name: str, count: int, **options: Any) -> None:
        """Publish to `topic://NAME`."""
        messages = [self._message(number) for number in range(count)]
        positions = self._v5("produce", name, messages, {"admin": self.pulsar.admin_url, **options})
        self.sent.setdefault(f"topic://{name}", []).extend(positions)

    def consume(self, name: str, subscription: str, kind: str, total: int, **options: Any) -> None:
        """Receive the first messages of `topic://NAME` and acknowledge some."""
        self._v5("consume", name, subscription, {"kind": kind, "total": total, **options})

    def v4(self, function: str, topic: str, *arguments: object) -> Any:
        return self.java.call(f"{V4}:{function}", self.pulsar.service_url, topic, *arguments)

    def publish_v4(self, topic: str, count: int, batch: int) -> None:
        """Publish to a topic before its migration."""
        self.v4("produce", topic, [self._message(number) for number in range(count)], {"batch": batch})

    def _v5(self, function: str, name: str, *arguments: object) -> Any:
        return self.java.call(f"{V5}:{function}", self.pulsar.service_url, f"topic://{name}", *arguments)

    def _message(self, number: int) -> dict[str, Any]:
        source = self.source
        return {
            "payload": source.choice([b"", b"x" * 300, source.randbytes(source.randrange(60))]),
            "key": f"k{source.randrange(1000)}",
            "properties": {"region": source.choice(["eu", "us", "apac"])} if number % 2 else {},
            "event_time": 1_700_000_000_000 + number if number % 4 == 0 else 0,
        }


def first(driver: Driver) -> None:
    """The first start: every topic, with its splits and merges."""
    _created(driver)
    _split_and_merged(driver)
    _migrated(driver)
    _odd_names(driver)
    _transactions(driver)


def second(driver: Driver) -> None:
    """The second start: more ledgers in every active segment, compressed lists, and another split."""
    for name in ("created", "split", "merged", "moved", "parted", "both", *ODD.values()):
        driver.produce(f"{DEFAULT}/{name}", 40, batch=4)
    driver.admin("splitSegment", f"{DEFAULT}/moved", 1)
    driver.produce(f"{DEFAULT}/moved", 40, batch=4)
    driver.produce(f"{DEFAULT}/txn", 20, batch=4, transaction="commit")


def running(driver: Driver) -> None:
    """The third start: clients and a transaction that are open when everything is killed."""
    name = f"{DEFAULT}/split"
    driver.produce(name, 20, batch=4, keep=True)
    driver.consume(name, "stream", "stream", 30, acknowledge=[19], keep=True)
    driver.consume(name, "queue", "queue", 30, acknowledge=list(range(0, 30, 2)), keep=True)
    driver.produce(f"{DEFAULT}/txn", 12, batch=3, transaction="open", keep=True)
    driver.consume(f"{DEFAULT}/txn", "audit", "queue", 10, acknowledge=[1, 3], transaction=True, keep=True)


def _created(driver: Driver) -> None:
    name = f"{DEFAULT}/created"
    driver.create(name, 3, {"team": "billing", "ü": "ß"})
    driver.produce(name, 150, batch=5)
    driver.consume(name, "stream", "stream", 60, acknowledge=[39])
    driver.consume(name, "queue/odd %2F ü", "queue", 150, acknowledge=list(range(0, 150, 3)))
    driver.create(f"{DEFAULT}/empty", 2)
    driver.v4("subscribe", f"persistent://{DEFAULT}/both", "keep")
    driver.publish_v4(f"persistent://{DEFAULT}/both", 30, 5)
    driver.create(f"{DEFAULT}/both", 2)
    driver.produce(f"{DEFAULT}/both", 40, batch=4)


def _split_and_merged(driver: Driver) -> None:
    name = f"{DEFAULT}/split"
    driver.create(name, 1)
    driver.produce(name, 60, batch=4)
    driver.consume(name, "before", "queue", 60, acknowledge=list(range(50)))
    driver.produce(name, 60, batch=4, split=0)
    driver.produce(name, 60, split=2)
    name = f"{DEFAULT}/merged"
    driver.create(name, 2)
    driver.produce(name, 60, batch=4)
    driver.admin("mergeSegments", name, 0, 1)
    driver.produce(name, 60, batch=4, split=2)
    # An ordered subscription gets the children only after their parents are acknowledged.
    driver.consume(name, "stream", "stream", 80, acknowledge=[69])


def _migrated(driver: Driver) -> None:
    for name, partitions in (("moved", 0), ("parted", 2)):
        old = f"persistent://{DEFAULT}/{name}"
        if partitions:
            driver.pulsar.admin("PUT", f"persistent/{DEFAULT}/{name}/partitions", partitions)
        driver.v4("subscribe", old, "keep")
        driver.publish_v4(old, 80, 5)
        driver.v4("acknowledge", old, "keep", 80, list(range(30)), {})
        driver.admin("migrateToScalable", f"{DEFAULT}/{name}", False)
        driver.produce(f"{DEFAULT}/{name}", 60, batch=4)


def _odd_names(driver: Driver) -> None:
    for requested, name in ODD.items():
        driver.create(f"{DEFAULT}/{requested}", 1)
        driver.produce(f"{DEFAULT}/{name}", 24, batch=4, split=0)
        driver.consume(f"{DEFAULT}/{name}", "odd/name with %2F & ü", "queue", 10, acknowledge=[0, 9])
    # This one has its own name. By the REST call, this broker would create its segment under another,
    # unusable one.
    driver.pulsar.call("tests.servers.inside_v5:create", f"topic://{DEFAULT}/lost näme", 1)
    driver.pulsar.admin("PUT", "namespaces/public/a.b-c_d=e", {})
    driver.create("public/a.b-c_d=e/t.1-2", 2)
    driver.produce("public/a.b-c_d=e/t.1-2", 24, batch=4)


def _transactions(driver: Driver) -> None:
    name = f"{DEFAULT}/txn"
    driver.create(name, 2)
    driver.consume(name, "audit", "queue", 0)
    for how in ("commit", "abort", "commit"):
        driver.produce(name, 20, batch=4, transaction=how)
    driver.produce(name, 20, batch=4, transaction="commit", split=0)
    driver.produce(name, 12, batch=4)


STEPS: Final[tuple[tuple[dict[str, str], Callable[[Driver], None]], ...]] = (
    ({}, first),
    (COMPRESSED, second),
)


def make(directory: Path) -> None:
    """Write DIRECTORY and DIRECTORY-running. Raises FileExistsError if one of them is not empty."""
    alive = directory.with_name(f"{directory.name}-running")
    for folder in (directory, alive):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FileExistsError(f"{folder} is not empty")
    pulsar = PulsarStandalone(VERSION, settings=SETTINGS)
    plain, sent = dict(pulsar.settings), dict[str, list[dict[str, int]]]()
    try:
        for number, (settings, step) in enumerate(STEPS, 1):
            pulsar.settings = {**plain, **settings}
            _run(pulsar, step, sent)
            if number == len(STEPS):
                write_json(directory / "truth.json", truth_of(pulsar, sent))
            pulsar.stop()
            suffix = "" if number == len(STEPS) else f"-after-step-{number}"
            write_metadata(directory / f"metadata{suffix}.ndjson", dump(pulsar))
            print(f"{VERSION}: step {number} of {len(STEPS)} done", flush=True)
        pulsar.save_data(directory)
        _kill_while_running(pulsar, alive, sent)
    finally:
        pulsar.close()


def _run(
    pulsar: PulsarStandalone, step: Callable[[Driver], None], sent: dict[str, list[dict[str, int]]]
) -> None:
    pulsar.start()
    with Jvm(VERSION, heap="1g") as java:
        driver = Driver(pulsar, java)
        driver.sent = sent
        step(driver)
        java.call(f"{V5}:close")
        java.call(f"{V4}:close")


def _kill_while_running(pulsar: PulsarStandalone, alive: Path, sent: dict[str, list[dict[str, int]]]) -> None:
    """Kill the cluster while clients are connected. The next start provides the truth."""
    pulsar.start()
    with Jvm(VERSION, heap="1g") as java:
        driver = Driver(pulsar, java)
        driver.sent = sent
        running(driver)
        # Wait more than a second after the last write, because the bookie flushes every second.
        time.sleep(4)
        pulsar.kill()
    pulsar.save_data(alive)
    write_metadata(alive / "metadata.ndjson", dump(pulsar))
    pulsar.start()
    write_json(alive / "truth.json", truth_of(pulsar, sent))
    print(f"{VERSION}: killed under its clients", flush=True)


def truth_of(pulsar: PulsarStandalone, sent: dict[str, list[dict[str, int]]]) -> dict[str, Any]:
    """Return the truth by name: a scalable topic's record and sent messages, and the facts of a segment."""
    truth: dict[str, Any] = pulsar.call("tests.servers.inside_v5:records")
    segments = {name for topic in truth.values() for name in topic["segments"].values() if "näme" not in name}
    others = [topic for topic in pulsar.admin("GET", f"persistent/{DEFAULT}") if "/__" not in topic]
    for topic, record in truth.items():
        record["sent"] = sent.get(topic, [])
    with Jvm(VERSION, heap="1g") as java:
        for name in sorted({*segments, *others}):
            # A client connects first, because a broker that has just started owns no bundle until a client
            # needs it.
            messages = java.call(f"{V4}_reader:read_all", pulsar.service_url, name)
            truth[name] = {**pulsar.call("tests.servers.inside_v5:internals", name), "messages": messages}
        java.call(f"{V4}:close")
    return truth


def main() -> None:
    """Make the capture."""
    make(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
