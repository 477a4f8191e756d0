"""The entry frame: what a Pulsar broker hands to BookKeeper for one publish.

    [0x0e02, int32 size, BrokerEntryMetadata]  [0x0e01, int32 CRC-32C]  int32 size, MessageMetadata, payload

Both parts in brackets are there or not, each by itself: four shapes. The checksum covers everything
after itself. All sizes are big-endian.

Sources: apache/pulsar Commands.java, BrokerEntryMetadata in PulsarApi.proto (PIP-70).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import Message

from pulsar_meta.codecs.checksum import Verdict, crc32c
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.reader import Buffer, byte_view
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

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
        """The indexes of the first and the last message, None without an index."""
        last = self.index
        return None if last is None else (max(0, last - self.index_width + 1), last)


def decode_frame(data: Buffer, *, verify: bool = True) -> Frame:
    """Return the frame that `data` is from its first to its last byte.

    A wrong checksum is told in `Frame.checksum`, not raised; without `verify` it stays "unchecked".
    DecodeError where a size or a protobuf message does not fit.
    """
    view = byte_view(data)
    broker, at = _broker_metadata(view)
    stored, at = _stored_checksum(view, at)
    metadata, payload_at = _sized(view, at, MessageMetadata)
    return Frame(
        broker_metadata=broker,
        checksum=_verdict(stored, view[at:], verify),
        metadata=metadata,
        payload=view[payload_at:],
        metadata_offset=at,
        stored_checksum=stored,
    )


def decode_broker_metadata(data: Buffer) -> BrokerEntryMetadata | None:
    """Return what the broker put before the frame, None where it put nothing; the rest is not looked at."""
    return _broker_metadata(byte_view(data))[0]


def split_broker_metadata(data: Buffer) -> tuple[BrokerEntryMetadata | None, int]:
    """Return the broker's part and where the rest begins (0 without one); the rest is not looked at."""
    return _broker_metadata(byte_view(data))


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


def _broker_metadata(view: memoryview) -> tuple[BrokerEntryMetadata | None, int]:
    if _magic(view, 0) != BROKER_METADATA_MAGIC:
        return None, 0
    return _sized(view, 2, BrokerEntryMetadata)


def _stored_checksum(view: memoryview, at: int) -> tuple[int | None, int]:
    if _magic(view, at) != CHECKSUM_MAGIC:
        return None, at
    return _u32(view, at + 2, "the frame's checksum"), at + 6


def _verdict(stored: int | None, covered: memoryview, verify: bool) -> Verdict:
    if stored is None:
        return "absent"
    if not verify:
        return "unchecked"
    return "ok" if crc32c(covered) == stored else "bad"


def _magic(view: memoryview, at: int) -> int | None:
    return _U16.unpack_from(view, at)[0] if len(view) >= at + 2 else None


def _u32(view: memoryview, at: int, what: str) -> int:
    if len(view) < at + 4:
        raise DecodeError(f"expected 4 bytes of {what}, found {max(0, len(view) - at)}", offset=at)
    return int(_U32.unpack_from(view, at)[0])


def _sized(view: memoryview, at: int, kind: type[M]) -> tuple[M, int]:
    """Return the message behind its size at `at`, and where it ends."""
    name = kind.DESCRIPTOR.name
    size = _u32(view, at, f"the size of {name}")
    end = at + 4 + size
    if end > len(view):
        raise DecodeError(f"{name} claims {size} bytes, {len(view) - at - 4} are left", offset=at)
    return parse_at(kind, view[at + 4 : end], at + 4), end


def parse_at(kind: type[M], data: Buffer, offset: int) -> M:
    """Return `data` as a message of type `kind`; DecodeError, with the `offset` given, where it is none."""
    try:
        return parse_message(kind, bytes(data))
    except DecodeError as error:
        raise error.within(start=offset) from error
