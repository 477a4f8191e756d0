"""Pulsar's Java client in a JVM (see `tests.servers.jvm`): produce, acknowledge, consume.

Messages and positions are plain dictionaries, so that those of all clients can be compared: {"ledger",
"entry", "batch" (-1: none), "key", "payload" (None: null value), "properties", "event_time"}.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from jpype import JArray, JByte, JClass

_API: Final = "org.apache.pulsar.client.api"
_clients: dict[str, Any] = {}
# Seconds that a broker may take after its start on a busy machine.
PATIENCE: Final = 90


def produce(url: str, topic: str, messages: list[dict[str, Any]], options: dict[str, Any]) -> None:
    """Publish `messages` (payload, key, properties, event_time; only payload is required).

    `options`: compression ("NONE"), batch (messages per batch; 0: unbatched), chunk (largest chunk in bytes),
    public_key (PEM file, to encrypt), transaction ("commit", "abort"), schema ("STRING": payloads are text),
    delay (seconds until a message may be delivered).
    """
    client = client_for(url)
    with _closing(_producer_builder(client, topic, options).create()) as producer:
        transaction = _begin(client) if "transaction" in options else None
        sent = [_send(producer, message, transaction, options) for message in messages]
        producer.flush()
        for future in sent:
            future.get()
        if transaction is not None:
            (transaction.commit() if options["transaction"] == "commit" else transaction.abort()).get()


def subscribe(
    url: str, topic: str, subscription: str, properties: dict[str, str] | None = None, wait: bool = False
) -> None:
    """Create a durable subscription at the start of the topic.

    With `wait`, it is shared and waits a second for messages, so that the broker tracks delayed ones.
    """
    shared = {"type": "Shared"} if wait else {}
    with _consumer(url, topic, subscription, {"properties": properties or {}, **shared}) as consumer:
        if wait:
            _receive(consumer, 1, needed=False)


def acknowledge(
    url: str, topic: str, subscription: str, total: int, chosen: list[int], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Receive `total` messages, acknowledge those at the places `chosen`, and return all.

    `options`: cumulative (True: `chosen` is one place), private_key (PEM file).
    """
    with _consumer(url, topic, subscription, options) as consumer:
        received = [_receive(consumer, PATIENCE) for _ in range(total)]
        how = consumer.acknowledgeCumulativeAsync if options.get("cumulative") else consumer.acknowledgeAsync
        for acknowledged in [how(received[place].getMessageId()) for place in chosen]:
            acknowledged.get()
        return [_described(message) for message in received]


