"""The document that `decode` prints and `encode` reads.

`{"source", "kind", "path"?, "version"?, "envelope", "value", "stored_text"?, "meaning"}`. `encode` reads
`kind`, `envelope.codec`, `value` and `stored_text`. If encoding a value would change the order or form of its
fields, it has a member `"order_kept": false`. If other programs would change the spelling of a JSON value
(spacing, escapes, digits), the document has its `stored_text`, and `encode` only changes the edited parts of
that text. If only a part of the value could be read, the document has an `error`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE, check_claim
from pulsar_meta.codecs.documents.kinds import ENVELOPED, FAMILIES, checked_kind, kind_of
from pulsar_meta.codecs.documents.value import (
    FUNCTION_KINDS,
    JSON_KINDS,
    ORDER_KEPT,
    POLICIES_KINDS,
    SCALABLE_KINDS,
    TRANSACTION_KINDS,
    Value,
)
from pulsar_meta.codecs.errors import DecodeError, LimitError, PulsarMetaError, decoding
from pulsar_meta.codecs.json_text import Document, check_depth, integer, shown
from pulsar_meta.codecs.secrets import REDACTED, Redacted, redact, redact_text, refuse_redacted

if TYPE_CHECKING:
    from pulsar_meta.codecs.documents.decoded import (
        DecodedDocument,
        EnvelopeDocument,
        ValueFault,
        ValueSource,
    )
    from pulsar_meta.codecs.metadata.envelope import Envelope, EnvelopeHeader

STORED_TEXT: Final = "stored_text"
ORDER_LOST: Final = (
    "the fields of the decoded value were stored in another order or form; these bytes mean the same"
)
# Members that are never searched for secrets.
_CONTENT: Final = {"Frame": ("payload",), "BookieEntry": ("data",)}
# Their paths are a part of their meaning.
_PULSAR_5: Final = frozenset({*SCALABLE_KINDS, *TRANSACTION_KINDS, *POLICIES_KINDS, "Counter"})
_CURSORS: Final = ("ManagedCursorInfo", "PositionInfo")
# Only these members of a cursor can contain secrets. Acknowledgements are skipped because there can be many.
_PROPERTIES: Final = ("properties", "cursorProperties", "cursor_properties")


class _Text(TypedDict, total=False):
    stored_text: str | Redacted


class Decoded(NamedTuple):
    """A value's DecodedDocument, whether encoding it returns the stored bytes, and its fault, if any."""

    document: Document
    same_bytes: bool = True
    error: PulsarMetaError | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a value, `path` and `version` from its document, and whether the order was kept.

    `rounded` has the paths of JSON numbers that came back rounded and were kept as stored.
    """

    data: bytes = field(repr=False)
    path: str | None
    version: int
    order_kept: bool
    rounded: tuple[str, ...] = ()


class DecodeOptions(NamedTuple):
    """The kind if it is known, the size limit for decompression (bytes), and whether to show secrets."""

    kind: str | None = None
    max_size: int = DEFAULT_MAX_SIZE
    show_secrets: bool = False


def decode_document(
    data: bytes,
    *,
    source: str,
    path: str | None = None,
    version: int | None = None,
    options: DecodeOptions | None = None,
) -> Decoded:
    """Decode a value into a document. Never raises; a fault becomes part of the document."""
    options = options or DecodeOptions()
    origin: ValueSource = {"source": source}
    if path is not None:
        origin["path"] = path
    if version is not None:
        origin["version"] = version
    try:
        kind = kind_of(data, named=options.kind, path=path, max_size=options.max_size)
    except PulsarMetaError as error:
        return _failed(origin, None, None, Value(None), error)
    envelope, value = _open(kind, data, options.max_size)
    if kind in _PULSAR_5:
        value = replace(value, meaning=_meaning_5(kind, value, path))
    if not options.show_secrets:
        value = _without_secrets(kind, value, data)
    if value.error is not None:
        return _failed(origin, kind, envelope, value, value.error)
    text: _Text = {} if value.text is None else {"stored_text": value.text}
    document: DecodedDocument = {
        **origin,
        "kind": kind,
        "envelope": envelope,
        "value": _shown(kind, value),
        **text,
        "meaning": value.meaning,
    }
    return Decoded(document, value.same_bytes)


def encode_document(
    document: Any,
    *,
    codec: str | None = None,
    threshold: int | None = None,
    place: str = "",
    stored: bytes | None = None,
) -> Encoded:
    """Encode a document into bytes; `codec` and `threshold` (bytes) override its envelope.

    `place` prefixes the paths in errors. `stored` is the value to replace: unchanged parts of a JSON text
    keep their spelling. Raises DecodeError if the document is not valid.
    """
    with decoding(what=place or "document"):
        check_depth(document)
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise DecodeError(f"{place or 'document'}: expected an object with kind and value")
    kind = checked_kind(document["kind"])
    absent = "value" not in document if kind == "Json" else document.get("value") is None
    if document.get("error") is not None or absent:
        raise DecodeError(f"{place or 'document'}: only a part of this value could be decoded")
    if kind in JSON_KINDS:
        return _encoded_json(document, place, stored)
    value, order_kept = document["value"], True
    if isinstance(value, dict) and ORDER_KEPT in value:
        order_kept = value[ORDER_KEPT] is not False
        value = {name: member for name, member in value.items() if name != ORDER_KEPT}
    payload: bytes = _family(kind).encode_value(kind, value, f"{place}value")
    data = _stored(kind, payload, document.get("envelope"), codec, threshold)
    return Encoded(data, _path(document), _version(document.get("version"), f"{place}version"), order_kept)


def rounded_note(paths: Sequence[str]) -> str:
    """Describe numbers that came back rounded and were kept as stored."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}: rounded to a double by another program, so the stored digits are kept"


