"""Values without the secrets in them, for a copy that somebody else is to see."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.secrets import REDACTED, redact_text
from pulsar_meta.stores.base import Versioned

MASK: Final = "***"
# Of these nothing but bytes is known: a secret in them is found by its name alone.
_LOOSE: Final = frozenset({"Bytes", "Text", None})


def redacted_value(held: Versioned) -> Versioned:
    """Return the value with `***` for every secret in it; byte for byte as it was where it has none.

    What cannot be read, and may hold one, becomes empty.
    """
    plain = decode_document(
        held.value, source=held.path, path=held.path, options=DecodeOptions(show_secrets=True)
    )
    kind = plain.document.get("kind")
    if plain.error is not None or kind in _LOOSE:
        text = held.value.decode("latin-1")
        return held if redact_text(text) == text else held._replace(value=b"")
    hidden = decode_document(held.value, source=held.path, path=held.path).document
    if hidden.get("value") == plain.document.get("value"):
        return held
    mask = b64encode(MASK.encode()).decode() if kind == "LedgerMetadata" else MASK
    try:
        # Of the plain document, since its text says how the rest was written.
        masked = {**plain.document, "value": _masked(hidden["value"], mask)}
        encoded = encode_document(masked, place="redacted ")
    except PulsarMetaError:
        return held._replace(value=b"")
    return held._replace(value=encoded.data)


def _masked(value: Any, mask: str) -> Any:
    if isinstance(value, dict):
        if value.get("redacted") is True and value.keys() <= {*REDACTED, "text"}:
            return mask
        return {name: _masked(member, mask) for name, member in value.items()}
    return [_masked(member, mask) for member in value] if isinstance(value, list) else value
