"""Batches made into entry frames: what all messages share is hoisted into the entry's metadata.

Sources: apache/pulsar BatchMessageContainerImpl.createOpSendMsg (what a batch takes from its first
message), Commands.serializeSingleMessageInBatchWithPayload; issue #16680 (hoisted properties).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.batch import join_batch
from pulsar_meta.codecs.compression import compress
from pulsar_meta.codecs.frame import encode_frame
from pulsar_meta.jobs.batching import Batch
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
    """One message as its producer has it: metadata as of an unbatched entry, and the payload."""

    metadata: MessageMetadata
    payload: bytes


@dataclass(frozen=True, slots=True)
class Packing:
    """How frames are made: the codec's name, with a checksum or not, and the properties hoisted."""

    codec: str = "none"
    checksum: bool = True
    keys: Sequence[str] = ()
    batches_of_one: bool = False


def pack_batch(batch: Batch, packing: Packing) -> bytes:
    """Return the frame of a batch; a single message is no batch unless `batches_of_one`."""
    messages: list[Message] = [outgoing.content for outgoing in batch.messages]
    if len(messages) == 1 and (batch.alone or not packing.batches_of_one):
        metadata = MessageMetadata()
        metadata.CopyFrom(messages[0].metadata)
        return _frame(metadata, messages[0].payload, packing)
    metadata = batch_metadata(messages, packing.keys)
    return _frame(metadata, join_batch([(single_metadata(one), one.payload) for one in messages]), packing)


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


def _frame(metadata: MessageMetadata, payload: bytes, packing: Packing) -> bytes:
    stored = payload if packing.codec == "none" else compress(packing.codec, payload)
    metadata.ClearField("compression")
    if packing.codec != "none":
        metadata.compression = CompressionType.Value(packing.codec.upper())  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return encode_frame(metadata, stored, checksum=packing.checksum)
