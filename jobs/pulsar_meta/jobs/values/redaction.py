"""Hide secrets in the values of a store, for a snapshot that is shown to others."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Final

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.secrets import MASK, is_redacted, redact_text
from pulsar_meta.stores.base import Versioned

# Kinds of values without known fields.
_LOOSE: Final = frozenset({"Bytes", "Text", None})


def redacted_value(held: Versioned) -> Versioned:
    """Return a value with `***` for each secret, or the same bytes if it has none.

    A value that can't be decoded, and may hold a secret, becomes empty.
    """
    plain = decode_document(
        held.value, source=held.path, path=held.path, options=DecodeOptions(show_secrets=True)
    )
    kind = plain.document.get("kind")
    if plain.error is not None or kind in _LOOSE:
        text = held.value.decode("latin-1")
        redacted = redact_text(text)
        if redacted == text:
            return held
        return held._replace(value=redacted.encode("latin-1") if kind == "Text" else b"")
    hidden = decode_document(held.value, source=held.path, path=held.path).document
    if hidden.get("value") == plain.document.get("value"):
        return held
    mask = b64encode(MASK.encode()).decode() if kind == "LedgerMetadata" else MASK
    try:
        # The text of the plain document shows how the rest was written.
        masked = {**plain.document, "value": _masked(hidden["value"], mask)}
        encoded = encode_document(masked, place="redacted ")
    except PulsarMetaError:
        return held._replace(value=b"")
    return held._replace(value=encoded.data)


# Members of documents whose strings tell nothing about the users of a cluster.
_HARMLESS: Final = frozenset({
    "allowedClusters", "replication_clusters", "boundaries", "bookieHost", "host", "protocol", "id",
    "instanceId",
    "brokerId", "brokerServiceUrl", "brokerServiceUrlTls", "serviceUrl", "serviceUrlTls", "pulsarServiceUrl",
    "pulsarServiceUrlTls", "webServiceUrl", "webServiceUrlTls", "httpUrl", "httpUrlTls", "nativeUrl",
    "nativeUrlTls", "ensembleMember", "state", "digestType", "hash", "cToken", "key", "name", "codec", "type",
    "brokerVersionString", "loadManagerClassName", "loadReportType", "schema_compatibility_strategy",
    "schema_auto_update_compatibility_strategy", "subscription_auth_mode", "brokerClientSslFactoryPlugin",
    "brokerClientTlsKeyStoreType", "brokerClientTlsTrustStoreType", "deleteSet",
})  # fmt: skip
# Properties that Pulsar writes, and `build-index`.
_KNOWN_PROPERTY: Final = re.compile(
    r"#pulsar\.internal\..*|pulsar/.*|application|component|first-index|index|CompactedTopicLedger|PULSAR\..*"
)
_NUMBER: Final = re.compile(r"-?[0-9.:-]{1,40}")


def bundled_value(held: Versioned) -> Versioned:
    """Return a value for a bundle: only what is known to be harmless is kept, in `redacted_value` of it.

    Every other string is replaced by its type and length. A value that can't be decoded becomes empty.
    """
    value = redacted_value(held)
    decoded = decode_document(
        value.value, source=held.path, path=held.path, options=DecodeOptions(show_secrets=True)
    )
    kind = decoded.document.get("kind")
    if decoded.error is not None or kind in _LOOSE:
        return value._replace(value=b"")
    kept = _known(decoded.document["value"], "", in_base64=kind == "LedgerMetadata")
    if kept == decoded.document["value"]:
        return value
    try:
        encoded = encode_document({**decoded.document, "value": kept}, place="bundled ")
    except PulsarMetaError:
        return value._replace(value=b"")
    return value._replace(value=encoded.data)


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


def _masked(value: Any, mask: str) -> Any:
    if isinstance(value, dict):
        if is_redacted(value):
            return value.get("text", mask)
        return {name: _masked(member, mask) for name, member in value.items()}
    return [_masked(member, mask) for member in value] if isinstance(value, list) else value
