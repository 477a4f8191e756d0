"""A ledger whose newest entries reach a bookie's journal after its metadata is closed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import Store

# In the capture `pulsar-4.2.4-killed`, the last entries of this topic are only in a journal.
LAST_WORDS: Final = TopicName.parse("last-words")


def close_last_ledger(store: Store, folder: Path) -> None:
    """Close the last ledger of `LAST_WORDS` at the last entry that the journals in `folder` have."""
    ledger_id = read_topic(store, LAST_WORDS).ledgers[-1].ledger_id
    with open_entries([f"bookie-disk:{folder}"]) as source:
        last = source.last_entry(ledger_id)
    record = store.read(ledger_path(ledger_id))
    decoded = decode_ledger_metadata(record.value)
    decoded.metadata.state, decoded.metadata.lastEntryId = LedgerMetadataFormat.CLOSED, last or 0
    store.put(record.path, encode_ledger_metadata(decoded), record.version)


def hide_journals(folder: Path) -> None:
    """Hide the bookie's journals and empty its mark in them, as if they were not written yet."""
    for file in (*folder.rglob("*.txn"), *folder.rglob("lastMark")):
        file.rename(file.with_name(f"hidden-{file.name}"))
    for mark in folder.rglob("hidden-lastMark"):
        mark.with_name("lastMark").touch()


def write_journals(folder: Path) -> None:
    """Show the hidden journals again, as if the bookie had just written them."""
    for file in folder.rglob("hidden-*"):
        file.replace(file.with_name(file.name.removeprefix("hidden-")))
