"""The frames of captured topics."""

from __future__ import annotations

from pathlib import Path

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.jobs.entries.entry_choice import Limits, choose
from pulsar_meta.jobs.entries.entry_reading import read_entries
from pulsar_meta.stores.registry import open_store


def fail(error: PulsarMetaError) -> None:
    """A listener that fails the test at the first error."""
    raise error


def frames_of(folder: Path, topic: str) -> list[bytes]:
    """Return the frames of a topic in the capture at `folder`, in reading order."""
    urls = [f"bookie-disk:{folder}/bookie0"]
    with open_store(f"rocksdb:{folder}/rocksdb") as store, open_entries(urls) as source:
        entries = read_entries(
            ((choice, Limits()) for choice in choose([topic], store, source, fail)), source, store, fail
        )
        return [bytes(entry.data) for entry, _ in entries]
