"""`verify-entries` of disks whose bookie writes while the metadata is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.jobs.entries.entry_check import first_checks
from pulsar_meta.jobs.topics.topic import read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.registry import open_store
from tests.cli.program import pulsar_meta_here


def closed(folder: Path) -> None:
    """Close the topic's last ledger behind what only the journal has."""
    with open_store(f"rocksdb:{folder}/rocksdb", read_only=False) as store:
        ledger_id = read_topic(store, TopicName.parse("last-words")).ledgers[-1].ledger_id
        with open_entries([f"bookie-disk:{folder}"]) as source:
            last = source.last_entry(ledger_id)
        record = store.read(ledger_path(ledger_id))
        decoded = decode_ledger_metadata(record.value)
        decoded.metadata.state, decoded.metadata.lastEntryId = LedgerMetadataFormat.CLOSED, last or 0
        store.put(record.path, encode_ledger_metadata(decoded), record.version)


def test_entries_that_come_after_the_opening_are_not_missing(
    capture: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(capture("pulsar-4.2.4-killed"), tmp_path / "killed")
    closed(folder)
    journals = {path: path.with_suffix(".hidden") for path in folder.rglob("*.txn")}
    for path, hidden in journals.items():
        path.rename(hidden)
    given = ("--store", f"rocksdb:{folder}/rocksdb", "--entries", f"bookie-disk:{folder}")
    words = ("verify-entries", "last-words", *given, "-o", "json")
    assert {one["layer"] for one in json.loads(pulsar_meta_here(*words).stdout)} == {"missing"}

    def comes(*given: Any) -> Any:
        for path, hidden in journals.items():
            hidden.rename(path)
        return first_checks(*given)

    monkeypatch.setattr("pulsar_meta.cli.commands.verify_entries.first_checks", comes)
    done = pulsar_meta_here(*words)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
