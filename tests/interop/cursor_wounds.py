"""Wounds made on the store that `cursor_topics.make` left."""

from __future__ import annotations

from pathlib import Path

from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path, ledger_path
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store
from tests.interop.changed_records import delete, edit
from tests.interop.cursor_topics import PREFIX, TWICE

COMPACTION = "__compaction"
# Of TWICE the schema and its deletion, so that nothing stands between the version that is left and these.
LOST_VERSIONS = {
    "schema-only": (0,), "schema-first": (0,), "schema-middle": (1,), "schema-last": (2,), TWICE: (0, 1)
}  # fmt: skip


def wound(data: Path) -> None:
    """Wound every topic that has one coming, in the database of a killed standalone."""
    with open_store(f"rocksdb:{data / 'rocksdb'}", read_only=False) as store:
        edit(store, cursor("garbage-record"), lambda value: b"\xff\xfe\xfd garbage \x00\x01")
        edit(store, cursor("garbage-closed"), lambda value: b"\xff\xfe\xfd garbage \x00\x01")
        edit(store, cursor("cut-record"), lambda value: value[:-3])
        edit(store, cursor("empty-record"), lambda value: b"")
        delete(store, ledger_path(state_ledger(store, "ledger-gone", "work")))
        foreign = ledgers(store, "ledger-foreign")[0]
        edit(store, cursor("ledger-foreign"), lambda value: named(value, foreign))
        edit(store, cursor("pointer-closed", COMPACTION), without_properties)
        for name in ("compacted-closed", "compacted-in-ledger"):
            delete(store, ledger_path(compacted_ledger(store, name)))
        for name, at in LOST_VERSIONS.items():
            locator = SchemaLocator.FromString(store.read(schema_path(name)).value)
            for version in at:
                delete(store, ledger_path(locator.index[version].position.ledgerId))
        edit(store, TopicName.parse(PREFIX + "offload-begun").path, lambda value: offloaded(value, False))
        edit(store, TopicName.parse(PREFIX + "offload-lost").path, lambda value: offloaded(value, True))


def schema_path(name: str) -> str:
    return f"/schemas/public/default/{name}"


def cursor(name: str, subscription: str = "work") -> str:
    return TopicName.parse(PREFIX + name).cursor_path(subscription)


def state_ledger(store: Store, name: str, subscription: str) -> int:
    found = decode_cursor(store.read(cursor(name, subscription)).value).cursorsLedgerId
    assert found != STATE_IN_RECORD
    return found


def ledgers(store: Store, name: str) -> list[int]:
    info = decode_managed_ledger(store.read(TopicName.parse(PREFIX + name).path).value)
    return [ledger.ledgerId for ledger in info.ledgerInfo]


def compacted_ledger(store: Store, name: str) -> int:
    """Return the ledger that was created for a topic's compacted data, by its custom metadata."""
    for record in store.scan(LEDGERS):
        ledger_id = ledger_of_path(record.path)
        if ledger_id is not None:
            custom = bookkeeper_ledger_of(ledger_id, record).custom
            if custom.get("pulsar/compactedTopic") == PREFIX + name:
                return ledger_id
    raise KeyError(name)


def named(value: bytes, ledger_id: int) -> bytes:
    info = decode_cursor(value)
    info.cursorsLedgerId = ledger_id
    return info.SerializeToString()


def without_properties(value: bytes) -> bytes:
    info = decode_cursor(value)
    assert info.properties
    info.ClearField("properties")
    return info.SerializeToString()


def offloaded(value: bytes, complete: bool) -> bytes:
    info = decode_managed_ledger(value)
    context = info.ledgerInfo[1].offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 7, 8, complete, False
    context.timestamp = 1_700_000_000_000
    context.driverMetadata.name = "aws-s3"
    return info.SerializeToString()