def _encoded_json(document: dict[str, Any], place: str, stored: bytes | None) -> Encoded:
    from pulsar_meta.codecs.documents import plain_values

    text = document.get(STORED_TEXT)
    if isinstance(text, str):
        with decoding(what=f"{place}{STORED_TEXT}"):
            text = plain_values.checked_text(text)
    elif stored is not None:
        text = plain_values.json_text(stored)
    elif text is not None:
        refuse_redacted(text, f"{place}{STORED_TEXT}")
        raise DecodeError(f"{place}{STORED_TEXT}: expected a string, found {shown(text)}")
    data, rounded = plain_values.encode_json(document["value"], f"{place}value", text)
    version = _version(document.get("version"), f"{place}version")
    return Encoded(data, _path(document), version, True, rounded)


def _meaning_5(kind: str, value: Value, path: str | None) -> Any:
    from pulsar_meta.codecs.documents.pulsar5_meaning import counter_meaning, pulsar5_meaning

    if value.error is not None:
        return {}
    return (
        counter_meaning(value.value, path) if kind == "Counter" else pulsar5_meaning(kind, value.value, path)
    )


@cache
def _family(kind: str) -> Any:
    return import_module(f"pulsar_meta.codecs.documents.{FAMILIES[kind]}")


def _open(kind: str, data: bytes, max_size: int) -> tuple[EnvelopeDocument | None, Value]:
    """Return the envelope's document, if there is an envelope, and the value inside."""
    if kind not in ENVELOPED:
        return None, _family(kind).decode_value(kind, data)
    # Imported late, because it imports protobuf, which is slow.
    from pulsar_meta.codecs.metadata.envelope import is_enveloped, open_envelope, read_header

    header = None
    try:
        header = read_header(data) if is_enveloped(data) else None
        envelope = open_envelope(data, max_size=max_size)
    except DecodeError as error:
        return _envelope_claim(header, data), _salvaged(kind, header, data, max_size, error)
    payload = data if envelope is None else envelope.payload
    return envelope_document(envelope), _family(kind).decode_value(kind, payload)


def envelope_document(envelope: Envelope | None) -> EnvelopeDocument | None:
    """Return the document of an opened envelope, or None if there is no envelope."""
    if envelope is None:
        return None
    return _claim(envelope.codec, envelope.stored_size, envelope.raw_size, envelope.unknown)


def _envelope_claim(header: EnvelopeHeader | None, data: bytes) -> EnvelopeDocument | None:
    if header is None:
        return None
    return _claim(header.codec, len(data), header.raw_size, header.unknown)


def _claim(codec: str, stored_size: int, raw_size: int, header_fields: bytes) -> EnvelopeDocument:
    """Return an envelope's document; header fields that are not in the .proto become `unknown_fields`."""
    claim: EnvelopeDocument = {"codec": codec, "stored_size": stored_size, "raw_size": raw_size}
    if header_fields:
        from pulsar_meta.codecs.protobuf.to_json import unknown_fields
        from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata

        claim["unknown_fields"] = unknown_fields(ManagedLedgerInfoMetadata.FromString(header_fields))
    return claim


def _salvaged(
    kind: str, header: EnvelopeHeader | None, data: bytes, max_size: int, error: DecodeError
) -> Value:
    """Return the readable part of a message that is damaged in its compressed form."""
    if header is None or isinstance(error, LimitError):
        return Value(None, error=error)
    body = memoryview(data)[header.body_at :]
    try:
        check_claim(header.codec, len(body), header.raw_size, max_size)
    except DecodeError:
        return Value(None, error=error)
    from pulsar_meta.codecs.salvage import salvage

    intact = salvage(header.codec, body, header.raw_size)
    value: Value = _family(kind).decode_value(kind, intact) if intact else Value(None)
    return Value(value.value, value.meaning, False, error)


