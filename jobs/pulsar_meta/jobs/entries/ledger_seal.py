"""How the entries of a ledger are sealed, and what they are, as BookKeeper's metadata of it says.

Source: apache/pulsar managed-ledger LedgerMetadataUtils.java (custom metadata of ledgers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import DigestType
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.entries.entry_choice import Tell
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Store

# Managed ledgers that hold no frames, by what their names contain (TransactionLog, pending acks).
LOGS: Final = {
    "__transaction_log_": "the log of a transaction coordinator",
    "__transaction_pending_ack": "acknowledgments in transactions",
}


@dataclass(frozen=True, slots=True)
class LedgerSeal:
    """How the entries of a ledger are sealed and what they are, as far as the store says.

    `content` names what they are where they are no frames; `frames` is true where they must be frames.
    """

    digest_type: DigestType | None = None
    password: bytes | None = None
    content: str | None = None
    frames: bool = False


def ledger_seal(store: Store | None, ledger_id: int, tell: Tell) -> LedgerSeal:
    """Return what the store says about a ledger's entries."""
    if store is None:
        return LedgerSeal()
    try:
        metadata = _read(store, ledger_id)
    except DecodeError as error:
        tell(error)
        metadata = None
    if metadata is None:
        return LedgerSeal()
    digest_type = password = None
    if metadata.HasField("digestType"):
        name = LedgerMetadataFormat.DigestType.Name(metadata.digestType)
        digest_type = cast("DigestType", name)
        password = metadata.password
    custom = {pair.key: pair.value.decode("utf-8", "replace") for pair in metadata.customMetadata}
    content = _content(custom)
    frames = content is None and custom.get("component") == "managed-ledger"
    return LedgerSeal(digest_type, password, content, frames)


def _read(store: Store, ledger_id: int) -> LedgerMetadataFormat | None:
    path = ledger_path(ledger_id)
    try:
        return decode_ledger_metadata(store.read(path).value).metadata
    except NotFoundError:
        return None
    except DecodeError as error:
        raise DecodeError(error.message, offset=error.offset, source=path) from error


def _content(custom: Mapping[str, str]) -> str | None:
    """Return what a ledger holds that are no frames, by the custom metadata that Pulsar writes."""
    if "pulsar/cursor" in custom:
        return f"state of the cursor {custom['pulsar/cursor']}"
    match custom.get("component"):
        case "schema":
            return f"the schema of {custom.get('pulsar/schemaId')}"
        case "delayed-index-bucket":
            return "an index of delayed messages"
    name = custom.get("pulsar/managed-ledger", "")
    return next((content for mark, content in LOGS.items() if mark in name), None)
