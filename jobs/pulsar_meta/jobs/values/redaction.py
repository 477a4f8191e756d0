"""Hide secrets in the values of a store, for a snapshot that is shown to others."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Final

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.secrets import MASK, redact_text, with_masks
from pulsar_meta.stores.base import Versioned

# Kinds of values without known fields.
_LOOSE: Final = frozenset({"Bytes", "Text", None})
# The kind whose strings are base64 in its document.
_IN_BASE64: Final = "LedgerMetadata"
# Members of documents whose strings tell nothing about the users of a cluster.
_HARMLESS: Final = frozenset({
    "allowedClusters", "replication_clusters", "boundaries", "bookieHost", "host", "protocol", "id",
    "instanceId", "brokerId", "brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls",
    "pulsarServiceUrl", "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls", "httpUrl", "httpUrlTls",
    "nativeUrl", "nativeUrlTls", "ensembleMember", "state", "digestType", "hash", "cToken", "key", "name",
    "codec", "type", "brokerVersionString", "loadManagerClassName", "loadReportType",
    "schema_compatibility_strategy", "schema_auto_update_compatibility_strategy", "subscription_auth_mode",
    "brokerClientSslFactoryPlugin",
    "brokerClientTlsKeyStoreType", "brokerClientTlsTrustStoreType", "deleteSet",
})  # fmt: skip
# Properties that Pulsar writes, and `build-index`.
_KNOWN_PROPERTY: Final = re.compile(
    r"#pulsar\.internal\..*|pulsar/.*|application|component|first-index|index|CompactedTopicLedger|PULSAR\..*"
)
_NUMBER: Final = re.compile(r"-?[0-9.:-]{1,40}")


def redacted_value(held: Versioned) -> Versioned:
    """Return a value with `***` for each secret, or the same bytes if it has none.

    A value that can't be decoded, and may hold a secret, becomes empty.
    """
    document = _decoded(held)
    if document is None:
        return _redacted_bytes(held)
    return _with_value(held, document, _masked_value(held))


def bundled_value(held: Versioned) -> Versioned:
    """Return a value for a bundle, which keeps only strings that are known to be harmless.

    Every other string is replaced by its type and length. A value that can't be decoded becomes empty.
    """
    document = _decoded(held)
    if document is None:
        return held._replace(value=b"")
    kept = _known(_masked_value(held), "", in_base64=document["kind"] == _IN_BASE64)
    return _with_value(held, document, kept)


def _decoded(held: Versioned) -> Document | None:
    """Return the document of a value, with secrets; None if it can't be decoded, or has no known fields."""
    options = DecodeOptions(show_secrets=True)
    decoded = decode_document(held.value, source=held.path, path=held.path, options=options)
    return None if decoded.error is not None or decoded.document["kind"] in _LOOSE else decoded.document


def _masked_value(held: Versioned) -> Any:
    """Return the `value` of a document, with a mask for each secret."""
    document = decode_document(held.value, source=held.path, path=held.path).document
    mask = b64encode(MASK.encode()).decode() if document["kind"] == _IN_BASE64 else MASK
    return with_masks(document["value"], mask)


def _redacted_bytes(held: Versioned) -> Versioned:
    text = held.value.decode("latin-1")
    redacted = redact_text(text)
    if redacted == text:
        return held
    kind = decode_document(held.value, source=held.path, path=held.path).document["kind"]
    return held._replace(value=redacted.encode("latin-1") if kind == "Text" else b"")


def _with_value(held: Versioned, document: Document, value: Any) -> Versioned:
    """Return what `document` encodes to with another `value`; empty if that can't be encoded."""
    if value == document["value"]:
        return held
    try:
        # The text in the document shows how the rest was written.
        encoded = encode_document({**document, "value": value}, place="redacted ")
    except PulsarMetaError:
        return held._replace(value=b"")
    return held._replace(value=encoded.data)


def _known(value: Any, name: str, *, in_base64: bool) -> Any:
    """Return a value with every string replaced that is not the value of a harmless member."""
    if isinstance(value, list):
        return [_known(member, name, in_base64=in_base64) for member in value]
    if isinstance(value, dict):
        key = value.get("key", value.get("name"))
        known = isinstance(key, str) and _KNOWN_PROPERTY.fullmatch(key) is not None
        return {
            member: inner if known and member == "value" else _known(inner, member, in_base64=in_base64)
            for member, inner in value.items()
        }
    if not isinstance(value, str) or name in _HARMLESS or _NUMBER.fullmatch(value) or not value:
        return value
    if in_base64 and name in ("value", "password"):
        return b64encode(f"<{len(value) * 3 // 4} bytes>".encode()).decode()
    return f"<text, {len(value)}>"
