"""Records of managed ledgers and cursors: their paths, the compression envelope and the messages inside.

    0    2  magic 0x4778, big-endian
    2    4  size M of the header message, signed, big-endian
    6    M  ManagedLedgerInfoMetadata or ManagedCursorInfoMetadata (same fields): codec, raw size
    6+M  …  the compressed message, to the end of the value

A protobuf message can't begin with 0x47 (a tag of wire type 7), so the magic is unambiguous. Cursor ledgers
contain PositionInfo messages without an envelope.

Paths are ambiguous in a V1 namespace named `persistent`. There, a record that decodes as a cursor is a
cursor's. If a cluster has both such V1 topics and a V2 topic `persistent`, brokers can't load the V2 topic,
because they read the records of the V1 topics below it as its cursors (tested on 4.0.7).

Sources: apache/pulsar MLDataFormats.proto, MetaStoreImpl.java, MetadataCompressionConfig.java,
ManagedCursorImpl.java; PIP-146, PIP-270, PIP-381.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.compression import (
    CODECS,
    DEFAULT_MAX_SIZE,
    HARMLESS,
    LIMITS,
    check_claim,
    compress,
    decompress,
    recorded_size,
)
from pulsar_meta.codecs.errors import DecodeError, UsageError, decoding
from pulsar_meta.codecs.metadata.acks import check_bit_sets
from pulsar_meta.codecs.names import TopicName, decode_name, managed_ledger_places
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo

if TYPE_CHECKING:
    from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata

MAGIC: Final = b"\x47\x78"
_HEADER_AT: Final = 6
_MAX_RAW_SIZE: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class EnvelopeHeader:
    """An envelope's header: the codec's name, the claimed raw size in bytes, and the offset of the body.

    `unknown` has the bytes of header fields that are not in the .proto.
    """

    codec: str
    raw_size: int
    body_at: int
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class Envelope:
    """An opened envelope: the codec's name, the sizes of the value and of the message in bytes, the message.

    `unknown` has the bytes of header fields that are not in the .proto.
    """

    codec: str
    stored_size: int
    raw_size: int
    payload: bytes = field(repr=False)
    unknown: bytes = b""


def is_enveloped(data: bytes) -> bool:
    """Return True if a value begins with the envelope's magic."""
    return data[:2] == MAGIC


