"""Pulsar 5's Java client and admin calls for scalable topics in a JVM (see `tests.servers.jvm`).

A position is {"segment", "l", "e", "b"}: the segment's id, then ledger, entry and batch index (-1: none).
"""

from __future__ import annotations

import time
from typing import Any, Final

from jpype import JArray, JByte, JClass

from tests.servers.clients.java import PATIENCE

_API: Final = "org.apache.pulsar.client.api.v5"
_clients: dict[str, Any] = {}
_admins: dict[str, Any] = {}
# Producers, consumers and transactions that stay open in a cluster that is killed.
_open: list[Any] = []


def admin(url: str, call: str, *arguments: Any) -> None:
    """Call `admin.scalableTopics().CALL(*arguments)`. Dictionaries become maps."""
    if url not in _admins:
        _admins[url] = (
            JClass("org.apache.pulsar.client.admin.PulsarAdmin").builder().serviceHttpUrl(url).build()
        )
    getattr(_admins[url].scalableTopics(), call)(*map(_java, arguments))


def produce(
    url: str, topic: str, messages: list[dict[str, Any]], options: dict[str, Any]
) -> list[dict[str, int]]:
    """Publish messages (payload, key, properties, event_time) and return their positions.

    `options`: batch (largest number of messages in a batch), transaction ("commit", "abort", or "open": left
    open), split (a segment to split with the admin at `admin` after half of the messages), keep (the producer
    stays connected).
    """
    client = client_for(url)
    transaction = client.newTransaction() if "transaction" in options else None
    producer = _producer(client, topic, options)
    half = len(messages) // 2 if "split" in options else len(messages)
    sent = _send_all(producer, messages[:half], transaction)
    if "split" in options:
        admin(options["admin"], "splitSegment", topic.partition("://")[2], options["split"])
        # A message for the sealed segment is sent again, but its transaction can no longer commit.
        time.sleep(2)
        sent += _send_all(producer, messages[half:], transaction)
    if transaction is not None and options["transaction"] != "open":
        getattr(transaction, options["transaction"])()
    if "keep" in options:
        _open.append(producer)
    else:
        producer.close()
    return sent


def consume(url: str, topic: str, subscription: str, options: dict[str, Any]) -> list[dict[str, int]]:
    """Receive `total` messages from the beginning and return their positions.

    `options`: kind ("stream" or "queue"), total, acknowledge (places among the messages: of a queue exactly
    these, of a stream all up to the last), transaction (acknowledge in one that is left open), keep (the
    consumer stays connected).
    """
    client = client_for(url)
    consumer = _consumer(client, topic, subscription, options["kind"])
    received = list[Any]()
    while len(received) < options["total"]:
        message = consumer.receive(_seconds(PATIENCE))
        if message is None:
            raise TimeoutError(f"{topic}: {len(received)} of {options['total']} messages came")
        received.append(message)
    _acknowledge(client, consumer, [received[place] for place in options.get("acknowledge", ())], options)
    if "keep" in options:
        _open.append(consumer)
    else:
        consumer.close()
    return [_position(message.id()) for message in received]


def close() -> None:
    """Close every client with its producers and consumers."""
    for clients in (_clients, _admins):
        for url in list(clients):
            clients.pop(url).close()


def client_for(url: str) -> Any:
    """Return the client of a service, created at the first call."""
    if url not in _clients:
        builder = JClass(f"{_API}.PulsarClient").builder().serviceUrl(url)
        # 5.0.0-M1 has no call that enables transactions.
        conf = builder.getClass().getDeclaredField("conf")
        conf.setAccessible(True)
        conf.get(builder).setEnableTransaction(True)
        _clients[url] = builder.build()
    return _clients[url]


def _producer(client: Any, topic: str, options: dict[str, Any]) -> Any:
    policy = JClass(f"{_API}.config.BatchingPolicy")
    builder = client.newProducer(JClass(f"{_API}.schema.Schema").bytes()).topic(topic)
    if "batch" not in options:
        return builder.batchingPolicy(policy.ofDisabled()).create()
    batching = policy.builder().maxMessages(options["batch"]).maxPublishDelay(_seconds(1)).build()
    return builder.batchingPolicy(batching).create()


def _send_all(producer: Any, messages: list[dict[str, Any]], transaction: Any) -> list[dict[str, int]]:
    futures = [_send(producer, message, transaction) for message in messages]
    producer.async_().flush().get()
    return [_position(future.get()) for future in futures]


def _send(producer: Any, message: dict[str, Any], transaction: Any) -> Any:
    builder = producer.async_().newMessage()
    if transaction is not None:
        builder = builder.transaction(transaction)
    if message.get("key") is not None:
        builder = builder.key(message["key"])
    for name, value in message.get("properties", {}).items():
        builder = builder.property(name, value)
    if message.get("event_time"):
        builder = builder.eventTime(JClass("java.time.Instant").ofEpochMilli(message["event_time"]))
    return builder.value(JArray(JByte)(message["payload"])).send()


def _consumer(client: Any, topic: str, subscription: str, kind: str) -> Any:
    schema = JClass(f"{_API}.schema.Schema").bytes()
    builder = client.newStreamConsumer(schema) if kind == "stream" else client.newQueueConsumer(schema)
    earliest = JClass(f"{_API}.config.SubscriptionInitialPosition").EARLIEST
    return (
        builder.topic(topic).subscriptionName(subscription).subscriptionInitialPosition(earliest).subscribe()
    )


def _acknowledge(client: Any, consumer: Any, chosen: list[Any], options: dict[str, Any]) -> None:
    if options["kind"] == "stream":
        for message in chosen[-1:]:
            consumer.acknowledgeCumulative(message.id())
        return
    transaction = client.newTransaction() if "transaction" in options else None
    for message in chosen:
        consumer.acknowledge(message.id(), *([transaction] if transaction is not None else []))


def _position(message_id: Any) -> dict[str, int]:
    """Return the segment and the position in it, which the id exposes only by reflection."""
    place = _hidden(message_id, "v4MessageId")
    batch = int(place.getBatchIndex()) if hasattr(place, "getBatchIndex") else -1
    return {
        "segment": int(_hidden(message_id, "segmentId")),
        "l": int(place.getLedgerId()),
        "e": int(place.getEntryId()),
        "b": batch,
    }


def _hidden(instance: Any, name: str) -> Any:
    field = instance.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(instance)


def _seconds(count: int) -> Any:
    return JClass("java.time.Duration").ofSeconds(count)


def _java(value: Any) -> Any:
    return JClass("java.util.HashMap")(value) if isinstance(value, dict) else value
