"""Entry frames: the data of an entry, as a Pulsar broker writes it to BookKeeper.

    [0x0e02, int32 size, BrokerEntryMetadata]  [0x0e01, int32 CRC-32C]  int32 size, MessageMetadata, payload

Both parts in brackets are optional. The checksum covers everything after itself, so adding or removing the
broker metadata does not change it. All sizes are big-endian. An entry of a compacted ledger also contains the
position of the original entry:

    int32 size, MessageIdData, int32 size, frame

Sources: apache/pulsar Commands.java (addBrokerEntryMetadata), PulsarApi.proto, RawMessageImpl.java,
ManagedLedgerInterceptorImpl.beforeAddEntry, AppendIndexMetadataInterceptor,
AppendBrokerTimestampMetadataInterceptor; PIP-70.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message

from pulsar_meta.codecs.backends import Verdict, crc32c
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.reader import Buffer, Reader, byte_view
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageIdData, MessageMetadata

BROKER_METADATA_MAGIC: Final = 0x0E02
CHECKSUM_MAGIC: Final = 0x0E01

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Frame:
    """An entry's frame. `payload` is a view of the decoder's input, still compressed, encrypted and batched.

    `metadata_offset` is the offset (in the frame) of the size of MessageMetadata, the first byte that the
    checksum covers.
    """

    broker_metadata: BrokerEntryMetadata | None
    checksum: Verdict
    metadata: MessageMetadata
    payload: memoryview = field(repr=False)
    metadata_offset: int = 0
    stored_checksum: int | None = None

    @property
    def index(self) -> int | None:
        """The index that the broker assigned to the entry's last message (PIP-70), or None."""
        broker = self.broker_metadata
        return broker.index if broker is not None and broker.HasField("index") else None

    @property
    def broker_timestamp(self) -> int | None:
        """The time at which the broker received the entry, in milliseconds since the epoch, or None."""
        broker = self.broker_metadata
        return broker.broker_timestamp if broker is not None and broker.HasField("broker_timestamp") else None

    @property
    def message_count(self) -> int:
        """The number of messages according to the metadata; 1 if the entry is not a batch."""
        return max(1, self.metadata.num_messages_in_batch)

    @property
    def index_width(self) -> int:
        """The number by which the entry advanced the topic's index.

        A batch in a transaction advances it by one, because TopicTransactionBuffer publishes without a count.
        """
        return 1 if self.metadata.HasField("txnid_most_bits") else self.message_count

    @property
    def index_range(self) -> tuple[int, int] | None:
        """The indexes of the first and the last message, or None if the entry has no index.

        The first one is negative if the entry's index is smaller than its batch, as in clients
        (MessageImpl.getIndex).
        """
        last = self.index
        return None if last is None else (last - self.index_width + 1, last)


def decode_frame(data: Buffer, *, verify: bool = True) -> Frame:
    """Decode a frame. Raises DecodeError if a size or a protobuf message does not fit.

    A wrong checksum is no error, but reported in `Frame.checksum`, which is "unchecked" without `verify`.
    """
    reader = Reader(data)
    broker = _broker_metadata(reader)
    stored = _stored_checksum(reader)
    covered, covered_at = reader.rest(), reader.at
    metadata = sized_message(reader, MessageMetadata)
    return Frame(
        broker_metadata=broker,
        checksum=_verdict(stored, covered, verify),
        metadata=metadata,
        payload=reader.rest(),
        metadata_offset=covered_at,
        stored_checksum=stored,
    )


def split_broker_metadata(data: Buffer) -> tuple[BrokerEntryMetadata | None, int]:
    """Return the broker metadata, or None, and the offset of the next part, which is not decoded."""
    reader = Reader(data)
    return _broker_metadata(reader), reader.at


def encode_frame(
    metadata: MessageMetadata,
    payload: Buffer,
    *,
    broker_metadata: BrokerEntryMetadata | None = None,
    checksum: bool = True,
) -> bytes:
    """Encode a frame and compute its checksum; `payload` is already compressed and encrypted."""
    header = metadata.SerializeToString()
    covered = _U32.pack(len(header)) + header + bytes(payload)
    return encode_prefix(broker_metadata) + (encode_checksum(covered) if checksum else b"") + covered


def encode_prefix(broker_metadata: BrokerEntryMetadata | None) -> bytes:
    """Encode the broker metadata that precedes a frame; empty for None."""
    if broker_metadata is None:
        return b""
    body = broker_metadata.SerializeToString()
    return _U16.pack(BROKER_METADATA_MAGIC) + _U32.pack(len(body)) + body