def open_envelope(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> Envelope | None:
    """Open the envelope of a value; None if the value has no envelope.

    Raises DecodeError if the header or the compressed message is broken or claims more than `max_size` bytes.
    Raises LimitError for a claim above the limits of the run, unless `max_size` is above its default.
    """
    if not is_enveloped(data):
        return None
    header = read_header(data)
    with decoding(what="envelope", start=header.body_at):
        body = memoryview(data)[header.body_at :]
        if header.raw_size > HARMLESS and max_size <= DEFAULT_MAX_SIZE:
            _check_limits(header, body, len(data), max_size)
        payload = decompress(header.codec, body, header.raw_size, max_size=max_size)
    return Envelope(header.codec, len(data), header.raw_size, payload, header.unknown)


def _check_limits(header: EnvelopeHeader, body: memoryview, stored: int, max_size: int) -> None:
    """Raise LimitError if a message is too large. A size that it can't have is damage, a DecodeError."""
    check_claim(header.codec, len(body), header.raw_size, max_size)
    if recorded_size(header.codec, bytes(body[:32])) in (None, header.raw_size):
        LIMITS.check_value(stored, header.raw_size)


def read_header(data: bytes) -> EnvelopeHeader:
    """Decode the header of a value with an envelope. Raises DecodeError if it is broken."""
    if len(data) < _HEADER_AT:
        raise DecodeError(
            f"envelope: found {len(data)} bytes, expected at least {_HEADER_AT}", offset=len(data)
        )
    size = int.from_bytes(data[2:_HEADER_AT], "big", signed=True)
    body_at = _HEADER_AT + size
    if size < 0 or body_at > len(data):
        raise DecodeError(
            f"envelope: its header claims {size} bytes, {len(data) - _HEADER_AT} are left", offset=2
        )
    # Imported late, because most values have no envelope, and protobuf is a third of a command's start-up.
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
    """Wrap `payload` in an envelope, even for the codec "none" (which Pulsar reads but never writes).

    `unknown` has additional header fields, as `read_header` returned them. Raises UsageError if the codec is
    unknown or the payload too large.
    """
    if codec not in CODECS:
        raise UsageError(f"unknown codec {codec!r}: choose {', '.join(CODECS)}")
    if len(payload) > _MAX_RAW_SIZE:
        raise UsageError(f"{len(payload)} bytes don't fit into an envelope: the limit is {_MAX_RAW_SIZE}")
    from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata

    header = ManagedLedgerInfoMetadata(uncompressedSize=len(payload))
    header.compressionType = CODECS.index(codec)  # type: ignore[assignment]
    message = header.SerializeToString() + unknown
    return b"".join((MAGIC, len(message).to_bytes(4, "big"), message, compress(codec, payload)))


def stored_form(payload: bytes, codec: str, *, threshold: int | None = None, unknown: bytes = b"") -> bytes:
    """Encode a record as a broker stores it: if the size exceeds `threshold`, compressed and in an envelope.

    Without a threshold, everything is compressed, except for the empty value, which brokers never compress.
    """
    if codec == "none" or not payload or (threshold is not None and len(payload) <= threshold):
        return payload
    return wrap_envelope(payload, codec, unknown=unknown)


def _codec_of(header: ManagedLedgerInfoMetadata) -> str:
    if header.HasField("compressionType"):
        return CODECS[header.compressionType]
    from google.protobuf.unknown_fields import UnknownFieldSet

    # The enum is closed, so protobuf parses unknown numbers into the unknown fields.
    for unknown in UnknownFieldSet(header):  # type: ignore[attr-defined]
        if unknown.field_number == 1:
            raise DecodeError(f"envelope: unknown compression type {unknown.data}", offset=_HEADER_AT)
    raise DecodeError("envelope: the header has no compression type", offset=_HEADER_AT)


def _raw_size_of(header: ManagedLedgerInfoMetadata) -> int:
    if not header.HasField("uncompressedSize"):
        raise DecodeError("envelope: the header has no uncompressed size", offset=_HEADER_AT)
    return header.uncompressedSize


# The cursorsLedgerId of a record that contains the cursor's state.
STATE_IN_RECORD: Final = -1

_POSITION_INFO_BEGINS: Final = 0x08
_FOOTER_BEGINS: Final = ord("{")


def decode_cursor(data: bytes) -> ManagedCursorInfo:
    """Decode a cursor's record, with or without an envelope. Raises DecodeError if it is broken."""
    envelope = open_envelope(data)
    payload = data if envelope is None else envelope.payload
    record = parse_message(ManagedCursorInfo, payload)
    check_bit_sets(record, len(payload))
    return record


def decode_position_info(data: bytes | memoryview) -> PositionInfo:
    """Decode an entry of a cursor ledger (without the bookie's header and digest).

    Raises DecodeError if it is not a PositionInfo. The message names two forms that no Apache release writes:
    the footer of a state that is split over several entries (PIP-381), and compressed entries (DataStax's
    fork).
    """
    foreign = foreign_position_form(data)
    if foreign:
        raise DecodeError(foreign, offset=0)
    position = parse_message(PositionInfo, data)
    check_bit_sets(position, len(data))
    return position


def foreign_position_form(data: bytes | memoryview) -> str | None:
    """Describe a cursor ledger's entry in a form that no Apache release writes; None for all others."""
    first = data[0] if len(data) else _POSITION_INFO_BEGINS
    if first == _FOOTER_BEGINS:
        return "the footer of a cursor state that is split over several entries (PIP-381), not a PositionInfo"
    if first != _POSITION_INFO_BEGINS and len(data) > 4 and first < 0x08:
        size = int.from_bytes(data[:4], "big")
        return f"looks like a compressed cursor entry (DataStax: size {size}, then the codec's bytes)"
    return None


def decode_managed_ledger(data: bytes) -> ManagedLedgerInfo:
    """Decode a managed ledger's record, with or without an envelope. Raises DecodeError if it is broken.

    The record of a new managed ledger is empty and decodes to an empty message.
    """
    envelope = open_envelope(data)
    return parse_message(ManagedLedgerInfo, data if envelope is None else envelope.payload)


def ledgers_by_id(info: ManagedLedgerInfo) -> list[ManagedLedgerInfo.LedgerInfo]:
    """Return the ledgers sorted by id, which is the order of their entries.

    Brokers that offload or set ledger properties store them in the order of a hash map.
    """
    return sorted(info.ledgerInfo, key=lambda ledger: ledger.ledgerId)


# An empty value at this path is not a topic, but the parent node of V1 topics.
_v1_parent_re = re.compile(r"/managed-ledgers/[^/]+/[^/]+/persistent/persistent")


def managed_place(path: str, value: bytes) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for the record `value` at a path, or None if it is another path."""
    places = managed_ledger_places(path)
    if len(places) < 2:
        is_parent = not value and _v1_parent_re.fullmatch(path)
        return places[0] if places and not is_parent else None
    return next((place for place in places if (place[1] is not None) == _is_cursor(value)), places[0])


class ManagedPlaces:
    """A faster `managed_place` for values in the order of a scan, in which cursors follow their topic."""

    def __init__(self) -> None:
        self._below, self._topic = "", TopicName("", "", "")

    def of(self, path: str, value: bytes) -> tuple[TopicName, str | None] | None:
        """Return the same as `managed_place`. Consecutive cursors of a topic share one TopicName object."""
        cursor = path.removeprefix(self._below)
        if cursor and "/" not in cursor:
            try:
                return self._topic, decode_name(cursor)
            except DecodeError:
                return None
        place = managed_place(path, value)
        if place is not None:
            topic_path = path if place[1] is None else path.rpartition("/")[0]
            # Below a topic named `persistent` there may be V1 topics.
            plain = len(managed_ledger_places(topic_path)) == 1 and not topic_path.endswith("/persistent")
            self._below, self._topic = f"{topic_path}/" if plain else "", place[0]
        return place


def _is_cursor(value: bytes) -> bool:
    try:
        decode_cursor(value)
    except DecodeError:
        return False
    return True
