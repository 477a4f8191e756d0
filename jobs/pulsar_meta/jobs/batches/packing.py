"""Pack batches into entry frames with shared metadata, from stored entries or from lines of JSON.

Metadata that all messages of a batch share is hoisted into the entry's metadata. A stream of frames has the
`frames:` form: each frame follows its 4-byte big-endian size.

Sources: apache/pulsar BatchMessageContainerImpl.createOpSendMsg (what a batch takes from its first message),
Commands.serializeSingleMessageInBatchWithPayload; issue #16680 (hoisted properties).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final

from pulsar_meta.codecs.compression import compress
from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.frames.batch import Message as StoredMessage
from pulsar_meta.codecs.frames.batch import OpenedEntry, compression_name, join_batch
from pulsar_meta.codecs.frames.entry_json import properties_of
from pulsar_meta.codecs.frames.frame import (
    Frame,
    MetadataAppender,
    decode_frame,
    encode_frame,
    strip_broker_metadata,
)
from pulsar_meta.codecs.json_text import read_json
from pulsar_meta.codecs.protobuf.from_json import fill_message
from pulsar_meta.codecs.text_bytes import any_base64
from pulsar_meta.jobs.batches.batching import Batch, Batcher, Batching, Breaks, Outgoing
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.proto.PulsarApi_pb2 import (
    CompressionType,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

# A larger size can't be a frame's, because brokers' limits for messages are far lower.
MAX_FRAME: Final = 1 << 30

_SIZE: Final = struct.Struct(">I")
_PIECE: Final = 1 << 20


@dataclass(slots=True)
class FrameCount:
    """The number of frames, and how many of them were changed, had no broker metadata, or were corrupt."""

    frames: int = 0
    changed: int = 0
    bare: int = 0
    bad: int = 0


def read_frames(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the frames of a stream. Raises DecodeError with the offset if the last one is truncated."""
    at = 0
    while head := stream.read(4):
        if len(head) < 4:
            raise DecodeError(f"expected the 4 bytes of a frame's size, found {len(head)}", offset=at)
        size = int(_SIZE.unpack(head)[0])
        if size > MAX_FRAME:
            raise DecodeError(f"a frame claims {size} bytes, over the limit of {MAX_FRAME}", offset=at)
        frame = _read(stream, size)
        if len(frame) < size:
            raise DecodeError(f"a frame claims {size} bytes, but only {len(frame)} are left", offset=at)
        yield frame
        at += 4 + size


def write_frame(frame: bytes | memoryview) -> bytes:
    """Encode a frame after its size."""
    return _SIZE.pack(len(frame)) + bytes(frame)


def strip_frames(frames: Iterator[bytes], count: FrameCount, report: Report) -> Iterator[bytes]:
    """Remove the broker's metadata from frames, in the `frames:` form. Frames without it are unchanged.

    Corrupt frames are unchanged, too, so that later frames keep their places. Each one goes to `report`.
    """

    def strip(frame: bytes) -> bytes | memoryview:
        try:
            decode_frame(frame, verify=False)
            bare, had = strip_broker_metadata(frame)
        except DecodeError as error:
            report(error.within(what=f"frame {count.frames}"))
            count.bad += 1
            return frame
        count.changed += had
        count.bare += not had
        return bare

    return _each(frames, count, strip)


def attach_frames(frames: Iterator[bytes], appender: MetadataAppender, count: FrameCount) -> Iterator[bytes]:
    """Add broker metadata to frames, in the `frames:` form."""

    def attach(frame: bytes) -> bytes:
        count.changed += 1
        return appender.attach(frame)

    return _each(frames, count, attach)


def _each(
    frames: Iterator[bytes], count: FrameCount, change: Callable[[bytes], bytes | memoryview]
) -> Iterator[bytes]:
    for frame in frames:
        try:
            changed = change(frame)
        except DecodeError as error:
            raise error.within(what=f"frame {count.frames}") from error
        count.frames += 1
        yield write_frame(changed)


def _read(stream: IO[bytes], size: int) -> bytes:
    """Read up to `size` bytes, allocating memory only for bytes that arrive."""
    parts, left = [], size
    while left and (piece := stream.read(min(left, _PIECE))):
        parts.append(piece)
        left -= len(piece)
    return b"".join(parts)


