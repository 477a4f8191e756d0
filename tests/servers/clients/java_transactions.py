"""Transactions of a Java client in a JVM. Each transaction has a name here."""

from __future__ import annotations

from typing import Any

from jpype import JClass

from tests.servers.clients.java import _closing, _consumer, _producer_builder, _receive, _send, client_for

HOURS = 24
_open: dict[str, Any] = {}


def begin(url: str, names: list[str]) -> dict[str, str]:
    """Begin transactions that only `end` ends. Returns their ids by name, as `most:least`."""
    units = JClass("java.util.concurrent.TimeUnit")
    building = [client_for(url).newTransaction().withTransactionTimeout(HOURS, units.HOURS) for _ in names]
    begun = [builder.build() for builder in building]
    for name, future in zip(names, begun, strict=True):
        _open[name] = future.get()
    return {name: _id(_open[name]) for name in names}


def next_id(url: str, patience: float) -> str:
    """Begin a transaction and return its id. Raises the client's error after `patience` seconds."""
    units = JClass("java.util.concurrent.TimeUnit")
    building = client_for(url, patience).newTransaction().withTransactionTimeout(1, units.MINUTES)
    return _id(building.build().get(int(patience), units.SECONDS))


def send(url: str, topic: str, payloads: list[bytes], name: str | None, batch: int = 0) -> None:
    """Publish in the transaction `name` (None: in none), with `batch` messages per entry (0: unbatched)."""
    transaction = None if name is None else _open[name]
    with _closing(_producer_builder(client_for(url), topic, {"batch": batch}).create()) as producer:
        sent = [_send(producer, {"payload": payload}, transaction, {}) for payload in payloads]
        producer.flush()
        for future in sent:
            future.get()


def end(outcomes: dict[str, str]) -> None:
    """Commit or abort transactions, all at the same time."""
    ending = [
        _open[name].commit() if outcome == "commit" else _open[name].abort()
        for name, outcome in outcomes.items()
    ]
    for future in ending:
        future.get()


def acknowledge(
    url: str,
    topic: str,
    subscription: str,
    total: int,
    places: dict[str, list[int]],
    cumulative: bool = False,
) -> None:
    """Receive `total` messages and acknowledge those at the places, each in its transaction."""
    with _consumer(url, topic, subscription, {}) as consumer:
        received = [_receive(consumer, 60).getMessageId() for _ in range(total)]
        how = consumer.acknowledgeCumulativeAsync if cumulative else consumer.acknowledgeAsync
        acknowledged = [how(received[at], _open[name]) for name, chosen in places.items() for at in chosen]
        for future in acknowledged:
            future.get()


def _id(transaction: Any) -> str:
    identity = transaction.getTxnID()
    return f"{int(identity.getMostSigBits())}:{int(identity.getLeastSigBits())}"
