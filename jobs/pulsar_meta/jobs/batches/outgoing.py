"""Messages as a producer had them before batching: from stored entries, and from lines of JSON."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.frames.batch import Message as StoredMessage
from pulsar_meta.codecs.frames.batch import OpenedEntry, compression_name
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import Frame
from pulsar_meta.codecs.json_text import read_json
from pulsar_meta.codecs.protobuf.from_json import fill_message
from pulsar_meta.jobs.batches.batching import Outgoing
from pulsar_meta.jobs.batches.packing import Message
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata, SingleMessageMetadata

# What an entry's metadata says of the entry, not of its messages.
_OF_THE_ENTRY: Final = ("compression", "uncompressed_size", "num_messages_in_batch", "highest_sequence_id")
_OF_ITS_OWN: Final = (
    "partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "sequence_id", "null_value",
    "null_partition_key",
)  # fmt: skip


@dataclass(slots=True)
class Numbering:
    """Gives each producer's messages their numbers, from 0 on."""

    next: Counter[str] = field(default_factory=Counter)

    def number(self, producer: str) -> int:
        """Return the number of the producer's next message."""
        self.next[producer] += 1
        return self.next[producer] - 1


def outgoing(message: Message, number: int, *, flush: bool) -> Outgoing:
    """Return a message as the batcher takes it."""
    metadata = message.metadata
    properties = properties_of(metadata.properties)
    transaction = None
    if metadata.HasField("txnid_most_bits"):
        transaction = (metadata.txnid_most_bits, metadata.txnid_least_bits)
    return Outgoing(
        number=number,
        properties=properties,
        size=len(message.payload) + sum(len(key) + len(value) for key, value in properties.items()),
        schema=metadata.schema_version if metadata.HasField("schema_version") else None,
        transaction=transaction,
        flush=flush,
        alone=metadata.HasField("deliver_at_time"),
        content=message,
    )


def messages_of_entry(frame: Frame, opened: OpenedEntry) -> Iterator[Message]:
    """Yield the messages of an opened entry, those that compaction removed left out."""
    codec = compression_name(frame.metadata)
    for stored in opened.messages:
        if not stored.compacted_out:
            yield Message(whole_metadata(frame.metadata, stored), bytes(stored.payload), codec)


def whole_metadata(entry: MessageMetadata, stored: StoredMessage) -> MessageMetadata:
    """Return a message's metadata as of an unbatched entry."""
    metadata = MessageMetadata()
    metadata.CopyFrom(entry)
    for name in _OF_THE_ENTRY:
        metadata.ClearField(name)
    if not isinstance(stored.metadata, SingleMessageMetadata):
        return metadata
    del metadata.properties[:]
    metadata.properties.extend(stored.metadata.properties)
    for name in _OF_ITS_OWN:
        if stored.metadata.HasField(name):
            setattr(metadata, name, getattr(stored.metadata, name))
        elif name != "sequence_id":
            metadata.ClearField(name)
    return metadata


def messages_of_lines(
    lines: Iterable[bytes], *, producer: str, clock: Callable[[], int], numbering: Numbering
) -> Iterator[Outgoing]:
    """Yield the messages that lines of JSON describe; DecodeError, naming the line, where one is wrong.

    `payload` (text) or `payload_base64`, `properties` (an object), `key`, `flush` (publish before it what is
    open), and every field of MessageMetadata. Missing: `producer`, the next sequence id, the clock's time.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        with decoding(what=f"line {number}"):
            yield _message_of_line(read_json(line), producer, clock, numbering)


def _message_of_line(said: Any, producer: str, clock: Callable[[], int], numbering: Numbering) -> Outgoing:
    if not isinstance(said, dict):
        raise DecodeError("a message is a JSON object")
    rest = dict(said)
    flush, payload = bool(rest.pop("flush", False)), _payload(rest)
    pairs = rest.pop("properties", {})
    if not isinstance(pairs, dict):
        raise DecodeError("properties: expected an object of strings")
    rest["properties"] = [{"key": key, "value": value} for key, value in pairs.items()]
    if "key" in rest:
        rest["partition_key"] = rest.pop("key")
    for name in _OF_THE_ENTRY:
        if name in rest:
            raise DecodeError(f"{name}: is made when messages are packed")
    name = rest.setdefault("producer_name", producer)
    number = numbering.number(str(name))
    rest.setdefault("sequence_id", number)
    rest.setdefault("publish_time", clock())
    metadata = MessageMetadata()
    fill_message(metadata, rest, "message")
    if not metadata.IsInitialized():
        raise DecodeError("a property without a value, or producer_name, sequence_id or publish_time is null")
    return outgoing(Message(metadata, payload), number, flush=flush)


def _payload(rest: dict[str, Any]) -> bytes:
    text, encoded = rest.pop("payload", None), rest.pop("payload_base64", None)
    if text is not None and encoded is not None:
        raise DecodeError("payload and payload_base64 exclude each other")
    try:
        return base64.b64decode(encoded or "", validate=True) if text is None else text.encode()
    except (binascii.Error, AttributeError, TypeError, ValueError) as error:
        raise DecodeError("payload: expected text, or base64 in payload_base64") from error