# The fields of a message's metadata in a batch that have the same names in MessageMetadata.
_SINGLE: Final = (
    "partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "sequence_id", "null_value",
    "null_partition_key",
)  # fmt: skip
# The fields that a batch takes from its first message.
_FIRST: Final = (
    "producer_name", "sequence_id", "publish_time", "partition_key", "partition_key_b64_encoded",
    "ordering_key", "schema_version", "schema_id", "replicated_from", "txnid_most_bits", "txnid_least_bits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """One message: metadata like that of an unbatched entry, payload, and the codec to use."""

    metadata: MessageMetadata
    payload: bytes
    codec: str = "none"


@dataclass(frozen=True, slots=True)
class Packing:
    """How to make frames: codec (None: that of the batch's first message), checksum, hoisted properties."""

    codec: str | None = None
    checksum: bool = True
    keys: Sequence[str] = ()
    batches_of_one: bool = False


def pack_messages(messages: Iterable[Outgoing], batching: Batching, packing: Packing) -> Iterator[bytes]:
    """Pack messages into frames in the `frames:` form, in the order in which batches are published."""
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
    """Encode the frame of a batch. A single message is not batched unless `batches_of_one`."""
    messages: list[Message] = [outgoing.content for outgoing in batch.messages]
    codec = packing.codec or messages[0].codec
    if len(messages) == 1 and (batch.alone or not packing.batches_of_one):
        metadata = MessageMetadata()
        metadata.CopyFrom(messages[0].metadata)
        return _frame(metadata, messages[0].payload, codec, checksum=packing.checksum)
    metadata = batch_metadata(messages, packing.keys)
    payload = join_batch([(single_metadata(message), message.payload) for message in messages])
    return _frame(metadata, payload, codec, checksum=packing.checksum)


def batch_metadata(messages: Sequence[Message], keys: Sequence[str]) -> MessageMetadata:
    """Make the metadata of a batch: that of its first message, with the hoisted properties only."""
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
    """The properties of a message to put into its batch's metadata, in the order of the keys."""
    values = {pair.key: pair.value for pair in metadata.properties}
    return [KeyValue(key=key, value=values[key]) for key in keys if key in values]


def single_metadata(message: Message) -> SingleMessageMetadata:
    """Make the metadata of a message inside a batch."""
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


# The fields of an entry's metadata that describe the entry instead of its messages.
_OF_THE_ENTRY: Final = ("compression", "uncompressed_size", "num_messages_in_batch", "highest_sequence_id")
_OF_ITS_OWN: Final = (
    "partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "sequence_id", "null_value",
    "null_partition_key",
)  # fmt: skip


@dataclass(slots=True)
class Numbering:
    """Numbers each producer's messages from 0 on."""

    next: Counter[str] = field(default_factory=Counter)

    def number(self, producer: str) -> int:
        """The number of the producer's next message."""
        self.next[producer] += 1
        return self.next[producer] - 1


def outgoing(message: Message, number: int, *, flush: bool) -> Outgoing:
    """Convert a message for the batcher."""
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
    """Yield the messages of an opened entry, without those removed by compaction."""
    codec = compression_name(frame.metadata)
    for stored in opened.messages:
        if not stored.compacted_out:
            yield Message(whole_metadata(frame.metadata, stored), bytes(stored.payload), codec)


def whole_metadata(entry: MessageMetadata, stored: StoredMessage) -> MessageMetadata:
    """Make a message's metadata like that of an unbatched entry."""
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
    """Read messages from lines of JSON. Raises DecodeError with the number of the line.

    A line has `payload` (text) or `payload_base64`, `properties` (an object), `key`, `flush` (publish open
    batches before it), and any field of MessageMetadata. Defaults: `producer`, the next sequence id, the
    clock's time.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        with decoding(what=f"line {number}"):
            yield _message_of_line(read_json(line), producer, clock, numbering)


def _message_of_line(line: Any, producer: str, clock: Callable[[], int], numbering: Numbering) -> Outgoing:
    if not isinstance(line, dict):
        raise DecodeError("a message must be a JSON object")
    rest = dict(line)
    flush, payload = bool(rest.pop("flush", False)), _payload(rest)
    pairs = rest.pop("properties", {})
    if not isinstance(pairs, dict):
        raise DecodeError("properties: expected an object of strings")
    rest["properties"] = [{"key": key, "value": value} for key, value in pairs.items()]
    if "key" in rest:
        rest["partition_key"] = rest.pop("key")
    for name in _OF_THE_ENTRY:
        if name in rest:
            raise DecodeError(f"{name} is set when messages are packed; remove it")
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
        raise DecodeError("a message can't have both payload and payload_base64")
    try:
        return any_base64((encoded or "").encode()) if text is None else text.encode()
    except (AttributeError, ValueError) as error:
        raise DecodeError("payload: expected text, or base64 in payload_base64") from error
