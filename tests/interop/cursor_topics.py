"""Topics made on a real broker, to be wounded in cursors, compaction, schemas and offloads, and repaired.

`make` writes what a killed standalone left: a store, a bookie's disk, and the truth of each topic. The states
of cursors lie in ledgers of their own there, but for the topics that were unloaded before (`CLOSED`).
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

from tests.servers.pulsar import PulsarStandalone

PREFIX: Final = "persistent://public/default/"
JAVA: Final = "tests.servers.clients.java"
INSIDE: Final = "tests.interop.wounded_inside"
MESSAGES: Final = 35
# By the places of messages: all before 12, and three behind.
ACKED: Final = [*range(12), 15, 17, 29]
PLAIN: Final = (
    "garbage-record", "cut-record", "empty-record", "garbage-closed", "ledger-gone",
    "ledger-foreign", "offload-begun", "offload-lost", "healthy",
)  # fmt: skip
COMPACTED: Final = ("pointer-closed", "pointer-in-ledger", "compacted-closed", "compacted-in-ledger")
CLOSED: Final = ("garbage-closed", "pointer-closed", "compacted-closed")
# With how many versions of their schema.
SCHEMAS: Final = {"schema-only": 1, "schema-first": 3, "schema-last": 3, "schema-middle": 3}
# Its schema was deleted and registered again: versions 0 and 2 have the same one, 1 says that it is deleted.
TWICE: Final = "schema-twice"
SETTINGS: Final = {
    # The Java client of the tests wants them.
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "10",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
}
KEYS: Final = 7
REMOVED: Final = "k2"


def make(version: str, directory: Path) -> None:
    """Make all topics on a standalone of `version`, kill it, and write what it left to `directory`."""
    with PulsarStandalone(version, settings=SETTINGS) as pulsar:
        for name in PLAIN:
            _plain(pulsar, name)
        for name in COMPACTED:
            _compacted(pulsar, name)
        for name, count in SCHEMAS.items():
            _with_schemas(pulsar, name, count)
        _with_schemas(pulsar, TWICE, 1)
        pulsar.admin("DELETE", f"schemas/public/default/{TWICE}/schema")
        _with_schemas(pulsar, TWICE, 1)
        pulsar.call(f"{INSIDE}:drop_properties", f"{PREFIX}pointer-in-ledger", "__compaction")
        for name in CLOSED:
            pulsar.admin("PUT", f"{path_of(name)}/unload")
        # A second and more after the last write: the bookie flushes every second.
        time.sleep(3)
        pulsar.kill()
        pulsar.save_data(directory)


def path_of(name: str) -> str:
    """Return what comes behind `/admin/v2/` for a topic."""
    return f"persistent/public/default/{name}"


def _plain(pulsar: PulsarStandalone, name: str) -> None:
    topic = PREFIX + name
    for subscription in ("keep", "work"):
        java(pulsar, "subscribe", topic, subscription, {"owner": "team a"})
    java(pulsar, "produce", topic, [{"payload": payload(name, at)} for at in range(MESSAGES)], {})
    java(pulsar, "acknowledge", topic, "work", MESSAGES, ACKED, {})


def _compacted(pulsar: PulsarStandalone, name: str) -> None:
    """A topic that was compacted and trimmed: what its first ledgers had is in the compacted one alone."""
    topic = PREFIX + name
    messages: list[dict[str, Any]] = [
        {"payload": payload(name, at), "key": f"k{at % KEYS}"} for at in range(MESSAGES - 1)
    ]
    # Removes the key: brokers acknowledge it, and what compaction keeps ends before.
    messages.append({"payload": None, "key": REMOVED})
    # Without it ledgers are trimmed as soon as they are full.
    java(pulsar, "subscribe", topic, "keep")
    java(pulsar, "produce", topic, messages, {})
    pulsar.admin("PUT", f"{path_of(name)}/compaction")
    wait(lambda: pulsar.admin("GET", f"{path_of(name)}/compaction")["status"] == "SUCCESS")
    java(pulsar, "produce", topic, [{"payload": payload(name, MESSAGES), "key": "new"}], {})
    pulsar.admin("DELETE", f"{path_of(name)}/subscription/keep?force=true")
    pulsar.call(f"{INSIDE}:trim", topic)
    wait(lambda: len(pulsar.admin("GET", f"{path_of(name)}/internalStats")["ledgers"]) < 3)


def _with_schemas(pulsar: PulsarStandalone, name: str, count: int) -> None:
    pulsar.call(f"{JAVA}:subscribe", pulsar.service_url, PREFIX + name, "keep")
    for number in range(count):
        pulsar.call(
            f"{INSIDE}:produce_records", pulsar.service_url, PREFIX + name, schema(number), records(number)
        )


def schema(number: int) -> str:
    """Return the Avro schema of a version: each has one more field."""
    fields = [{"name": f"f{at}", "type": ["null", "int"], "default": None} for at in range(number + 1)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def records(number: int) -> list[dict[str, int]]:
    """Return what is published with the schema of a version."""
    return [{f"f{at}": 100 * number + 10 * which + at for at in range(number + 1)} for which in range(2)]


def compacted_view(name: str) -> dict[str, bytes]:
    """Return the last message of each key that was not removed."""
    last = {f"k{at % KEYS}": payload(name, at) for at in range(MESSAGES - 1)}
    return {key: value for key, value in last.items() if key != REMOVED} | {"new": payload(name, MESSAGES)}


def payload(name: str, at: int) -> bytes:
    """Return the message at a place of a topic."""
    return f"{name} {at}".encode()


def java(pulsar: PulsarStandalone, function: str, *arguments: object) -> Any:
    """Run one of the Java client's functions in the broker's own JVM."""
    return pulsar.call(f"{JAVA}:{function}", pulsar.service_url, *arguments)


def wait(done: Any, seconds: float = 120) -> None:
    """Return when `done` is; TimeoutError."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(done)
        time.sleep(0.2)
