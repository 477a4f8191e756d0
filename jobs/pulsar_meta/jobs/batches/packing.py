"""Batches made into entry frames: what all messages share is hoisted into the entry's metadata.

Sources: apache/pulsar BatchMessageContainerImpl.createOpSendMsg (what a batch takes from its first
message), Commands.serializeSingleMessageInBatchWithPayload; issue #16680 (hoisted properties).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.compression import compress
from pulsar_meta.codecs.frames.batch import join_batch
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.jobs.batches.batching import Batch, Batcher, Batching, Breaks, Outgoing
from pulsar_meta.jobs.batches.frame_stream import write_frame
from pulsar_meta.proto.PulsarApi_pb2 import (
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

# What a message's own metadata says in a batch, by the name that MessageMetadata has for it too.
_SINGLE: Final = (
    "partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "sequence_id", "null_value",
    "null_partition_key",
)  # fmt: skip
# What a batch takes from its first message.
_FIRST: Final = (
    "producer_name", "sequence_id", "publish_time", "partition_key", "partition_key_b64_encoded",
    "ordering_key", "schema_version", "schema_id", "replicated_from", "txnid_most_bits", "txnid_least_bits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """One message as its producer has it: metadata as of an unbatched entry, payload, the codec to use."""

    metadata: MessageMetadata
    payload: bytes
    codec: str = "none"


@dataclass(frozen=True, slots=True)
class Packing:
    """How frames are made: codec (None: that of the batch's first message), checksum, hoisted properties."""

    codec: str | None = None
    checksum: bool = True
    keys: Sequence[str] = ()
    batches_of_one: bool = False


def pack_messages(messages: Iterable[Outgoing], batching: Batching, packing: Packing) -> Iterator[bytes]:
    """Yield the frames of messages in the `frames:` form, in the order in which batches are published."""
    batchers: dict[str, Batcher] = {}
    for message in messages:
        name = str(message.content.metadata.producer_name)
        batcher = batchers.setdefault(name, Batcher(batching, Breaks()))
        for batch in batcher.add(message):
            yield write_frame(pack_batch(batch, packing))
    for batcher in batchers.values():
        for batch in batcher.finish():
            yield write_frame(pack_batch(batch, packing))


def pack_batch(batch: Batch, packing: Packing) -> bytes:
    """Return the frame of a batch; a single message is no batch unless `batches_of_one`."""
    messages: list[Message] = [outgoing.content for outgoing in batch.messages]
    codec = packing.codec or messages[0].codec
    if len(messages) == 1 and (batch.alone or not packing.batches_of_one):
        metadata = MessageMetadata()
        metadata.CopyFrom(messages[0].metadata)
        return _frame(metadata, messages[0].payload, codec, checksum=packing.checksum)
    metadata = batch_metadata(messages, packing.keys)
    payload = join_batch([(single_metadata(one), one.payload) for one in messages])
    return _frame(metadata, payload, codec, checksum=packing.checksum)


def batch_metadata(messages: Sequence[Message], keys: Sequence[str]) -> MessageMetadata:
    """Return the metadata of a batch: its first message's, without properties other than those hoisted."""
    first = messages[0].metadata
    metadata = MessageMetadata(num_messages_in_batch=len(messages))
    for name in _FIRST:
        if first.HasField(name):
            setattr(metadata, name, getattr(first, name))
    metadata.replicate_to.extend(first.replicate_to)
    metadata.highest_sequence_id = max(message.metadata.sequence_id for message in messages)
    metadata.properties.extend(hoisted(first, keys))
    return metadata


def hoisted(metadata: MessageMetadata, keys: Sequence[str]) -> list[KeyValue]:
    """Return the properties of a message that are to stand in its batch's metadata, in the keys' order."""
    values = {pair.key: pair.value for pair in metadata.properties}
    return [KeyValue(key=key, value=values[key]) for key in keys if key in values]


def single_metadata(message: Message) -> SingleMessageMetadata:
    """Return what a message says of itself inside a batch."""
    single = SingleMessageMetadata(payload_size=len(message.payload))
    single.properties.extend(message.metadata.properties)
    for name in _SINGLE:
        if message.metadata.HasField(name):
            setattr(single, name, getattr(message.metadata, name))
    return single


def _frame(metadata: MessageMetadata, payload: bytes, codec: str, *, checksum: bool) -> bytes:
    stored = payload if codec == "none" else compress(codec, payload)
    metadata.ClearField("compression")
    if codec != "none":
        metadata.compression = CompressionType.Value(codec.upper())  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return encode_frame(metadata, stored, checksum=checksum)
