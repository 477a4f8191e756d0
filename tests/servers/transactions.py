"""Make a capture of transactions: `python -m tests.servers.transactions VERSION DIRECTORY [batched|killed]`.

It has committed, aborted and open transactions over several ledgers and two restarts, acknowledgements in
transactions, and what the broker reports after the second restart: the usual truth.json with `transactions`
in it. `batched` has the logs of the coordinator and of pending acknowledgements in batches, and snapshots of
the transaction buffer in segments; otherwise there is one record per entry and one snapshot per topic.
`killed` has the data that a SIGKILL after the second step left, and the truth of the next start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.servers import truth
from tests.servers.capture import write_metadata
from tests.servers.jvm import Jvm
from tests.servers.metadata import dump
from tests.servers.pulsar import PulsarStandalone

CLIENT: Final = "tests.servers.clients.java_transactions"
INSIDE: Final = "tests.servers.transactions_inside"
TOPIC: Final = "persistent://public/default/money"
ACKED: Final = "persistent://public/default/acked"
PLAIN: Final = "persistent://public/default/plain"
# Two aborted transactions per segment: (size - 8 - length of the topic's name) / 3.
_SEGMENT_SIZE: Final = 8 + len(TOPIC) + 6
SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "transactionBufferSnapshotMaxTransactionCount": "3",
    "transactionBufferSnapshotMinTimeInMillis": "1000",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "managedLedgerMaxEntriesPerLedger": "12",
    # By default as many threads as cores. If a topic and its subscription have the same thread, the recovery
    # of the topic's transactions never ends (apache/pulsar#24401).
    "numTransactionReplayThreadPoolSize": "32",
}
_BATCHED: Final = {
    "transactionBufferSegmentedSnapshotEnabled": "true",
    "transactionBufferSnapshotSegmentSize": str(_SEGMENT_SIZE),
    "transactionLogBatchedWriteEnabled": "true",
    "transactionLogBatchedWriteMaxDelayInMillis": "50",
    "transactionPendingAckBatchedWriteEnabled": "true",
    "transactionPendingAckBatchedWriteMaxDelayInMillis": "50",
}
# A killed bookie has not flushed, so its entries are in the journal.
_NO_FLUSH: Final = {"flushInterval": "600000", "dbStorage_writeCacheMaxSizeMb": "64"}
HOW: Final[Mapping[str, Mapping[str, str]]] = {"plain": {}, "batched": _BATCHED, "killed": _NO_FLUSH}
SUBSCRIPTIONS: Final = ("work", "all", "odd/näme %2F")


class Bank:
    """The running cluster, its client, and the outcome of each transaction so far."""

    def __init__(self, pulsar: PulsarStandalone, java: Jvm) -> None:
        self.pulsar, self.java = pulsar, java
        self.ids: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self._sent = 0

    def begin(self, *names: str) -> None:
        """Begin transactions together."""
        self.ids |= self.java.call(f"{CLIENT}:begin", self.pulsar.service_url, list(names))
        self.outcomes |= dict.fromkeys(names, "open")

    def subscribe(self, subscription: str, topic: str) -> None:
        """Create a subscription, which keeps the topic's ledgers."""
        self.java.call("tests.servers.clients.java:subscribe", self.pulsar.service_url, topic, subscription)

    def send(self, name: str | None, count: int = 1, batch: int = 0, topic: str = TOPIC) -> None:
        """Publish, with or without a transaction."""
        payloads = [f"{name or 'plain'} {self._sent + number}".encode() for number in range(count)]
        self._sent += count
        self.java.call(f"{CLIENT}:send", self.pulsar.service_url, topic, payloads, name, batch)

    def end(self, **outcomes: str) -> None:
        """End transactions together."""
        self.java.call(f"{CLIENT}:end", outcomes)
        done = {"commit": "committed", "abort": "aborted"}
        self.outcomes |= {name: done[outcome] for name, outcome in outcomes.items()}

    def acknowledge(
        self, subscription: str, total: int, cumulative: bool = False, **places: list[int]
    ) -> None:
        """Acknowledge messages of ACKED in transactions."""
        self.java.call(
            f"{CLIENT}:acknowledge", self.pulsar.service_url, ACKED, subscription, total, places, cumulative
        )


