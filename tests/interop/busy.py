"""Runs beside a broker (`PulsarStandalone.call`): clients that write, trim and delete topics without end."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

from jpype import JArray, JByte, JClass

from tests.servers.inside import broker, managed_ledger

API = "org.apache.pulsar.client.api"
TRIMMED = "persistent://public/default/trimmed-all-the-time"
WRITTEN = "persistent://public/default/written-all-the-time"
KEEPS, MARKS = "keeps", "marks"
_stop = Event()
_threads: list[Thread] = []
_done = {"trimmed": 0, "deleted": 0, "written": 0, "faults": 0}
_last_fault = ""
# Seconds between two pieces of work of a client. Without pauses, a long test fills the bookie's disk.
_pause = 0.0


def begin(url: str, pause: float = 0.0) -> None:
    """Start the clients and return at once. With a pause, another one writes to a topic that is not trimmed.

    `pause` is the number of seconds between two pieces of work of a client.
    """
    global _pause
    _pause = pause
    for work in (_trim, _create_and_delete, *([_write] if pause else [])):
        thread = Thread(target=_over_and_over, args=(work, url), daemon=True)
        _threads.append(thread)
        thread.start()


def end() -> dict[str, Any]:
    """Stop the clients; return how often they did what, and the last fault that they met."""
    _stop.set()
    for thread in _threads:
        thread.join(60)
    return {**_done, "last_fault": _last_fault}


def create_unnamed(topic: str) -> int:
    """Create a ledger as the broker does for a topic's next one, and stop there; return its id."""
    ledger = managed_ledger(topic)
    utils = JClass("org.apache.bookkeeper.mledger.impl.LedgerMetadataUtils")
    # Not public in every release.
    [build] = [
        getDeclaredMethod
        for getDeclaredMethod in utils.class_.getDeclaredMethods()
        if str(getDeclaredMethod.getName()) == "buildBaseManagedLedgerMetadata"
    ]
    build.setAccessible(True)
    custom = build.invoke(None, ledger.getName())
    digest = JClass("org.apache.bookkeeper.client.BookKeeper$DigestType").CRC32C
    client = broker().getBookKeeperClient()
    password = JArray(JByte)([])
    return int(client.createLedger(1, 1, 1, digest, password, custom).getId())


def _over_and_over(work: Any, url: str) -> None:
    global _last_fault
    client = JClass(f"{API}.PulsarClient").builder().serviceUrl(url).build()
    number = 0
    try:
        while not _stop.is_set():
            number += 1
            try:
                work(client, number)
            except JClass("java.lang.Exception") as error:
                _done["faults"] += 1
                _last_fault = str(error)
            _stop.wait(_pause)
    finally:
        client.close()


def _send(client: Any, topic: str, count: int) -> None:
    producer = client.newProducer(JClass(f"{API}.Schema").STRING).topic(topic).enableBatching(False).create()
    for _ in range(count):
        producer.send("x" * 100)
    producer.close()


def _trim(client: Any, number: int) -> None:
    """Fill some ledgers and acknowledge all of it: the broker trims them."""
    schema = JClass(f"{API}.Schema").STRING
    consumer = client.newConsumer(schema).topic(TRIMMED).subscriptionName("reads-all").subscribe()
    _send(client, TRIMMED, 25)
    unit = JClass("java.util.concurrent.TimeUnit").SECONDS
    for _ in range(25):
        message = consumer.receive(10, unit)
        if message is None:
            break
        consumer.acknowledge(message)
    consumer.close()
    done = JClass("java.util.concurrent.CompletableFuture")()
    managed_ledger(TRIMMED).trimConsumedLedgersInBackground(done)
    done.get()
    _done["trimmed"] += 1


def _create_and_delete(client: Any, number: int) -> None:
    topic = f"persistent://public/default/short-lived-{number}"
    consumer = client.newConsumer().topic(topic).subscriptionName("left-behind").subscribe()
    consumer.close()
    _send(client, topic, 15)
    broker().getAdminClient().topics().delete(topic, True)
    _done["deleted"] += 1


def _write(client: Any, number: int) -> None:
    """Write to a topic that nobody trims, and acknowledge every other message, which leaves holes.

    Writes less often as the topic grows, because every reader reads all of it.
    """
    _stop.wait(min(number // 100, 10))
    schema = JClass(f"{API}.Schema").STRING
    for subscription in (KEEPS, MARKS):
        consumer = client.newConsumer(schema).topic(WRITTEN).subscriptionName(subscription).subscribe()
        if subscription == KEEPS:
            consumer.close()
    _send(client, WRITTEN, 4)
    unit = JClass("java.util.concurrent.TimeUnit").SECONDS
    for position in range(4):
        message = consumer.receive(5, unit)
        if message is not None and position % 2:
            consumer.acknowledge(message)
    consumer.close()
    _done["written"] += 1


def wait_until_written(times: int) -> None:
    """Return once each client has done its work so often."""
    while min(_done["written"], _done["trimmed"], _done["deleted"]) < times:
        _stop.wait(0.1)
