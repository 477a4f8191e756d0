"""Split an entry into messages, like Pulsar's consumer.

A batch repeats `num_messages_in_batch` times: uint32 size, SingleMessageMetadata, payload. An entry is a
batch if that field is present, whatever its value.

Sources: apache/pulsar ConsumerImpl.java and MessageParser.java (order of the decisions),
Commands.deSerializeSingleMessageInBatch, MessageImpl.getIndex, PIP-429 (compacted batch indexes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.unknown_fields import UnknownFieldSet

from pulsar_meta.codecs.compression import check_claim, decompress
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import Frame, sized_message
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.codecs.salvage import salvage
from pulsar_meta.proto.PulsarApi_pb2 import CompressionType, MessageMetadata, SingleMessageMetadata

DEFAULT_MAX_SIZE: Final = 256 * 1024 * 1024

MARKERS: Final = {
    0: "UNKNOWN", 10: "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
    11: "REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE", 12: "REPLICATED_SUBSCRIPTION_SNAPSHOT",
    13: "REPLICATED_SUBSCRIPTION_UPDATE", 20: "TXN_COMMITTING", 21: "TXN_COMMIT", 22: "TXN_ABORT",
}  # fmt: skip

_U32: Final = struct.Struct(">I")
_Part = tuple[SingleMessageMetadata, memoryview]


@dataclass(frozen=True, slots=True)
class Message:
    """A message. `batch_index` is None outside of batches, `index` is None if the broker assigned none.

    `metadata` is SingleMessageMetadata in a batch, else the entry's MessageMetadata.
    """

    batch_index: int | None
    index: int | None
    metadata: MessageMetadata | SingleMessageMetadata
    payload: memoryview = field(repr=False)

    @property
    def compacted_out(self) -> bool:
        """Whether this is the placeholder of a message that compaction removed."""
        return isinstance(self.metadata, SingleMessageMetadata) and self.metadata.compacted_out


@dataclass(frozen=True, slots=True)
class OpenedEntry:
    """The messages of an entry, or `unopened`, the reason why its messages can't be read.

    `fault` is the error after the last of `messages`, if `open_entry` was called with `partly`.
    """

    messages: Sequence[Message]
    unopened: str | None = None
    fault: DecodeError | None = None


def compression_name(metadata: MessageMetadata) -> str:
    """Return none, lz4, zlib, zstd or snappy. Raises DecodeError if the compression is unknown."""
    number = unknown_compression(metadata)
    if number is not None:
        raise DecodeError(f"unknown compression {number}")
    return CompressionType.Name(metadata.compression).lower()


def unknown_compression(metadata: MessageMetadata) -> int | None:
    """Return the number of an unknown compression, or None if the compression is known.

    Protobuf stores numbers that are not in the enum as unknown fields.
    """
    if metadata.HasField("compression"):
        return None
    unknowns = UnknownFieldSet(metadata)
    for unknown in (unknowns[at] for at in range(len(unknowns))):
        if unknown.field_number == MessageMetadata.COMPRESSION_FIELD_NUMBER:
            return int(unknown.data)
    return None


def why_unopened(metadata: MessageMetadata) -> str | None:
    """Return the reason why an entry's payload has no readable user messages, or None if it has."""
    if metadata.HasField("marker_type"):
        return f"marker {MARKERS.get(metadata.marker_type, metadata.marker_type)}"
    if metadata.encryption_keys:
        return "encrypted"
    if metadata.num_chunks_from_msg > 1:
        return f"chunk {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}"
    return None


