"""Records of a store changed, replaced or deleted in place, as tests do to damage a cluster."""

from __future__ import annotations

from collections.abc import Callable

from pulsar_meta.codecs.metadata.envelope import decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store


def edit(store: Store, path: str, change: Callable[[bytes], bytes]) -> None:
    """Write what `change` returns for the value at a path."""
    record = store.read(path)
    store.put(path, change(record.value), record.version)


def delete(store: Store, path: str) -> None:
    """Delete the value at a path."""
    store.delete(path, store.read(path).version)


def topic_record(store: Store, name: str) -> ManagedLedgerInfo:
    """Return a topic's record."""
    return decode_managed_ledger(store.read(TopicName.parse(name).path).value)


def edit_topic(store: Store, name: str, change: Callable[[ManagedLedgerInfo], None]) -> None:
    """Change a topic's record in place."""

    def changed(value: bytes) -> bytes:
        info = decode_managed_ledger(value)
        change(info)
        return info.SerializeToString()

    edit(store, TopicName.parse(name).path, changed)


def edit_ledger(store: Store, ledger_id: int, change: Callable[[LedgerMetadataFormat], None]) -> None:
    """Change BookKeeper's metadata of a ledger in place."""

    def changed(value: bytes) -> bytes:
        decoded = decode_ledger_metadata(value)
        change(decoded.metadata)
        return encode_ledger_metadata(decoded)

    edit(store, ledger_path(ledger_id), changed)