def _failed(
    origin: ValueSource,
    kind: str | None,
    envelope: EnvelopeDocument | None,
    value: Value,
    error: PulsarMetaError,
) -> Decoded:
    fault: ValueFault = {"error": error.kind, "message": error.message}
    if isinstance(error, DecodeError) and error.offset is not None:
        fault["offset"] = error.offset
    document: DecodedDocument = {
        **origin,
        "kind": kind,
        "envelope": envelope,
        "value": value.value,
        "meaning": value.meaning,
        "error": fault,
    }
    return Decoded(document, False, error)


def _without_secrets(kind: str, value: Value, data: bytes) -> Value:
    """Redact secrets in a value and its meaning."""
    shown, meaning = value.value, value.meaning
    if kind in ("Text", "Bytes"):
        plain = data.decode("latin-1") if kind == "Bytes" else str(shown)
        redacted = redact_text(plain)
        if redacted == plain:
            return value
        return replace(value, value=REDACTED if kind == "Bytes" else {**REDACTED, "text": redacted})
    if kind in _CURSORS and isinstance(shown, dict):
        return replace(value, value=_redact_properties(shown), meaning=_redact_properties(meaning))
    if kind in _CONTENT and isinstance(shown, dict):
        # Payloads belong to the topic's users.
        content = {name: shown[name] for name in _CONTENT[kind] if name in shown}
        return replace(value, value=redact(shown) | content, meaning=redact(meaning))
    hidden = _without_credentials(redact(shown)) if kind in FUNCTION_KINDS else redact(shown)
    text = value.text if value.text is None or not _hides(value, hidden) else REDACTED.copy()
    return replace(value, value=hidden, meaning=redact(meaning), text=text)


def _without_credentials(value: Any) -> Any:
    """Redact the data of function authentication, which some providers fill with a token."""
    if not isinstance(value, dict):
        return value
    value = {name: _without_credentials(member) for name, member in value.items()}
    authentication = value.get("functionAuthSpec")
    if isinstance(authentication, dict) and authentication.get("data"):
        value["functionAuthSpec"] = authentication | {"data": REDACTED.copy()}
    return value


def _hides(value: Value, hidden: Any) -> bool:
    """Return True if the text of a JSON value contains a secret; `hidden` is the redacted value."""
    from pulsar_meta.codecs.documents.plain_values import has_duplicates

    text = value.text
    if hidden != value.value:
        return True
    return isinstance(text, str) and redact_text(text) != text and has_duplicates(text)


def _redact_properties(members: dict[str, Any]) -> dict[str, Any]:
    return members | {name: redact(members[name]) for name in _PROPERTIES if name in members}


def _shown(kind: str, value: Value) -> Any:
    shown = value.value
    if not value.same_bytes and kind not in JSON_KINDS and isinstance(shown, dict):
        shown = {**shown, ORDER_KEPT: False}
    return shown


def _stored(kind: str, payload: bytes, envelope: Any, codec: str | None, threshold: int | None) -> bytes:
    if kind not in ENVELOPED:
        return payload
    from pulsar_meta.codecs.metadata.envelope import stored_form, wrap_envelope

    named = envelope.get("codec") if isinstance(envelope, dict) else None
    if named is not None and named not in CODECS:
        raise DecodeError(f"envelope.codec: expected one of {', '.join(CODECS)}, found {shown(named)}")
    unknown = _newer_bytes(envelope) if isinstance(envelope, dict) else b""
    if codec is None and threshold is None:
        return payload if named is None else wrap_envelope(payload, named, unknown=unknown)
    return stored_form(payload, codec or named or "none", threshold=threshold, unknown=unknown)


def _newer_bytes(envelope: dict[str, Any]) -> bytes:
    if envelope.get("unknown_fields") is None:
        return b""
    from pulsar_meta.codecs.protobuf.from_json import unknown_bytes

    return unknown_bytes(envelope["unknown_fields"], "envelope.unknown_fields")


def _path(document: dict[str, Any]) -> str | None:
    """Return the value's path in its store. A file's path is made from its name."""
    path, source = document.get("path"), document.get("source")
    for name in (path, source):
        if isinstance(name, str) and not _is_text(name):
            raise DecodeError(f"path: {shown(name)} contains half of a surrogate pair")
    if isinstance(path, str):
        return path
    return "/" + source.lstrip("/") if isinstance(source, str) and source.strip("/-") else None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _version(version: Any, path: str) -> int:
    return 0 if version is None else integer(version, path, -(2**63), 2**63 - 1)
