"""Values of a metadata store, and what their bytes say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pulsar_meta.codecs.documents.decoded import DecodedDocument
from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import checked_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a store: its path, its bytes, the version with which the store has it.

    `created` and `modified` are in milliseconds, None where the store does not keep them; `ephemeral` ones
    vanish with the session that wrote them.
    """

    path: str
    data: bytes = field(repr=False)
    version: int
    created: int | None = None
    modified: int | None = None
    ephemeral: bool = False

    def decode(self, *, kind: str | None = None, show_passwords: bool = False) -> DecodedDocument:
        """Return what the bytes say, as `pulsar-meta decode` prints it; the rest as `decode`."""
        return decode(self.data, kind=kind, path=self.path, show_passwords=show_passwords)


def decode(
    data: bytes,
    *,
    kind: str | None = None,
    path: str | None = None,
    show_passwords: bool = False,
    partly: bool = False,
) -> DecodedDocument:
    """Return what the bytes of one value say, as `pulsar-meta decode` prints it (docs/contract.md).

    `kind` is what they are ("ManagedLedgerInfo", …); without it that is known from `path`, the value's in its
    store, else from the bytes. Secrets are redacted unless `show_passwords`. With `partly` a broken value is
    no error: `value` is what could be read of it, and `error` says why that is not all.

    UsageError for a kind that there is not, DecodeError for bytes that are broken or could be of several.
    """
    options = DecodeOptions(None if kind is None else checked_kind(kind), show_secrets=show_passwords)
    decoded = decode_document(data, source=path or "bytes", path=path, options=options)
    if decoded.error is not None and not partly:
        raise decoded.error
    return cast("DecodedDocument", decoded.document)


def encode(
    document: DecodedDocument | Mapping[str, Any], *, codec: str | None = None, threshold: int | None = None
) -> bytes:
    """Return the bytes that a document of `decode` stands for: of it `kind`, `envelope` and `value` are read.

    `codec` ("none", "lz4", "zlib", "zstd", "snappy") beats that of the envelope; with `threshold` only what
    is more than so many bytes is compressed, as brokers do. DecodeError where the document describes nothing
    that can be stored, or a secret in it was redacted.
    """
    return encode_document(dict(document), codec=codec, threshold=threshold).data
