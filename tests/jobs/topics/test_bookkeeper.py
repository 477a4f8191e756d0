"""The cache of ledger metadata that the reader of live bookies keeps."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.jobs.topics import bookkeeper
from pulsar_meta.jobs.topics.bookkeeper import StoredCluster
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore


def stored(*members: str, last_entry: int | None = None) -> bytes:
    """Encode metadata of a ledger on `members`; without `last_entry`, the ledger is open."""
    metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=9, state=LedgerMetadataFormat.OPEN)
    metadata.segment.add(firstEntryId=0, ensembleMember=members)
    if last_entry is not None:
        metadata.state, metadata.lastEntryId = LedgerMetadataFormat.CLOSED, last_entry
    return encode_ledger_metadata(LedgerMetadata(3, metadata))


def test_an_open_ledger_is_read_each_time_and_a_closed_one_is_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    cluster, path = StoredCluster(store), ledger_path(7)
    store.put(path, stored("a:1"), ABSENT)
    assert cluster.ensembles(7).replicas(0) == ["a:1"]
    store.put(path, stored("b:1", last_entry=4), 0)
    assert (cluster.ensembles(7).replicas(0), cluster.ensembles(7).last_entry) == (["b:1"], 4)
    store.put(path, stored("c:1", last_entry=4), 1)
    assert cluster.ensembles(7).replicas(0) == ["b:1"]
    monkeypatch.setattr(bookkeeper, "KEPT_SECONDS", 0.0)
    assert cluster.ensembles(7).replicas(0) == ["c:1"]
