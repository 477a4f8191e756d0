"""Reading whole topics with Pulsar's Java client in a JVM: the `messages` of a capture's truth."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from jpype import JClass

from tests.servers.clients.java import client_for

_API: Final = "org.apache.pulsar.client.api"
READ_SECONDS: Final = 10


def read_all(url: str, topic: str) -> list[dict[str, Any]]:
    """Return every message of a topic in reading order, in the form of truth.json (see fixtures).

    The reader has no keys, so it receives an encrypted entry as one message in its stored form.
    """
    builder = client_for(url).newReader(JClass(f"{_API}.Schema").BYTES).topic(topic)
    builder = builder.startMessageId(JClass(f"{_API}.MessageId").earliest).startMessageIdInclusive()
    builder = builder.cryptoFailureAction(JClass(f"{_API}.ConsumerCryptoFailureAction").CONSUME)
    reader = _reader_of_segment(url, builder) if topic.startswith("segment://") else builder.create()
    try:
        messages: list[Any] = []
        while reader.hasMessageAvailable():
            message = reader.readNext(READ_SECONDS, JClass("java.util.concurrent.TimeUnit").SECONDS)
            if message is None:
                # The reader waits for the last message of the batch that it can't open.
                if messages and messages[-1].getEncryptionCtx().isPresent():
                    break
                raise TimeoutError(f"{topic}: a message is announced and does not come")
            messages.append(message)
        # For a terminated topic with an empty last ledger, Pulsar 5 reports that there are no messages.
        if not messages:
            messages += iter(
                lambda: reader.readNext(1, JClass("java.util.concurrent.TimeUnit").SECONDS), None
            )
        return [_truth(message) for message in messages]
    finally:
        reader.close()


def _reader_of_segment(url: str, builder: Any) -> Any:
    """Read one segment as the client for scalable topics does, because the builder refuses it (Pulsar 5)."""
    field = builder.getClass().getDeclaredField("conf")
    field.setAccessible(True)
    return client_for(url).createSegmentReaderAsync(field.get(builder), JClass(f"{_API}.Schema").BYTES).get()


def _truth(message: Any) -> dict[str, Any]:
    position, data = message.getMessageId(), bytes(message.getData() or b"")
    batch = int(position.getBatchIndex()) if hasattr(position, "getBatchIndex") else -1
    index, time = _optional(message, "getIndex"), _optional(message, "getBrokerPublishTime")
    return {
        "l": int(position.getLedgerId()),
        "e": int(position.getEntryId()),
        "b": batch,
        "n": int(position.getBatchSize()) if batch >= 0 else 0,
        "ix": index,
        "bt": time,
        "pt": int(message.getPublishTime()),
        "et": int(message.getEventTime()),
        "key": str(message.getKey()) if message.hasKey() else None,
        "props": {str(name): str(message.getProperties().get(name)) for name in message.getProperties()},
        "prod": str(message.getProducerName()),
        "seq": int(message.getSequenceId()),
        "len": len(data),
        "sha": hashlib.sha256(data).hexdigest()[:16],
    }


def _optional(message: Any, getter: str) -> int | None:
    # The client of 2.8 has neither.
    value = getattr(message, getter)() if hasattr(message, getter) else None
    return int(value.get()) if value is not None and value.isPresent() else None