def encode_checksum(covered: Buffer) -> bytes:
    """Return the magic and CRC-32C that precede the bytes `covered`."""
    return _U16.pack(CHECKSUM_MAGIC) + _U32.pack(crc32c(covered))


def sized_message(reader: Reader, kind: type[M]) -> M:
    """Read a message of type `kind` that is prefixed with its size. Raises DecodeError if it does not fit."""
    body = reader.sized(kind.__name__)
    try:
        return parse_message(kind, bytes(body))
    except DecodeError as error:
        raise error.within(start=reader.at - len(body)) from error


def _broker_metadata(reader: Reader) -> BrokerEntryMetadata | None:
    if not _skip_magic(reader, BROKER_METADATA_MAGIC):
        return None
    return sized_message(reader, BrokerEntryMetadata)


def _stored_checksum(reader: Reader) -> int | None:
    if not _skip_magic(reader, CHECKSUM_MAGIC):
        return None
    return int(reader.numbers(_U32, "the frame's checksum")[0])


def _skip_magic(reader: Reader, magic: int) -> bool:
    """Skip the number `magic` if it is next; return True if it was."""
    end = reader.at + _U16.size
    if end > len(reader.view) or _U16.unpack_from(reader.view, reader.at)[0] != magic:
        return False
    reader.at = end
    return True


def _verdict(stored: int | None, covered: memoryview, verify: bool) -> Verdict:
    if stored is None:
        return "absent"
    if not verify:
        return "unchecked"
    return "ok" if crc32c(covered) == stored else "bad"


NO_INDEX: Final = -1
_PACKAGE: Final = "org.apache.pulsar.common.intercept."
INTERCEPTORS: Final = {
    "timestamp": f"{_PACKAGE}AppendBrokerTimestampMetadataInterceptor",
    "index": f"{_PACKAGE}AppendIndexMetadataInterceptor",
}


def strip_broker_metadata(frame: Buffer) -> tuple[memoryview, bool]:
    """Return a view of the frame without broker metadata, and whether there was any.

    Raises DecodeError if the broker metadata is broken.
    """
    broker, at = split_broker_metadata(frame)
    return byte_view(frame)[at:], broker is not None


def parse_interceptors(text: str) -> tuple[str, ...]:
    """Parse a `brokerEntryMetadataInterceptors` setting into the names `timestamp` and `index`, in its order.

    The setting may have class names or these short names. Raises UsageError for unknown and repeated names.
    """
    names = {full: short for short, full in INTERCEPTORS.items()} | {short: short for short in INTERCEPTORS}
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in names:
            raise UsageError(f"unknown interceptor {part!r}: choose {', '.join(INTERCEPTORS)}")
    interceptors = tuple(names[part] for part in parts)
    if len(set(interceptors)) != len(interceptors) or not interceptors:
        raise UsageError(f"invalid interceptors {text!r}: name each one once")
    return interceptors


@dataclass(slots=True)
class MetadataAppender:
    """Adds broker metadata to frames like a topic's interceptors. The index starts at -1, as in a new topic.

    `clock` returns the broker timestamp for a frame's publish time, both in milliseconds since the epoch.
    """

    interceptors: Sequence[str]
    clock: Callable[[int], int]
    last_index: int = NO_INDEX
    replace: bool = False

    def attach(self, frame: Buffer) -> bytes:
        """Return the frame with broker metadata, including the index of its last message.

        Raises DecodeError if it is not a frame, or already has broker metadata and `replace` is False.
        """
        bare, had = strip_broker_metadata(frame)
        if had and not self.replace:
            raise DecodeError("the frame already has broker metadata: add --replace", offset=0)
        decoded = decode_frame(bare, verify=False)
        metadata = BrokerEntryMetadata()
        for name in self.interceptors:
            if name == "timestamp":
                metadata.broker_timestamp = self.clock(decoded.metadata.publish_time)
            else:
                self.last_index += decoded.index_width
                metadata.index = self.last_index
        return encode_prefix(metadata) + bytes(bare)


@dataclass(frozen=True, slots=True)
class RawMessage:
    """The original position of a compacted entry, and its frame as a view of the decoder's input."""

    message_id: MessageIdData
    frame: memoryview = field(repr=False)


def decode_raw_message(data: Buffer) -> RawMessage:
    """Decode an entry of a compacted ledger. Raises DecodeError if a size does not fit."""
    reader = Reader(data)
    message_id, frame = sized_message(reader, MessageIdData), reader.sized("the frame")
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the frame", offset=reader.at)
    return RawMessage(message_id, frame)
