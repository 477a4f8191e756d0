"""Read an older store, a snapshot of one, or offloaded objects, to merge them with the disks.

Values that can be kept byte for byte are separate from those for which the disks may be newer: lists of
ledgers, cursors, schemas, BookKeeper metadata. If no record refers to a ledger, its custom metadata
(`pulsar/managed-ledger`) names its topic. An offloaded ledger has a copy of that metadata.

Source: apache/pulsar OffloadIndexBlockImpl.java (buildLedgerMetadataFormat),
FileSystemManagedLedgerOffloader.java, LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger, managed_place
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.entries.offload_files import OffloadedLedgers
from pulsar_meta.jobs.rebuild.names import Named
from pulsar_meta.jobs.topics.owners import SCHEMAS, Owner, named_by, owner_in_custom
from pulsar_meta.jobs.topics.topic import Report
from pulsar_meta.jobs.values.places import IDGEN, long_buckets, read_counters, why_left_out
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator
from pulsar_meta.stores.base import Store, Versioned, is_within

IN_RECORD: Final = "a record of the old store refers to it"
IN_CUSTOM: Final = "its custom metadata in the old store names its topic"
# BookKeeper values that are copied if they can't be rebuilt from the disks.
_COPIED: Final = (f"{LEDGERS}/cookies", f"{LEDGERS}/INSTANCEID", f"{LEDGERS}/LAYOUT")
_ROLES: Final = frozenset(("data", "cursor", "compacted"))


@dataclass(slots=True)
class OldStore:
    """The values of an older store; empty if there is none.

    `cursors` is keyed by topic and subscription. `ledgers` has the BookKeeper metadata of each ledger, as
    bytes and decoded. `others` has all other values that belong in a copy, by path.
    """

    names: dict[int, Named] = field(default_factory=dict)
    topics: dict[TopicName, ManagedLedgerInfo] = field(default_factory=dict)
    cursors: dict[tuple[TopicName, str], ManagedCursorInfo] = field(default_factory=dict)
    ledgers: dict[int, tuple[bytes, LedgerMetadataFormat]] = field(default_factory=dict)
    schemas: dict[str, SchemaLocator] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def next_id(self) -> int:
        """The id of the next ledger when the copy was made. Lower ids are older than it. 0 if unknown."""
        return max(self.counters.get(IDGEN, 0), max(self.ledgers, default=-1) + 1)


def read_old_store(store: Store, report: Report) -> OldStore:
    """Read a store. Corrupt records go to `report` and are skipped. Raises UnreachableError."""
    old = OldStore(counters=read_counters(store, long_buckets(store)))
    for stored in store.scan():
        try:
            _add(old, stored)
        except DecodeError as error:
            report(error)
    for ledger_id, (_, metadata) in old.ledgers.items():
        custom = {pair.key: pair.value.decode("utf-8", "replace") for pair in metadata.customMetadata}
        owner = owner_in_custom(ledger_id, custom)
        if owner is not None and ledger_id not in old.names:
            _name(old.names, owner, IN_CUSTOM)
    return old


def _add(old: OldStore, stored: Versioned) -> None:
    ledger_id, path = ledger_of_path(stored.path), stored.path
    if ledger_id is not None:
        old.ledgers[ledger_id] = stored.value, decode_ledger_metadata(stored.value).metadata
        return
    place = managed_place(path, stored.value)
    if place is not None and stored.value:
        topic, cursor = place
        if cursor is None:
            old.topics[topic] = decode_managed_ledger(stored.value)
        else:
            old.cursors[topic, cursor] = decode_cursor(stored.value)
        for owner in named_by(stored, None, lambda path, why: None):
            _name(old.names, owner, IN_RECORD)
    elif is_within(path, SCHEMAS) and stored.value:
        old.schemas[path] = parse_message(SchemaLocator, stored.value)
    elif why_left_out(stored) is None and (not is_within(path, LEDGERS) or _is_copied(path)):
        old.others[path] = stored.value


def _is_copied(path: str) -> bool:
    return any(is_within(path, place) for place in _COPIED)


def _name(names: dict[int, Named], owner: Owner, why: str) -> None:
    if owner.role in _ROLES and owner.ledger_id not in names:
        cursor = owner.cursor if owner.role == "cursor" else None
        topic = _topic(owner.name)
        if topic is not None:
            names[owner.ledger_id] = Named(topic, why, cursor)


def _topic(name: str) -> TopicName | None:
    try:
        return TopicName.parse(name)
    except UsageError:
        return None


IN_OBJECT: Final = "its copy in tiered storage names its topic"


def names_in_objects(objects: OffloadedLedgers, report: Report) -> dict[int, Named]:
    """Find the topics of offloaded ledgers in their custom metadata.

    Corrupt objects go to `report`. Raises UnreachableError.
    """
    names: dict[int, Named] = {}
    for ledger_id in objects.ledgers():
        try:
            owner = owner_in_custom(ledger_id, objects.custom_metadata(ledger_id))
            if owner is not None and owner.role == "data":
                names[ledger_id] = Named(TopicName.parse(owner.name), IN_OBJECT)
        except DecodeError as error:
            report(error)
        except UsageError:
            # An invalid name is no evidence.
            continue
    return names
