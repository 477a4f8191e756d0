"""Values without a schema of ours: JSON that is passed through, text, and bytes as base64."""

from __future__ import annotations

import base64
from typing import Any

from pulsar_meta.codecs.documents.value import JSON_KINDS, Value
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.java_json import java_json
from pulsar_meta.codecs.json_text import MAX_DEPTH, from_base64, read_json, safe, shown
from pulsar_meta.codecs.secrets import refuse_redacted
from pulsar_meta.codecs.times import iso_time


def decode_value(kind: str, data: bytes) -> Value:
    """Return what `data` says; nothing of it where it is broken."""
    try:
        if kind in JSON_KINDS:
            return _decode_json(kind, data)
        return Value(_decode_text(data) if kind == "Text" else base64.b64encode(data).decode())
    except DecodeError as error:
        return Value(None, error=error)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Return the bytes of the value; DecodeError names the place that is wrong."""
    refuse_redacted(value, path)
    if kind in JSON_KINDS:
        return _encode_json(value, path)
    if not isinstance(value, str):
        raise DecodeError(f"{path}: expected a string, found {shown(value)}")
    return _encode_text(value, path) if kind == "Text" else from_base64(value, path)


def broker_kind(value: Any) -> str | None:
    """Return which of the two records of a broker a JSON object is, None where it is neither."""
    if not isinstance(value, dict) or not {"pulsarServiceUrl", "webServiceUrl"} & value.keys():
        return None
    if value.get("loadReportType") == "LocalBrokerData" or "brokerVersionString" in value:
        return "LocalBrokerData"
    return "BrokerLookupData" if "brokerVersion" in value or "protocols" in value else None


def _decode_json(kind: str, data: bytes) -> Value:
    # Its document has it two levels further in, and may stand in a list.
    value = read_json(data, deepest=MAX_DEPTH - 4)
    if kind != "Json" and not isinstance(value, dict):
        # What it is instead is not shown: it may be a secret.
        raise DecodeError(f"not a {kind}: expected a JSON object", offset=0)
    shown_value = safe(value)
    same = shown_value == value and java_json(value).encode() == data
    return Value(shown_value, _broker_meaning(value) if kind != "Json" else {}, same)


def _broker_meaning(broker: dict[str, Any]) -> dict[str, Any]:
    meaning: dict[str, Any] = {"version": broker.get("brokerVersion", broker.get("brokerVersionString"))}
    started = broker.get("startTimestamp")
    if isinstance(started, int) and started > 0:
        meaning["started"] = iso_time(started)
    if broker.get("properties"):
        meaning["lookup_properties"] = broker["properties"]
    return meaning


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("not UTF-8 text", offset=error.start) from error


def _encode_text(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(f"{path}: half of a surrogate pair is no text") from error


def _encode_json(value: Any, path: str) -> bytes:
    try:
        return java_json(value).encode()
    except ValueError as error:
        raise DecodeError(f"{path}: a number that is too long") from error
