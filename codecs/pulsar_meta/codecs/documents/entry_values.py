"""Frames, bookie entries and wire commands as JSON, without loss.

A correct checksum or digest is shown as "ok", and `encode_value` computes it. A wrong one is shown as stored,
so that encoding returns the same bytes.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.backends import Verdict
from pulsar_meta.codecs.documents.value import Ordered, Value
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import (
    DIGEST_SIZES,
    HEADER,
    DigestType,
    decode_bookie_entry,
    encode_bookie_entry,
)
from pulsar_meta.codecs.frames.frame import CHECKSUM_MAGIC, Frame, decode_frame, encode_frame, encode_prefix
from pulsar_meta.codecs.json_text import from_base64, integer, shown
from pulsar_meta.codecs.protobuf.from_json import json_to_message, message_shape
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.codecs.wire.commands import (
    CommandsValue,
    decode_command_stream,
    decode_commands,
    encode_command_stream,
)
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

KINDS: Final = ("Frame", "BookieEntry", "Command")
_INT64: Final = (-(2**63), 2**63 - 1)
_HEADER_FIELDS: Final = ("ledger_id", "entry_id", "last_confirmed", "length")


def decode_value(kind: str, data: bytes) -> Value:
    """Decode a value of `kind`. If it is broken, the result has only an error."""
    try:
        value, meaning = _DECODERS[kind](data)
        return Value(value, meaning, encode_value(kind, value) == data)
    except DecodeError as error:
        return Value(None, error=error)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Encode a value of `kind`. Raises DecodeError, naming the path of an invalid member."""
    if not isinstance(value, dict):
        raise DecodeError(f"{path}: expected an object, found {shown(value)}")
    if kind == "Frame":
        return _encode_frame(value, path)
    return _encode_bookie_entry(value, path) if kind == "BookieEntry" else encode_command_stream(value, path)


def fits(kind: str, data: bytes) -> bool:
    """Return True if `data` is certainly of `kind`: a checksum matches, or it parses completely."""
    try:
        if kind == "BookieEntry":
            entry = decode_bookie_entry(data)
            return entry.digest == "ok" and entry.digest_type != "DUMMY"
        if kind == "Command":
            return bool(list(decode_commands(data)))
        frame = decode_frame(data)
        return frame.checksum == "ok" or frame.metadata.publish_time > 0
    except DecodeError:
        return False


class FrameMeaning(TypedDict):
    """Summary of a frame; times are ISO 8601."""

    frame_checksum: Verdict
    messages: int
    published: str | None
    broker_time: NotRequired[str | None]
    first_index: NotRequired[int]
    last_index: NotRequired[int]


class FrameValue(Ordered):
    """A frame; `checksum` is "ok" or the wrong checksum that is stored, `payload` is base64."""

    broker_metadata: NotRequired[Annotated[dict[str, Any], message_shape(BrokerEntryMetadata)]]
    checksum: NotRequired[Literal["ok"] | int]
    metadata: Annotated[dict[str, Any], message_shape(MessageMetadata)]
    payload: str


class FrameInside(FrameValue):
    """The frame in a bookie's entry, and its summary."""

    meaning: FrameMeaning


class EntryMeaning(TypedDict):
    """Summary of a bookie's entry; `frame` is present if its data is a frame."""

    position: str
    digest: Verdict
    frame: NotRequired[FrameInside]


class EntryValue(Ordered):
    """A bookie's entry; `data` is base64, `digest` is "ok" or the wrong digest that is stored (base64)."""

    ledger_id: int
    entry_id: int
    last_confirmed: int
    length: int
    digest_type: DigestType
    digest: str
    data: str


def shapes() -> dict[str, Any]:
    """Return the JSON type of each kind."""
    return {"Frame": FrameValue, "BookieEntry": EntryValue, "Command": CommandsValue}


def _decode_frame(data: bytes) -> tuple[FrameValue, FrameMeaning]:
    frame = decode_frame(data)
    return _frame_value(frame), frame_meaning(frame)


