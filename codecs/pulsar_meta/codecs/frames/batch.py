"""The messages of an entry: decided, decompressed and split as Pulsar's own consumer does.

A batch is `num_messages_in_batch` times: uint32 size, SingleMessageMetadata, payload. It is the
presence of that field, not its value, that makes a batch.

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
_Found = tuple[SingleMessageMetadata, memoryview]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `batch_index` is None where the entry is no batch; `index` where the broker gave none.

    `metadata` is what the entry keeps of this one message: SingleMessageMetadata in a batch, else the
    entry's MessageMetadata.
    """

    batch_index: int | None
    index: int | None
    metadata: MessageMetadata | SingleMessageMetadata
    payload: memoryview = field(repr=False)

    @property
    def compacted_out(self) -> bool:
        """Whether compaction removed the message and left this placeholder."""
        return isinstance(self.metadata, SingleMessageMetadata) and self.metadata.compacted_out


@dataclass(frozen=True, slots=True)
class OpenedEntry:
    """The messages of an entry, or the reason why it has none that can be read one by one.

    `fault`: what is wrong after the last of `messages`, where only whole ones were asked for.
    """

    messages: Sequence[Message]
    unopened: str | None = None
    fault: DecodeError | None = None


def compression_name(metadata: MessageMetadata) -> str:
    """Return none, lz4, zlib, zstd or snappy; DecodeError for a number that Pulsar has not assigned."""
    number = unknown_compression(metadata)
    if number is not None:
        raise DecodeError(f"no compression has the number {number}")
    return CompressionType.Name(metadata.compression).lower()


def unknown_compression(metadata: MessageMetadata) -> int | None:
    """Return the number of a compression that Pulsar has not assigned, None for one that it has.

    protobuf keeps a number that the enum does not have as an unknown field.
    """
    if metadata.HasField("compression"):
        return None
    unknowns = UnknownFieldSet(metadata)
    for unknown in (unknowns[at] for at in range(len(unknowns))):
        if unknown.field_number == MessageMetadata.COMPRESSION_FIELD_NUMBER:
            return int(unknown.data)
    return None


def why_unopened(metadata: MessageMetadata) -> str | None:
    """Return why an entry's payload is not the messages of a user, None where it is."""
    if metadata.HasField("marker_type"):
        return f"marker {MARKERS.get(metadata.marker_type, metadata.marker_type)}"
    if metadata.encryption_keys:
        return "encrypted"
    if metadata.num_chunks_from_msg > 1:
        return f"chunk {metadata.chunk_id + 1} of {metadata.num_chunks_from_msg}"
    return None


def open_entry(frame: Frame, *, max_size: int = DEFAULT_MAX_SIZE, partly: bool = False) -> OpenedEntry:
    """Return the messages of a frame, payloads decompressed and up to `max_size` bytes together.

    A marker, a chunk or an encrypted entry has none and says so. DecodeError where the payload cannot be
    decompressed or a batch does not fit what its entry says; offsets count from the start of the
    decompressed payload. With `partly` the messages before such a fault are returned, and the fault; of a
    damaged compression those that come out before the damage.
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
    found, fault = _split_partly(payload, frame.message_count)
    places = _places(frame, len(found))
    if fault is None and places is None:
        fault = DecodeError(f"the entry says {frame.message_count} messages, its payload has {len(found)}")
    if fault is not None and not partly:
        raise fault
    if places is None:
        # A reader takes them in their order, so the first ones are where they should be.
        kept = list(frame.metadata.compacted_batch_indexes)[: len(found)]
        places = kept if len(kept) == len(found) else range(len(found))
    return OpenedEntry(tuple(_number(frame, found, places)), fault=fault)


def _salvaged(frame: Frame, max_size: int) -> tuple[Message, ...]:
    """Return the whole messages of a batch that come out of a compression before its damage."""
    metadata, payload = frame.metadata, byte_view(frame.payload)
    if not metadata.HasField("num_messages_in_batch") or metadata.compacted_batch_indexes:
        return ()
    try:
        codec = compression_name(metadata)
        check_claim(codec, len(payload), metadata.uncompressed_size, max_size)
    except DecodeError:
        return ()
    good = memoryview(salvage(codec, payload, metadata.uncompressed_size))
    found, _ = _split_partly(good, frame.message_count)
    return tuple(_number(frame, found, range(len(found))))


def decompress_payload(
    metadata: MessageMetadata, payload: Buffer, *, max_size: int = DEFAULT_MAX_SIZE
) -> memoryview:
    """Return the payload as the producer had it; for a chunked message give the chunks joined."""
    codec = compression_name(metadata)
    if codec == "none":
        return byte_view(payload)
    return memoryview(decompress(codec, byte_view(payload), metadata.uncompressed_size, max_size=max_size))


def split_batch(payload: Buffer, count: int) -> Iterator[tuple[SingleMessageMetadata, memoryview]]:
    """Yield metadata and payload of the messages in a decompressed batch of at most `count`.

    It may end early, after a whole message: a compacted batch need not keep placeholders. DecodeError
    where a size does not fit, or bytes are left over.
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
    """Return the bytes of a batch before compression; sets `payload_size` of copies, not of what is given."""
    parts: list[bytes] = []
    for metadata, payload in messages:
        sized = SingleMessageMetadata()
        sized.CopyFrom(metadata)
        sized.payload_size = len(payload)
        head = sized.SerializeToString()
        parts += (_U32.pack(len(head)), head, bytes(payload))
    return b"".join(parts)


def _split_partly(payload: memoryview, count: int) -> tuple[list[_Found], DecodeError | None]:
    """Return the whole messages of a batch, and what is wrong after them."""
    found: list[_Found] = []
    try:
        for message in split_batch(payload, count):
            found.append(message)
    except DecodeError as error:
        return found, error
    return found, None


def _number(frame: Frame, found: list[_Found], places: Sequence[int]) -> Iterator[Message]:
    """Give each message its place in the batch and its index."""
    last, width = frame.index, frame.index_width
    for place, (metadata, payload) in zip(places, found, strict=True):
        index = None if last is None else last - max(0, width - 1 - place)
        yield Message(place, index, metadata, payload)


def _places(frame: Frame, found: int) -> Sequence[int] | None:
    """Return the batch index of each message found: all, or those that compaction kept; None if neither."""
    count = frame.message_count
    if found == count:
        return range(count)
    kept = list(frame.metadata.compacted_batch_indexes)
    if len(kept) == found and all(0 <= place < count for place in kept):
        return kept
    return None