def first(bank: Bank) -> None:
    """Run rounds of three transactions at a time, one of them aborted. Two stay open."""
    for topic in (TOPIC, PLAIN):
        bank.subscribe("keep", topic)
    bank.begin("late", "lost")
    for number in range(5):
        names = [f"{letter}{number}" for letter in "abc"]
        bank.begin(*names)
        bank.send(None, 2)
        for name in names:
            bank.send(name, 3, batch=3 if number % 2 else 0)
        bank.send("late" if number == 3 else "lost" if number == 4 else None)
        bank.send(names[0])
        bank.end(**dict(zip(names, ("commit", "abort", "commit"), strict=True)))
    bank.send(None, 4, batch=4)
    bank.send(None, 3, topic=PLAIN)


def second(bank: Bank) -> None:
    """End the two, and acknowledge in transactions that are committed, aborted or left open."""
    bank.send("late", 2)
    bank.end(late="commit", lost="abort")
    bank.begin("spent", "never", "open")
    bank.send("spent", 2)
    bank.end(spent="abort")
    bank.send(None, 5, batch=5)
    for subscription in SUBSCRIPTIONS:
        bank.subscribe(subscription, ACKED)
    bank.send(None, 8, topic=ACKED)
    bank.send(None, 8, batch=4, topic=ACKED)
    bank.begin("paid", "refused", "pending", "upto", "odd")
    bank.acknowledge("work", 16, paid=[0, 2, 8], refused=[1, 9], pending=[3, 4, 10, 11])
    bank.end(paid="commit", refused="abort")
    bank.acknowledge("all", 16, cumulative=True, upto=[6])
    bank.acknowledge(SUBSCRIPTIONS[2], 16, odd=[5])
    bank.send("open", 2)
    bank.send(None, 3)
    bank.begin("after")
    bank.send("after", 1)
    bank.end(after="commit")


def third(bank: Bank) -> None:
    """Do nothing. The truth is what the broker reports after its restart."""


STEPS: Final[tuple[Callable[[Bank], None], ...]] = (first, second, third)


def make(version: str, directory: Path, how: str = "plain") -> dict[str, Any]:
    """Run the steps, write the capture and return its truth. `how` is one of HOW. Raises FileExistsError."""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(f"{directory} is not empty")
    pulsar, truth_of_all = PulsarStandalone(version, settings={**SETTINGS, **HOW[how]}), dict[str, Any]()
    # Killed data is saved before the restart, and other data at the end.
    saved = second if how == "killed" else third
    with Jvm(version, heap="512m") as java:
        bank = Bank(pulsar, java)
        try:
            for step in STEPS:
                pulsar.start()
                step(bank)
                truth_of_all = _truth(bank) if step is third else {}
                pulsar.kill() if saved is second and step is second else pulsar.stop()
                if step is saved:
                    pulsar.save_data(directory)
                    write_metadata(directory / "metadata.ndjson", dump(pulsar))
        finally:
            pulsar.close()
    (directory / "truth.json").write_text(json.dumps(truth_of_all, ensure_ascii=False, sort_keys=True))
    return truth_of_all


def _truth(bank: Bank) -> dict[str, Any]:
    topics: dict[str, Any] = truth.truth_of_topics(bank.pulsar, bank.java)
    topics[TOPIC]["transactions"] = {bank.ids[name]: outcome for name, outcome in bank.outcomes.items()}
    topics[TOPIC]["transactionBuffer"] = bank.pulsar.call(f"{INSIDE}:transaction_buffer", TOPIC)
    topics[ACKED]["pendingAcks"] = {
        name: bank.pulsar.call(f"{INSIDE}:pending_acks", ACKED, name) for name in SUBSCRIPTIONS
    }
    return topics


def main() -> None:
    """Make the capture."""
    version, directory, *how = sys.argv[1:]
    make(version, Path(directory), *how)


if __name__ == "__main__":
    main()