def drain(
    url: str, topic: str, subscription: str, expected: int, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Receive `expected` messages, then any others that arrive within a second. Acknowledges nothing."""
    with _consumer(url, topic, subscription, options) as consumer:
        received: list[dict[str, Any]] = []
        while message := _receive(consumer, PATIENCE if len(received) < expected else 1, needed=False):
            received.append(_described(message))
        return received


def put_off(url: str, topic: str, subscription: str, total: int, tries: int) -> None:
    """Receive `total` messages and reconsume each later, until after `tries` times it is a dead letter."""
    units = JClass("java.util.concurrent.TimeUnit")
    with _consumer(url, topic, subscription, {"type": "Shared", "tries": tries}) as consumer:
        for _ in range(total * (tries + 1)):
            consumer.reconsumeLater(_receive(consumer, PATIENCE), 0, units.SECONDS)


def make_keys(directory: str) -> dict[str, str]:
    """Write an RSA key pair as PEM files and return their paths by the names of the options."""
    generator = JClass("java.security.KeyPairGenerator").getInstance("RSA")
    generator.initialize(2048)
    pair, paths = generator.generateKeyPair(), {}
    for name, key in (("public_key", pair.getPublic()), ("private_key", pair.getPrivate())):
        kind = name.replace("_", " ").upper()
        lines = str(JClass("java.util.Base64").getMimeEncoder(64, b"\n").encodeToString(key.getEncoded()))
        paths[name] = f"{directory}/{name}.pem"
        with open(paths[name], "w") as file:
            file.write(f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n")
    return paths


def close() -> None:
    """Close every client."""
    for url in list(_clients):
        _clients.pop(url).close()


def client_for(url: str, patience: float = PATIENCE) -> Any:
    """Return the client of a service, created at the first call.

    A broker that has just started refuses transactions until it has read its system topics.
    """
    deadline = time.monotonic() + patience
    while url not in _clients:
        builder = JClass(f"{_API}.PulsarClient").builder().serviceUrl(url).enableTransaction(True)
        try:
            _clients[url] = builder.build()
        except JClass(f"{_API}.PulsarClientException"):
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
    return _clients[url]


def _producer_builder(client: Any, topic: str, options: dict[str, Any]) -> Any:
    types, units = JClass(f"{_API}.CompressionType"), JClass("java.util.concurrent.TimeUnit")
    schema = getattr(JClass(f"{_API}.Schema"), options.get("schema", "BYTES"))
    builder = client.newProducer(schema).topic(topic).maxPendingMessages(10_000)
    builder = builder.compressionType(types.valueOf(options.get("compression", "NONE").upper()))
    builder = builder.sendTimeout(0, units.SECONDS).enableBatching(bool(options.get("batch")))
    if options.get("batch"):
        builder = builder.batchingMaxMessages(options["batch"]).batchingMaxPublishDelay(10, units.SECONDS)
    if "chunk" in options:
        builder = builder.enableChunking(True)
        # Clients before 2.10 split messages only at the broker's largest message size.
        if hasattr(builder, "chunkMaxMessageSize"):
            builder = builder.chunkMaxMessageSize(options["chunk"])
    if "public_key" in options:
        reader = JClass("org.apache.pulsar.client.impl.DefaultCryptoKeyReader").builder()
        reader = reader.publicKey("test-key", f"file://{options['public_key']}").build()
        builder = builder.cryptoKeyReader(reader).addEncryptionKey("test-key")
    return builder


def _begin(client: Any) -> Any:
    minutes = JClass("java.util.concurrent.TimeUnit").MINUTES
    return client.newTransaction().withTransactionTimeout(5, minutes).build().get()


def _send(producer: Any, message: dict[str, Any], transaction: Any, options: dict[str, Any]) -> Any:
    builder = producer.newMessage() if transaction is None else producer.newMessage(transaction)
    if message.get("key") is not None:
        builder = builder.key(message["key"])
    for name, value in message.get("properties", {}).items():
        builder = builder.property(name, value)
    if message.get("event_time"):
        builder = builder.eventTime(message["event_time"])
    if "delay" in options:
        builder = builder.deliverAfter(options["delay"], JClass("java.util.concurrent.TimeUnit").SECONDS)
    payload = message["payload"]
    if isinstance(payload, bytes):
        payload = payload.decode() if options.get("schema") == "STRING" else JArray(JByte)(payload)
    return builder.value(payload).sendAsync()


@contextmanager
def _closing(closeable: Any) -> Iterator[Any]:
    try:
        yield closeable
    finally:
        closeable.close()


def _consumer(url: str, topic: str, subscription: str, options: dict[str, Any]) -> Any:
    units = JClass("java.util.concurrent.TimeUnit")
    builder = client_for(url).newConsumer(JClass(f"{_API}.Schema").BYTES).topic(topic)
    builder = builder.subscriptionName(subscription).enableBatchIndexAcknowledgment(True)
    builder = builder.acknowledgmentGroupTime(0, units.SECONDS).isAckReceiptEnabled(True)
    types = JClass(f"{_API}.SubscriptionType")
    builder = builder.subscriptionType(types.valueOf(options.get("type", "Exclusive")))
    builder = builder.subscriptionInitialPosition(JClass(f"{_API}.SubscriptionInitialPosition").Earliest)
    if options.get("properties"):
        builder = builder.subscriptionProperties(JClass("java.util.HashMap")(options["properties"]))
    if "private_key" in options:
        reader = JClass("org.apache.pulsar.client.impl.DefaultCryptoKeyReader").builder()
        builder = builder.cryptoKeyReader(
            reader.privateKey("test-key", f"file://{options['private_key']}").build()
        )
    if "tries" in options:
        policy = JClass(f"{_API}.DeadLetterPolicy").builder().maxRedeliverCount(options["tries"]).build()
        builder = builder.enableRetry(True).deadLetterPolicy(policy)
    return _closing(builder.subscribe())


def _receive(consumer: Any, seconds: int, needed: bool = True) -> Any:
    message = consumer.receive(seconds, JClass("java.util.concurrent.TimeUnit").SECONDS)
    if message is None and needed:
        raise TimeoutError(f"{consumer.getTopic()}: no message within {seconds} s")
    return message


def _described(message: Any) -> dict[str, Any]:
    position, value = message.getMessageId(), message.getValue()
    return {
        "ledger": int(position.getLedgerId()),
        "entry": int(position.getEntryId()),
        "batch": int(position.getBatchIndex()) if hasattr(position, "getBatchIndex") else -1,
        "key": str(message.getKey()) if message.hasKey() else None,
        "payload": None if value is None else bytes(value),
        "properties": {str(name): str(message.getProperties().get(name)) for name in message.getProperties()},
        "event_time": int(message.getEventTime()),
    }
