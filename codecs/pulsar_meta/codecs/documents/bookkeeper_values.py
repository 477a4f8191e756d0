"""LedgerMetadata and cookies as JSON: the fields of their .proto, and their format or layout version."""

from __future__ import annotations

from typing import Any, Final, NotRequired, TypedDict

from pulsar_meta.codecs.documents.value import Value, value_shape
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import integer
from pulsar_meta.codecs.metadata.ledger_metadata import (
    CURRENT_LAYOUT,
    CURRENT_VERSION,
    Cookie,
    LedgerMetadata,
    decode_cookie,
    decode_ledger_metadata,
    encode_cookie,
    encode_ledger_metadata,
    salvage_ledger_metadata,
)
from pulsar_meta.codecs.protobuf.from_json import json_to_message
from pulsar_meta.codecs.protobuf.to_json import message_to_json, readable
from pulsar_meta.codecs.secrets import Texts
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.proto.DataFormats_pb2 import CookieFormat, LedgerMetadataFormat

FORMAT_VERSION: Final = "metadata_format_version"
LAYOUT_VERSION: Final = "layout_version"


def decode_value(kind: str, data: bytes) -> Value:
    """Decode a value of `kind`. If it is broken, the result has an error and the fields before it."""
    try:
        return _decode_ledger(data) if kind == "LedgerMetadata" else _decode_cookie(data)
    except DecodeError as error:
        left = salvage_ledger_metadata(data) if kind == "LedgerMetadata" else None
        fields = message_to_json(left) if left is not None and left.ListFields() else None
        return Value(fields, same_bytes=False, error=error)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Encode a value of `kind`. Raises DecodeError, naming the path of an invalid member."""
    if not isinstance(value, dict):
        raise DecodeError(f"{path}: expected an object")
    fields = dict(value)
    if kind == "Cookie":
        layout = integer(fields.pop(LAYOUT_VERSION, CURRENT_LAYOUT), f"{path}.{LAYOUT_VERSION}", 3, 999)
        return encode_cookie(Cookie(layout, json_to_message(CookieFormat, fields, path)))
    version = integer(fields.pop(FORMAT_VERSION, CURRENT_VERSION), f"{path}.{FORMAT_VERSION}", 1, 3)
    return encode_ledger_metadata(
        LedgerMetadata(version, json_to_message(LedgerMetadataFormat, fields, path))
    )


def _decode_ledger(data: bytes) -> Value:
    ledger = decode_ledger_metadata(data)
    value = {FORMAT_VERSION: ledger.format_version, **message_to_json(ledger.metadata)}
    return Value(value, ledger_meaning(ledger.metadata), encode_ledger_metadata(ledger) == data)


def _decode_cookie(data: bytes) -> Value:
    cookie = decode_cookie(data)
    value = {LAYOUT_VERSION: cookie.layout_version, **message_to_json(cookie.fields)}
    return Value(value, {}, encode_cookie(cookie) == data)


def shapes() -> dict[str, Any]:
    """Return the JSON type of each kind."""
    return {
        "LedgerMetadata": value_shape("LedgerMetadata", LedgerMetadataFormat, {FORMAT_VERSION: int}),
        "Cookie": value_shape("Cookie", CookieFormat, {LAYOUT_VERSION: int}),
    }


class EnsembleMeaning(TypedDict):
    """The bookies that store a ledger's entries from `first_entry` on."""

    first_entry: int
    bookies: list[str]


class LedgerMeaning(TypedDict):
    """A ledger's bookies and its last entry; `last_entry` is null if the ledger is not closed."""

    state: str
    write_quorum: int
    ack_quorum: int
    last_entry: int | None
    ensembles: list[EnsembleMeaning]
    created: NotRequired[str | None]
    custom: NotRequired[Texts]


def ledger_meaning(metadata: LedgerMetadataFormat) -> LedgerMeaning:
    """Summarize a ledger's metadata: state, quorums, last entry, bookies, creation time, custom metadata."""
    closed = metadata.state == LedgerMetadataFormat.CLOSED
    meaning: LedgerMeaning = {
        "state": LedgerMetadataFormat.State.Name(metadata.state),
        "write_quorum": metadata.quorumSize,
        "ack_quorum": metadata.ackQuorumSize if metadata.HasField("ackQuorumSize") else metadata.quorumSize,
        "last_entry": metadata.lastEntryId if closed else None,
        "ensembles": [
            {
                "first_entry": segment.firstEntryId,
                "bookies": [readable(bookie) for bookie in segment.ensembleMember],
            }
            for segment in metadata.segment
        ],
    }
    if metadata.ctime > 0:
        meaning["created"] = iso_time(metadata.ctime)
    if len(metadata.customMetadata):
        meaning["custom"] = {readable(item.key): readable(item.value) for item in metadata.customMetadata}
    return meaning
