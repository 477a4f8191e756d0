"""Make a capture of two clusters that replicate: `python -m tests.servers.replicated VERSION DIRECTORY`.

DIRECTORY gets `west` and `east`, the data on the bookie's disk of a killed standalone each, and `truth.json`.
By cluster and topic, it has the ledgers, and the mark-delete position and ledger of each subscription.
Messages are published in the west, and for `orders` also in the east. The subscriptions were created in the
west, and all except `plain` are replicated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.servers.pulsar import PulsarStandalone

CLUSTERS: Final = ("west", "east")
ORDERS, BILLS = "persistent://geo/ns/orders", "persistent://geo/ns/bills"
# (topic, subscription, replicated): the number of acknowledged messages out of five.
SUBSCRIPTIONS: Final = {
    (ORDERS, "billing/a", True): 5,
    (ORDERS, "plain", False): 5,
    (BILLS, "audit", True): 5,
    (BILLS, "ship", True): 3,
}
ROUNDS, MESSAGES = 10, 5
# Longer than a snapshot takes, so that there is one in each round.
PAUSE: Final = 1.2
SETTINGS: Final = {
    "replicatedSubscriptionsSnapshotFrequencyMillis": "500",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "40",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
    "brokerDeduplicationEnabled": "true",
    "brokerDeduplicationEntriesInterval": "10",
}


def make(version: str, directory: Path) -> dict[str, Any]:
    """Write the capture and return its truth. Raises FileExistsError."""
    with _pair(version) as pair:
        _exchange(pair)
        truth = {
            name: {topic: _facts(cluster, topic) for topic in (ORDERS, BILLS)}
            for name, cluster in pair.items()
        }
        for name, cluster in pair.items():
            cluster.kill()
            cluster.save_data(directory / name)
    (directory / "truth.json").write_text(json.dumps(truth, indent=1))
    return truth


@contextmanager
def _pair(version: str) -> Iterator[dict[str, PulsarStandalone]]:
    """Start two clusters that know each other, with a namespace in both."""
    west, east = (
        PulsarStandalone(version, settings={**SETTINGS, "clusterName": name}, heap="512m")
        for name in CLUSTERS
    )
    with west, east:
        pair = dict(zip(CLUSTERS, (west, east), strict=True))
        for own, other in ((west, "east"), (east, "west")):
            places = {"serviceUrl": pair[other].admin_url, "brokerServiceUrl": pair[other].service_url}
            own.admin("PUT", f"clusters/{other}", places)
            own.admin("PUT", "tenants/geo", {"allowedClusters": CLUSTERS, "adminRoles": []})
            own.admin("PUT", "namespaces/geo/ns", {"replication_clusters": CLUSTERS})
        yield pair


def _exchange(pair: dict[str, PulsarStandalone]) -> None:
    import pulsar as client

    logger = client.ConsoleLogger(client.LoggerLevel.Error)
    west, east = (client.Client(pair[name].service_url, logger=logger) for name in CLUSTERS)
    earliest = client.InitialPosition.Earliest
    consumers = {
        west.subscribe(
            topic, name, initial_position=earliest, replicate_subscription_state_enabled=replicated
        ): count
        for (topic, name, replicated), count in SUBSCRIPTIONS.items()
    }
    producers = [west.create_producer(topic, batching_enabled=False) for topic in (ORDERS, BILLS)]
    producers.append(east.create_producer(ORDERS, batching_enabled=False))
    for number in range(ROUNDS):
        for producer in producers:
            for at in range(MESSAGES if producer is not producers[-1] else 1):
                producer.send(f"{number} {at}".encode())
        time.sleep(PAUSE)
        for consumer, count in consumers.items():
            for _ in range(count):
                consumer.acknowledge(consumer.receive(60_000))
    time.sleep(3 * PAUSE)
    west.close()
    east.close()


def _facts(cluster: PulsarStandalone, topic: str) -> dict[str, Any]:
    stats = cluster.admin("GET", f"{topic.replace('://', '/')}/internalStats")
    return {
        "ledgers": [ledger["ledgerId"] for ledger in stats["ledgers"]],
        "cursors": {
            name: {"position": cursor["markDeletePosition"], "ledger": cursor["cursorLedger"]}
            for name, cursor in stats["cursors"].items()
        },
    }


def main() -> None:
    """Make the capture."""
    version, directory = sys.argv[1:]
    make(version, Path(directory))


if __name__ == "__main__":
    main()