def _frame_value(frame: Frame) -> FrameValue:
    value: FrameValue = {"metadata": message_to_json(frame.metadata), "payload": _base64(frame.payload)}
    if frame.broker_metadata is not None:
        value["broker_metadata"] = message_to_json(frame.broker_metadata)
    if frame.stored_checksum is not None:
        value["checksum"] = "ok" if frame.checksum == "ok" else frame.stored_checksum
    return value


def frame_meaning(frame: Frame) -> FrameMeaning:
    """Summarize a frame without opening its payload."""
    meaning: FrameMeaning = {
        "frame_checksum": frame.checksum,
        "messages": frame.message_count,
        "published": iso_time(frame.metadata.publish_time),
    }
    if frame.broker_timestamp is not None:
        meaning["broker_time"] = iso_time(frame.broker_timestamp)
    if frame.index_range is not None:
        meaning["first_index"], meaning["last_index"] = frame.index_range
    return meaning


def _encode_frame(value: dict[str, Any], path: str) -> bytes:
    _only(value, path, "broker_metadata", "checksum", "metadata", "payload")
    broker, checksum = value.get("broker_metadata"), value.get("checksum")
    body = encode_frame(
        json_to_message(MessageMetadata, value.get("metadata"), f"{path}.metadata"),
        from_base64(value.get("payload"), f"{path}.payload"),
        checksum=checksum == "ok",
    )
    if checksum is not None and checksum != "ok":
        stored = integer(checksum, f"{path}.checksum", 0, 2**32 - 1)
        body = CHECKSUM_MAGIC.to_bytes(2, "big") + stored.to_bytes(4, "big") + body
    if broker is None:
        return body
    return encode_prefix(json_to_message(BrokerEntryMetadata, broker, f"{path}.broker_metadata")) + body


def _decode_bookie_entry(data: bytes) -> tuple[EntryValue, EntryMeaning]:
    entry = decode_bookie_entry(data)
    stored = data[HEADER.size : HEADER.size + DIGEST_SIZES[entry.digest_type]]
    value: EntryValue = {
        "ledger_id": entry.ledger_id,
        "entry_id": entry.entry_id,
        "last_confirmed": entry.last_confirmed,
        "length": entry.length,
        "digest_type": entry.digest_type,
        "digest": "ok" if entry.digest == "ok" else _base64(stored),
        "data": _base64(entry.data),
    }
    meaning: EntryMeaning = {"position": f"{entry.ledger_id}:{entry.entry_id}", "digest": entry.digest}
    try:
        frame = decode_frame(entry.data)
    except DecodeError:
        return value, meaning  # Ledgers of cursors, schemas and compacted topics contain no frames.
    meaning["frame"] = {**_frame_value(frame), "meaning": frame_meaning(frame)}
    return value, meaning


def _encode_bookie_entry(value: dict[str, Any], path: str) -> bytes:
    _only(value, path, *_HEADER_FIELDS, "digest_type", "digest", "data")
    header = [integer(value.get(name), f"{path}.{name}", *_INT64) for name in _HEADER_FIELDS]
    kind: DigestType = value.get("digest_type", "CRC32C")
    if not isinstance(kind, str) or kind not in DIGEST_SIZES:
        raise DecodeError(f"{path}.digest_type: expected one of {', '.join(DIGEST_SIZES)}")
    data = from_base64(value.get("data"), f"{path}.data")
    if value.get("digest", "ok") == "ok":
        ledger_id, entry_id, last_confirmed, length = header
        return encode_bookie_entry(ledger_id, entry_id, last_confirmed, length, data, digest_type=kind)
    return HEADER.pack(*header) + from_base64(value["digest"], f"{path}.digest") + data


def _only(value: dict[str, Any], path: str, *names: str) -> None:
    for name in value:
        if name not in names:
            raise DecodeError(f"{path}.{name}: no such field; use {', '.join(names)}")


def _base64(data: bytes | memoryview) -> str:
    return base64.b64encode(data).decode()


_DECODERS: Final = {
    "Frame": _decode_frame,
    "BookieEntry": _decode_bookie_entry,
    "Command": decode_command_stream,
}