def open_entry(frame: Frame, *, max_size: int = DEFAULT_MAX_SIZE, partly: bool = False) -> OpenedEntry:
    """Decompress and split a frame's payload into messages; `max_size` limits the decompressed size (bytes).

    Markers, chunks and encrypted entries have no messages, but a reason in `unopened`. Raises DecodeError if
    the payload can't be decompressed, or if a batch does not match its entry's metadata (offsets count from
    the start of the decompressed payload). With `partly`, returns the messages before such a fault, and the
    fault.
    """
    reason = why_unopened(frame.metadata)
    if reason is not None:
        return OpenedEntry((), reason)
    try:
        payload = decompress_payload(frame.metadata, frame.payload, max_size=max_size)
    except DecodeError as error:
        if not partly:
            raise
        return OpenedEntry(_salvaged(frame, max_size), fault=error)
    if not frame.metadata.HasField("num_messages_in_batch"):
        return OpenedEntry((Message(None, frame.index, frame.metadata, payload),))
    parts, fault = _split_partly(payload, frame.message_count)
    indexes = _batch_indexes(frame, len(parts))
    if fault is None and indexes is None:
        fault = DecodeError(f"the entry claims {frame.message_count} messages, its payload has {len(parts)}")
    if fault is not None and not partly:
        raise fault
    if indexes is None:
        # The messages before the fault are in order, so they have the first batch indexes.
        kept = list(frame.metadata.compacted_batch_indexes)[: len(parts)]
        indexes = kept if len(kept) == len(parts) else range(len(parts))
    return OpenedEntry(tuple(_with_indexes(frame, parts, indexes)), fault=fault)


def _salvaged(frame: Frame, max_size: int) -> tuple[Message, ...]:
    """Return the complete messages of a batch before the damage in its compressed payload."""
    metadata, payload = frame.metadata, byte_view(frame.payload)
    if not metadata.HasField("num_messages_in_batch") or metadata.compacted_batch_indexes:
        return ()
    try:
        codec = compression_name(metadata)
        check_claim(codec, len(payload), metadata.uncompressed_size, max_size)
    except DecodeError:
        return ()
    intact = memoryview(salvage(codec, payload, metadata.uncompressed_size))
    parts, _ = _split_partly(intact, frame.message_count)
    return tuple(_with_indexes(frame, parts, range(len(parts))))


def decompress_payload(
    metadata: MessageMetadata, payload: Buffer, *, max_size: int = DEFAULT_MAX_SIZE
) -> memoryview:
    """Decompress a payload. For a chunked message, pass the joined chunks. Raises DecodeError."""
    codec = compression_name(metadata)
    if codec == "none":
        return byte_view(payload)
    return memoryview(decompress(codec, byte_view(payload), metadata.uncompressed_size, max_size=max_size))


def split_batch(payload: Buffer, count: int) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    """Yield metadata and payload of each message in a decompressed batch of at most `count` messages.

    A batch may end early, because compaction need not keep placeholders. Raises DecodeError if a size does
    not fit or bytes are left over.
    """
    reader = Reader(payload)
    end = len(reader.view)
    for _ in range(count):
        if reader.at == end:
            return
        metadata = sized_message(reader, SingleMessageMetadata)
        yield metadata, reader.take(metadata.payload_size, "a message")
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the last of {count} messages", offset=reader.at)


def join_batch(messages: Sequence[tuple[SingleMessageMetadata, Buffer]]) -> bytes:
    """Encode a batch, uncompressed. Sets `payload_size` in copies of the metadata."""
    parts: list[bytes] = []
    for metadata, payload in messages:
        sized = SingleMessageMetadata()
        sized.CopyFrom(metadata)
        sized.payload_size = len(payload)
        header = sized.SerializeToString()
        parts += (_U32.pack(len(header)), header, bytes(payload))
    return b"".join(parts)


def _split_partly(payload: memoryview, count: int) -> tuple[list[_Part], DecodeError | None]:
    """Return the complete messages of a batch, and the error after them."""
    parts: list[_Part] = []
    try:
        for part in split_batch(payload, count):
            parts.append(part)
    except DecodeError as error:
        return parts, error
    return parts, None


def _with_indexes(frame: Frame, parts: list[_Part], batch_indexes: Sequence[int]) -> Iterator[Message]:
    """Yield messages with their batch indexes and their indexes in the topic."""
    last, width = frame.index, frame.index_width
    for batch_index, (metadata, payload) in zip(batch_indexes, parts, strict=True):
        index = None if last is None else last - max(0, width - 1 - batch_index)
        yield Message(batch_index, index, metadata, payload)


def _batch_indexes(frame: Frame, size: int) -> Sequence[int] | None:
    """Return the batch indexes of `size` messages (all, or those that compaction kept), or None."""
    count = frame.message_count
    if size == count:
        return range(count)
    kept = list(frame.metadata.compacted_batch_indexes)
    if len(kept) == size and all(0 <= batch_index < count for batch_index in kept):
        return kept
    return None
