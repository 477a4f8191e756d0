"""A running broker's view of transactions, from its own JVM (see `tests.servers.inside`)."""

from __future__ import annotations

import time
from typing import Any

from jpype import JClass, JException, JString

from tests.servers.inside import broker

SECONDS = 180
RECOVERED = ("Ready", "NoSnapshot")


def transaction_buffer(topic: str) -> dict[str, Any]:
    """Return the position up to which readers of a topic may read, and the number of open transactions.

    A broker that fails to recover the buffer closes the topic and never makes this buffer ready
    (TopicTransactionBuffer.recoverExceptionally), so each try loads the topic again if it was closed. While a
    topic is being closed, loading it fails.
    """
    deadline, seen = time.monotonic() + SECONDS, "unknown"
    while seen not in RECOVERED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: after {SECONDS} s its transaction buffer is {seen}")
        time.sleep(0.2)
        try:
            stats = _topic(topic).getTransactionBuffer().getStats(False)
            seen = str(stats.state)
        except JException as error:
            seen = str(error)
    return {
        "state": str(stats.state),
        "max_read_position": str(stats.maxReadPosition),
        "open": int(stats.ongoingTxnSize),
        "aborted": int(stats.totalAbortedTransactions),
    }


def pending_acks(topic: str, subscription: str) -> dict[str, Any]:
    """Return the messages that a subscription acknowledged in open transactions, by transaction."""
    handle = _topic(topic).getSubscription(JString(subscription)).getPendingAckHandle()
    handle.pendingAckHandleFuture().get(SECONDS, JClass("java.util.concurrent.TimeUnit").SECONDS)
    individual, cumulative = (
        _field(handle, "individualAckOfTransaction"),
        _field(handle, "cumulativeAckOfTransaction"),
    )
    return {
        "individual": {}
        if individual is None
        else {
            _txn(item.getKey()): sorted(_position(place) for place in item.getValue().values())
            for item in individual.entrySet()
        },
        "cumulative": None
        if cumulative is None
        else {_txn(cumulative.getKey()): _position(cumulative.getValue())},
    }


def _topic(topic: str) -> Any:
    return broker().getBrokerService().getTopic(topic, True).get().get()


def _field(holder: Any, name: str) -> Any:
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)


def _txn(identity: Any) -> str:
    return f"{int(identity.getMostSigBits())}:{int(identity.getLeastSigBits())}"


def _position(place: Any) -> list[Any]:
    """Return ledger, entry and the bit set of unacknowledged messages (empty: the complete entry)."""
    utility = "org.apache.bookkeeper.mledger.impl.AckSetStateUtil"
    words = JClass(utility).getAckSetArrayOrNull(place)
    return [
        int(place.getLedgerId()),
        int(place.getEntryId()),
        [] if words is None else [int(word) for word in words],
    ]
