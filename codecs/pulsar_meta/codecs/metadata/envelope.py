"""The records of managed ledgers and cursors: the compression envelope, and the messages in it.

    0    2  magic 0x4778, big-endian
    2    4  size M of the header message, signed, big-endian
    6    M  ManagedLedgerInfoMetadata or ManagedCursorInfoMetadata (the same shape): codec, raw size
    6+M  …  the compressed message, to the end of the value

A protobuf value cannot begin with 0x47 (a tag of wire type 7), so the magic is unambiguous. Cursor ledgers
hold
PositionInfo messages without an envelope.
Sources: apache/pulsar MLDataFormats.proto, MetaStoreImpl.java, MetadataCompressionConfig.java,
ManagedCursorImpl.java; PIP-146, PIP-270, PIP-381.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE, compress, decompress
from pulsar_meta.codecs.errors import DecodeError, UsageError, decoding
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo

if TYPE_CHECKING:
    from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata


MAGIC: Final = b"\x47\x78"
_HEADER_AT: Final = 6
_MAX_RAW_SIZE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EnvelopeHeader:
    """What the envelope says of itself: the codec's name, the claimed raw size, where the body begins.

    `unknown` are the bytes of header fields that this program does not know.
    """

    codec: str
    raw_size: int
    body_at: int
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class Envelope:
    """An opened envelope: the codec's name, the size of the whole value and of the message, the message.

    `unknown` are the bytes of header fields that this program does not know.
    """

    codec: str
    stored_size: int
    raw_size: int
    payload: bytes = field(repr=False)
    unknown: bytes = b""


def is_enveloped(data: bytes) -> bool:
    """Return whether a value begins with the envelope's magic."""
    return data[:2] == MAGIC


