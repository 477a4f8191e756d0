"""Entry frames: what a Pulsar broker hands to BookKeeper for one publish.

    [0x0e02, int32 size, BrokerEntryMetadata]  [0x0e01, int32 CRC-32C]  int32 size, MessageMetadata, payload

Each part in brackets is optional, so there are four shapes. The checksum covers everything after itself, so
adding
or removing the broker's part leaves it valid. All sizes are big-endian. An entry of a compacted ledger
contains the
position of the original entry as well:

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

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.hashes import Verdict, crc32c
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
    """An entry's frame. `payload` is a view into the bytes given: still compressed, encrypted and batched.

    `metadata_offset` counts from the start of the frame to the size of MessageMetadata, where the
    checksum's coverage begins.
    """

    broker_metadata: BrokerEntryMetadata | None
    checksum: Verdict
    metadata: MessageMetadata
    payload: memoryview = field(repr=False)
    metadata_offset: int = 0
    stored_checksum: int | None = None

    @property
    def index(self) -> int | None:
        """The index that the broker gave: that of the entry's last message (PIP-70)."""
        broker = self.broker_metadata
        return broker.index if broker is not None and broker.HasField("index") else None

    @property
    def broker_timestamp(self) -> int | None:
        """When the broker took the entry, in milliseconds since the epoch."""
        broker = self.broker_metadata
        return broker.broker_timestamp if broker is not None and broker.HasField("broker_timestamp") else None

    @property
    def message_count(self) -> int:
        """How many messages the entry says it holds; 1 where it is no batch."""
        return max(1, self.metadata.num_messages_in_batch)

    @property
    def index_width(self) -> int:
        """By how many the entry moved the topic's index.

        A batch in a transaction moved it by one, whatever it holds: TopicTransactionBuffer publishes
        without a count.
        """
        return 1 if self.metadata.HasField("txnid_most_bits") else self.message_count

    @property
    def index_range(self) -> tuple[int, int] | None:
        """The indexes of the first and the last message, None without an index.

        The first one is negative if the entry's index is smaller than its batch: clients subtract in the
        same way (MessageImpl.getIndex).
        """
        last = self.index
        return None if last is None else (last - self.index_width + 1, last)


def decode_frame(data: Buffer, *, verify: bool = True) -> Frame:
    """Return the frame that `data` is from its first to its last byte.

    A wrong checksum is reported in `Frame.checksum`, not raised; without `verify` it stays "unchecked".
    DecodeError where a size or a protobuf message does not fit.
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
    """Return the broker's part and where the rest begins (0 without one); the rest is not looked at."""
    reader = Reader(data)
    return _broker_metadata(reader), reader.at


def encode_frame(
    metadata: MessageMetadata,
    payload: Buffer,
    *,
    broker_metadata: BrokerEntryMetadata | None = None,
    checksum: bool = True,
) -> bytes:
    """Return the bytes of a frame; `payload` is taken as it is, the checksum is computed."""
    head = metadata.SerializeToString()
    covered = _U32.pack(len(head)) + head + bytes(payload)
    return encode_prefix(broker_metadata) + (encode_checksum(covered) if checksum else b"") + covered


def encode_prefix(broker_metadata: BrokerEntryMetadata | None) -> bytes:
    """Return the broker's part that stands before a frame; nothing for None."""
    if broker_metadata is None:
        return b""
    body = broker_metadata.SerializeToString()
    return _U16.pack(BROKER_METADATA_MAGIC) + _U32.pack(len(body)) + body


def encode_checksum(covered: Buffer) -> bytes:
    """Return magic and CRC-32C for the bytes that follow them."""
    return _U16.pack(CHECKSUM_MAGIC) + _U32.pack(crc32c(covered))


def sized_message(reader: Reader, kind: type[M]) -> M:
    """Return the message of type `kind` that follows its size; DecodeError where it does not fit."""
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
    """Return whether the number `magic` comes next, and step over it."""
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
    """Return the frame without the broker's part, and whether there was one; the bytes are not copied.

    DecodeError where the broker's part does not fit into the bytes.
    """
    broker, at = split_broker_metadata(frame)
    return byte_view(frame)[at:], broker is not None


def parse_interceptors(text: str) -> tuple[str, ...]:
    """Return the interceptors of a `brokerEntryMetadataInterceptors` setting, in its order.

    Both the classes' names and `timestamp`, `index` are taken; UsageError for others and for repeated ones.
    """
    names = {full: short for short, full in INTERCEPTORS.items()} | {short: short for short in INTERCEPTORS}
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for name in chosen:
        if name not in names:
            raise UsageError(f"no interceptor {name!r}: there are {', '.join(INTERCEPTORS)}")
    found = tuple(names[name] for name in chosen)
    if len(set(found)) != len(found) or not found:
        raise UsageError(f"{text!r}: expected interceptors, each once")
    return found


@dataclass(slots=True)
class MetadataAppender:
    """A topic's interceptors and its index generator, which starts at -1 as a new topic's does.

    `clock` returns milliseconds since the epoch for a frame's publish time.
    """

    interceptors: Sequence[str]
    clock: Callable[[int], int]
    last_index: int = NO_INDEX
    replace: bool = False

    def attach(self, frame: Buffer) -> bytes:
        """Return the frame with the broker's part in front, its index that of its last message.

        DecodeError where it is no frame, or has such a part already and is not to be replaced.
        """
        bare, had = strip_broker_metadata(frame)
        if had and not self.replace:
            raise DecodeError("the frame has broker metadata already (--replace replaces it)", offset=0)
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
    """Where a compacted entry was, and its frame as a view into the bytes given."""

    message_id: MessageIdData
    frame: memoryview = field(repr=False)


def decode_raw_message(data: Buffer) -> RawMessage:
    """Return the parts of a compacted ledger's entry; DecodeError where sizes do not fit to the byte."""
    reader = Reader(data)
    message_id, frame = sized_message(reader, MessageIdData), reader.sized("the frame")
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the frame", offset=reader.at)
    return RawMessage(message_id, frame)
