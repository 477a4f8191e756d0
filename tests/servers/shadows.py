"""Make a capture of shadow topics: `python -m tests.servers.shadows VERSION DIRECTORY`, see docs/captures.md.

It has sources, then their shadows, then more messages in the sources while no broker has the shadows loaded,
so their records are old. The truth is what a broker reports after loading all of them again.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.servers import truth
from tests.servers.capture import DEFAULT, JAVA, Driver, write_json, write_metadata
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone

SOURCE: Final = "PULSAR.SHADOW_SOURCE"
SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "30",
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}
# Each shadow, and its source as it is stored.
SHADOWS: Final = {
    "shadow": f"{DEFAULT}/source",
    "of-short": "source",
    "of-shadow": f"{DEFAULT}/shadow",
    "of-deleted": f"{DEFAULT}/deleted",
    "of-terminated": f"{DEFAULT}/terminated",
    "of-trimmed": "persistent://public/trimming/trimmed",
}
TRIMMED: Final = SHADOWS["of-trimmed"]


def make(version: str, directory: Path) -> dict[str, Any]:
    """Write the capture and return its truth. Raises FileExistsError."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    pulsar = PulsarStandalone(version, settings=SETTINGS)
    with pulsar, Jvm(version, heap="512m") as java:
        driver = Driver(pulsar, java)
        before(driver)
        for shadow, source in SHADOWS.items():
            driver.admin("PUT", shadow, "", {SOURCE: source})
        create_partitioned(driver, "of-parted", 2, f"{DEFAULT}/parted")
        driver.call("subscribe", f"{DEFAULT}/shadow", "own")
        driver.acknowledge("shadow", "own", 70, [0, 1, 2, 5, *range(20, 40)])
        for shadow in (*SHADOWS, "of-parted"):
            driver.admin("PUT", shadow, "/unload")
        after(driver)
        pulsar.stop()
        pulsar.save_data(directory)
        write_metadata(directory / "metadata.ndjson", dump(pulsar))
        pulsar.start()
        topics = truth.truth_of_topics(pulsar, java)
        java.call(f"{JAVA}:close")
    write_json(directory / "truth.json", topics)
    return topics


def before(driver: Driver) -> None:
    """Publish the messages that the shadows see when they are created."""
    driver.pulsar.admin("PUT", "namespaces/public/trimming", {})
    kept = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    driver.pulsar.admin("POST", "namespaces/public/trimming/retention", kept)
    driver.pulsar.admin("PUT", "persistent/public/default/parted/partitions", 2)
    for name in ("source", "deleted", "terminated", "parted-partition-0", "parted-partition-1", TRIMMED):
        driver.produce(name, 45)
        driver.produce(name, 30, batch=3)


def after(driver: Driver) -> None:
    """Publish more messages, and delete, terminate and trim sources."""
    for name in ("source", "terminated", "parted-partition-1", TRIMMED):
        driver.produce(name, 50)
    driver.admin("POST", "terminated", "/terminate")
    driver.admin("DELETE", "deleted", "?force=true")
    driver.call("acknowledge", TRIMMED, "keep", 100, [99], {"cumulative": True})
    driver.produce(TRIMMED, 10)
    driver.admin("POST", TRIMMED, "/trim")


def create_partitioned(driver: Driver, name: str, partitions: int, source: str) -> None:
    """Create a partitioned shadow, as createShadowTopic does, and load each partition once."""
    metadata = {"partitions": partitions, "properties": {SOURCE: source}}
    path = truth.admin_path(f"{DEFAULT}/{name}")
    request = urllib.request.Request(
        f"{driver.pulsar.admin_url}/admin/v2/{path}/partitions",
        json.dumps(metadata).encode(),
        {"Content-Type": "application/vnd.partitioned-topic-metadata+json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=60).close()
    for number in range(partitions):
        driver.call("subscribe", f"{DEFAULT}/{name}-partition-{number}", "own")


def main() -> None:
    """Make the capture."""
    version, directory = sys.argv[1:]
    make(version, Path(directory))


if __name__ == "__main__":
    main()
