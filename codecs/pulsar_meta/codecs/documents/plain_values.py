"""Values without a .proto: JSON, text, counters, and other bytes (as base64)."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, NotRequired, TypedDict

from pulsar_meta.codecs.documents.value import BROKER_KINDS, JSON_KINDS, Value
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import MAX_DEPTH, from_base64, integer, java_json, read_json, safe, shown
from pulsar_meta.codecs.secrets import Redacted, refuse_redacted
from pulsar_meta.codecs.times import iso_time

_NUMBER: Final = struct.Struct(">q")


def decode_value(kind: str, data: bytes) -> Value:
    """Decode a value of `kind`. If it is broken, the result has only an error."""
    try:
        if kind in JSON_KINDS:
            return _decode_json(kind, data)
        if kind == "Counter":
            return Value(_decode_counter(data))
        return Value(_decode_text(data) if kind == "Text" else base64.b64encode(data).decode())
    except DecodeError as error:
        return Value(None, error=error)


def encode_value(kind: str, value: Any, path: str = "value") -> bytes:
    """Encode a value of `kind`. Raises DecodeError, naming the path of an invalid member."""
    if kind in JSON_KINDS:
        return encode_json(value, path, None)[0]
    if kind == "Counter":
        return _encode_counter(value, path)
    refuse_redacted(value, path)
    if not isinstance(value, str):
        raise DecodeError(f"{path}: expected a string, found {shown(value)}")
    return _encode_text(value, path) if kind == "Text" else from_base64(value, path)


def shapes() -> dict[str, Any]:
    """Return the JSON type of each kind. JSON records of brokers can be any object."""
    records = {kind: dict[str, object] for kind in JSON_KINDS if kind != "Json"}
    return {**records, "Counter": int | list[int], "Text": str | Redacted, "Bytes": str | Redacted}


def broker_kind(value: Any) -> str | None:
    """Return the kind of a broker's record, or None if the JSON value is not a broker's record."""
    if not isinstance(value, dict) or not {"pulsarServiceUrl", "webServiceUrl"} & value.keys():
        return None
    if value.get("loadReportType") == "LocalBrokerData" or "brokerVersionString" in value:
        return "LocalBrokerData"
    return "BrokerLookupData" if "brokerVersion" in value or "protocols" in value else None


def _decode_json(kind: str, data: bytes) -> Value:
    text = _decode_text(data)
    # The document nests the value up to four levels deeper.
    value = read_json(text.removeprefix("\ufeff"), deepest=MAX_DEPTH - 4, literal=True)
    if kind != "Json" and not isinstance(value, dict):
        # The error does not show the value, because it may be a secret.
        raise DecodeError(f"not a {kind}: expected a JSON object", offset=0)
    meaning: Mapping[str, Any] = _broker_meaning(value) if kind in BROKER_KINDS else {}
    return Value(safe(value), meaning, text=None if _is_usual(value, text) else text)


def _is_usual(value: Any, text: str) -> bool:
    """Return True if common JSON programs, and this one, would write `value` exactly as `text`."""
    try:
        plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return plain == text == java_json(value) and safe(value) == value
    except (TypeError, ValueError):
        # A number is too large for a double or has too many digits.
        return False


class BrokerMeaning(TypedDict):
    """Summary of a broker's registration."""

    version: Any
    started: NotRequired[str | None]
    lookup_properties: NotRequired[Any]


def _broker_meaning(broker: dict[str, Any]) -> BrokerMeaning:
    meaning: BrokerMeaning = {"version": broker.get("brokerVersion", broker.get("brokerVersionString"))}
    started = broker.get("startTimestamp")
    if isinstance(started, int) and started > 0:
        meaning["started"] = iso_time(started)
    if broker.get("properties"):
        meaning["lookup_properties"] = broker["properties"]
    return meaning


def _decode_counter(data: bytes) -> int | list[int]:
    """Decode a counter: the last number, or several numbers if its records' keys have several parts."""
    if not data or len(data) % 8:
        raise DecodeError(f"expected a multiple of 8 bytes, found {len(data)}", offset=0)
    numbers = [int(number) for (number,) in _NUMBER.iter_unpack(data)]
    return numbers[0] if len(numbers) == 1 else numbers


def _encode_counter(value: Any, path: str) -> bytes:
    if not isinstance(value, list):
        return _NUMBER.pack(integer(value, path, -(2**63), 2**63 - 1))
    return b"".join(_encode_counter(number, f"{path}[{at}]") for at, number in enumerate(value))


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("not UTF-8 text", offset=error.start) from error


def _encode_text(text: str, path: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(f"{path}: contains half of a surrogate pair") from error


def encode_json(value: Any, path: str, text: str | None) -> tuple[bytes, tuple[str, ...]]:
    """Encode a JSON value; `text` is its stored text, of which unchanged parts keep their spelling.

    Returns (bytes, paths of numbers that came back rounded and were kept as stored). Raises DecodeError,
    naming the path, if a member is invalid or a change is ambiguous.
    """
    refuse_redacted(value, path)
    try:
        if text is None:
            return java_json(value).encode(), ()
        # Needed only to encode.
        from pulsar_meta.codecs.json_edit import edit_json

        edited = edit_json(text, value, path)
        return edited.text.encode(), edited.rounded
    except ValueError as error:
        raise DecodeError(f"{path}: a number that is too long") from error


def checked_text(text: str) -> str:
    """Return `text`. Raises DecodeError if it is not JSON."""
    read_json(text.removeprefix("\ufeff"), literal=True)
    return text


def json_text(data: bytes) -> str | None:
    """Return stored bytes as text, or None if they are not JSON."""
    try:
        return checked_text(_decode_text(data))
    except DecodeError:
        return None


def has_duplicates(text: str) -> bool:
    """Return True if an object in a JSON text has duplicate members, of which only the last is shown."""
    duplicates = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            duplicates.append(True)

    json.JSONDecoder(object_pairs_hook=note, parse_int=str, parse_float=str).decode(
        text.removeprefix("\ufeff")
    )
    return bool(duplicates)