def open_envelope(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> Envelope | None:
    """Return the opened envelope, or None where the value has none and is the message itself.

    DecodeError where the header or the compressed message is broken or claims more than `max_size` bytes.
    """
    if not is_enveloped(data):
        return None
    header = read_header(data)
    with decoding(what="envelope", start=header.body_at):
        body = memoryview(data)[header.body_at :]
        payload = decompress(header.codec, body, header.raw_size, max_size=max_size)
    return Envelope(header.codec, len(data), header.raw_size, payload, header.unknown)


def read_header(data: bytes) -> EnvelopeHeader:
    """Return what an enveloped value says of itself, or raise DecodeError."""
    if len(data) < _HEADER_AT:
        raise DecodeError(
            f"envelope: {len(data)} bytes, its header alone needs {_HEADER_AT}", offset=len(data)
        )
    size = int.from_bytes(data[2:_HEADER_AT], "big", signed=True)
    body_at = _HEADER_AT + size
    if size < 0 or body_at > len(data):
        raise DecodeError(
            f"envelope: header message of {size} bytes, {len(data) - _HEADER_AT} follow", offset=2
        )
    # Imported here: most values have no envelope, and protobuf is a third of a command's start-up.
    from pulsar_meta.codecs.protobuf.parse import parse_part
    from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata

    try:
        header = parse_part(ManagedLedgerInfoMetadata, data[_HEADER_AT:body_at])
    except DecodeError as error:
        raise DecodeError("envelope: the header message is not protobuf", offset=_HEADER_AT) from error
    codec, raw_size = _codec_of(header), _raw_size_of(header)
    header.ClearField("compressionType")
    header.ClearField("uncompressedSize")
    return EnvelopeHeader(codec, raw_size, body_at, header.SerializePartialToString())


def wrap_envelope(payload: bytes, codec: str, *, unknown: bytes = b"") -> bytes:
    """Return `payload` in an envelope, also for the codec "none" (which Pulsar reads and never writes).

    `unknown` are header fields of a later release, as `read_header` found them.
    """
    if codec not in CODECS:
        raise UsageError(f"no codec {codec!r}: there are {', '.join(CODECS)}")
    if len(payload) > _MAX_RAW_SIZE:
        raise UsageError(f"an envelope holds at most {_MAX_RAW_SIZE} bytes, not {len(payload)}")
    from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata

    header = ManagedLedgerInfoMetadata(uncompressedSize=len(payload))
    header.compressionType = CODECS.index(codec)  # type: ignore[assignment]
    message = header.SerializeToString() + unknown
    return b"".join((MAGIC, len(message).to_bytes(4, "big"), message, compress(codec, payload)))


def stored_form(payload: bytes, codec: str, *, threshold: int | None = None, unknown: bytes = b"") -> bytes:
    """Return what a broker stores: an envelope if `codec` is not "none" and the size exceeds `threshold`.

    The comparison is strict, as Pulsar's; without a threshold everything is compressed, the empty value
    excepted, which every broker writes and reads bare.
    """
    if codec == "none" or not payload or (threshold is not None and len(payload) <= threshold):
        return payload
    return wrap_envelope(payload, codec, unknown=unknown)


def _codec_of(header: ManagedLedgerInfoMetadata) -> str:
    if header.HasField("compressionType"):
        return CODECS[header.compressionType]
    from google.protobuf.unknown_fields import UnknownFieldSet

    # The enum is closed: a number it does not know is parsed into the unknown fields.
    for unknown in UnknownFieldSet(header):  # type: ignore[attr-defined]
        if unknown.field_number == 1:
            raise DecodeError(f"envelope: unknown compression type {unknown.data}", offset=_HEADER_AT)
    raise DecodeError("envelope: the header names no compression type", offset=_HEADER_AT)


def _raw_size_of(header: ManagedLedgerInfoMetadata) -> int:
    if not header.HasField("uncompressedSize"):
        raise DecodeError("envelope: the header has no uncompressed size", offset=_HEADER_AT)
    return header.uncompressedSize


# The cursorsLedgerId of a record that itself holds the cursor's state.
STATE_IN_RECORD: Final = -1

_POSITION_INFO_BEGINS: Final = 0x08
_FOOTER_BEGINS: Final = ord("{")


def decode_cursor(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> ManagedCursorInfo:
    """Return the message in a store value, plain or in an envelope; DecodeError where there is none."""
    envelope = open_envelope(data, max_size=max_size) if data[:2] == MAGIC else None
    return parse_message(ManagedCursorInfo, data if envelope is None else envelope.payload)


def decode_position_info(data: bytes | memoryview) -> PositionInfo:
    """Return the message in an entry of a cursor ledger (without the bookie's header and digest).

    DecodeError for everything else, naming the two forms that only other builds of Pulsar write: the
    footer of a state split over several entries (PIP-381), and entries that DataStax's fork compresses.
    """
    foreign = foreign_position_form(data)
    if foreign:
        raise DecodeError(foreign, offset=0)
    return parse_message(PositionInfo, data)


def foreign_position_form(data: bytes | memoryview) -> str | None:
    """Name the form of a cursor-ledger entry that no Apache release writes, or return None."""
    first = data[0] if len(data) else _POSITION_INFO_BEGINS
    if first == _FOOTER_BEGINS:
        return "the footer of a cursor state that is split over several entries (PIP-381), not a PositionInfo"
    if first != _POSITION_INFO_BEGINS and len(data) > 4 and first < 0x08:
        size = int.from_bytes(data[:4], "big")
        return f"looks like a compressed cursor entry (DataStax: size {size}, then the codec's bytes)"
    return None


def decode_managed_ledger(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> ManagedLedgerInfo:
    """Return the message in a store value, plain or in an envelope; DecodeError where there is none.

    An empty value is a managed ledger that was just created: an empty message.
    """
    envelope = open_envelope(data, max_size=max_size)
    return parse_message(ManagedLedgerInfo, data if envelope is None else envelope.payload)


def ledgers_by_id(info: ManagedLedgerInfo) -> list[ManagedLedgerInfo.LedgerInfo]:
    """Return the ledgers in the order of their ids, in which they were written to.

    Brokers that offload or set ledger properties store them in the order of a hash map.
    """
    return sorted(info.ledgerInfo, key=lambda ledger: ledger.ledgerId)
