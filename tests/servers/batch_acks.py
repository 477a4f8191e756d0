"""Make captures of partly acknowledged batches: `python -m tests.servers.batch_acks VERSION DIRECTORY`.

The capture is made in two starts. DIRECTORY/killed has the states of cursors in cursor ledgers, because the
broker was killed; DIRECTORY/closed has them in the records. The truth of each is what the next broker
reported: `internalStats` and the bit sets of the batches in its memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.servers.capture import DEFAULT, JAVA, Driver, write_json, write_metadata
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone

TOPIC: Final = f"{DEFAULT}/acked"
BATCH: Final = 70
ENTRIES: Final = 40
TOTAL: Final = BATCH * ENTRIES
SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "15",
}
LONG_ARRAYS: Final = {"managedLedgerPersistIndividualAckAsLongArray": "true"}
# The places of acknowledged messages. A complete entry comes last, see `capture.everything`.
WHOLE: Final = list(range(TOTAL - BATCH, TOTAL))
CHOSEN: Final[Mapping[str, list[int]]] = {
    "some": [*range(0, 600, 3), *WHOLE],
    "all-but-one": [*(place for place in range(5 * BATCH) if place % BATCH != 64), *WHOLE],
    "in-pieces": [*range(BATCH - 1, -1, -1), *range(BATCH, 2 * BATCH, 2), *WHOLE],
    "ends": [*(entry * BATCH for entry in range(ENTRIES)), *range(BATCH - 1, TOTAL, BATCH), *WHOLE],
}


def make(version: str, directory: Path, settings: Mapping[str, str] | None = None) -> None:
    """Write both captures. Raises FileExistsError if one exists."""
    pulsar = PulsarStandalone(version, settings={**SETTINGS, **(settings or {})})
    with pulsar, Jvm(version, heap="512m") as java:
        acknowledge(Driver(pulsar, java))
        java.call(f"{JAVA}:close")
        # Wait more than a second after the last write, because the bookie flushes every second.
        time.sleep(3)
        pulsar.kill()
        save(pulsar, directory / "killed")
        pulsar.start()
        write_json(directory / "killed" / "truth.json", truth_of(pulsar))
        pulsar.stop()
        save(pulsar, directory / "closed")
        pulsar.start()
        write_json(directory / "closed" / "truth.json", truth_of(pulsar))


def acknowledge(driver: Driver) -> None:
    """Publish the batches and acknowledge parts of them, one subscription after the other."""
    driver.produce("acked", TOTAL, (*CHOSEN, "inside"), batch=BATCH)
    for subscription, places in CHOSEN.items():
        driver.acknowledge("acked", subscription, TOTAL, places)
    driver.acknowledge("acked", "inside", 200, [150], cumulative=True)


def save(pulsar: PulsarStandalone, directory: Path) -> None:
    """Write the data that the stopped or killed standalone left."""
    directory.mkdir(parents=True)
    pulsar.save_data(directory)
    write_metadata(directory / "metadata.ndjson", dump(pulsar))


def truth_of(pulsar: PulsarStandalone) -> dict[str, Any]:
    """Return what a broker that has just started reports about the topic's cursors."""
    # This request makes the broker load the topic.
    stats = pulsar.admin("GET", f"{TOPIC.replace('://', '/')}/internalStats")
    acks = {name: pulsar.call("tests.servers.inside:batch_acks", TOPIC, name) for name in (*CHOSEN, "inside")}
    return {TOPIC: {"internalStats": stats, "batchAcks": acks}}


def main() -> None:
    """Make the captures. With a third argument, acknowledgements are stored as long arrays."""
    version, directory, *long_arrays = sys.argv[1:]
    make(version, Path(directory), LONG_ARRAYS if long_arrays else None)


if __name__ == "__main__":
    main()
