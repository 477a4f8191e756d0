"""What of a store is no part of a copy: what sessions, brokers, bookies and servers make by themselves.

Sources: apache/pulsar LoadManager.java, LoadDataStore, ModularLoadManagerImpl (`/loadbalance`),
PulsarLedgerIdGenerator.java, DistributedIdGenerator.java, MigrationState.java; apache/bookkeeper
DiscoveryLayer (`available`), ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.jobs.values.counters import IDGEN, IDGEN_LONG, PRODUCER_NAMES
from pulsar_meta.stores.base import ABSENT, Store, Versioned, is_within

EPHEMERAL: Final = "live as long as the session of a broker or bookie"
NUMBERED: Final = "nodes that only count; the counters are moved forward apart"
# What lies at and below a path, and why it stays out.
LEFT_OUT: Final[dict[str, str]] = {
    "/zookeeper": "ZooKeeper's own nodes",
    "/loadbalance": "load of brokers and bundles, which brokers measure anew",
    IDGEN: NUMBERED,
    PRODUCER_NAMES: NUMBERED,
    f"{LEDGERS}/available": "bookies that run, which register by themselves",
    f"{LEDGERS}/underreplication/locks": "held by replicators at work",
    f"{LEDGERS}/underreplication/auditorelection": "votes of bookies that run",
    "/pulsar/migration-coordinator": "the state of a move of the other store (PIP-454)",
}
# Where BookKeeper's own driver for ZooKeeper expects bookies, and makes no node but theirs.
REGISTRIES: Final = (f"{LEDGERS}/available", f"{LEDGERS}/available/readonly")
# Below these, people keep their settings.
KEPT: Final = ("/loadbalance/resource-quota",)


def why_left_out(held: Versioned) -> str | None:
    """Return why a value is no part of a copy, None where it is."""
    if held.ephemeral:
        return EPHEMERAL
    path = held.path
    if path == "/":
        return "the root itself"
    if path.startswith(f"{IDGEN_LONG}/") and path.count("/") > IDGEN_LONG.count("/") + 1:
        return NUMBERED
    for place, why in LEFT_OUT.items():
        if is_within(path, place) and not any(is_within(path, kept) for kept in KEPT):
            return why
    return None


def copied(store: Store) -> Iterator[Versioned]:
    """Yield the values of a store that are part of a copy, as the store scans them."""
    return (held for held in store.scan() if why_left_out(held) is None)


def registries(store: Store) -> list[Versioned]:
    """Return the nodes without which no bookie starts in a store that has BookKeeper's metadata.

    Source: apache/bookkeeper ZKRegistrationManager.java (initNewCluster, doRegisterBookie).
    """
    return [Versioned(path, b"", ABSENT) for path in REGISTRIES] if store.needs_parents else []
