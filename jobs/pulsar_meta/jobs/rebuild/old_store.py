"""What an older store, a snapshot of one, or offloaded objects know, to be merged with the disks.

Values that can be kept byte for byte are separate from those that the disks may have outrun: lists of
ledgers,
cursors, schemas, BookKeeper's metadata. If no record names a ledger, its custom metadata (`pulsar/managed-
ledger`)
names its topic; an offloaded ledger keeps that metadata with its entries.

Source: apache/pulsar OffloadIndexBlockImpl.java (buildLedgerMetadataFormat),
FileSystemManagedLedgerOffloader.java, LedgerMetadataUtils.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.metadata.managed_place import managed_place
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

KNOWS: Final = "the old store has its name"
MEANT: Final = "the old store says for whom it was made"
# What of BookKeeper's part is copied where the disks do not have it.
_OF_BOOKKEEPER: Final = (f"{LEDGERS}/cookies", f"{LEDGERS}/INSTANCEID", f"{LEDGERS}/LAYOUT")
_ROLES: Final = frozenset(("data", "cursor", "compacted"))


@dataclass(slots=True)
class OldStore:
    """What an older store knew; empty where none was given.

    `topics` and `cursors` are records, the latter by topic and subscription; `ledgers` is what BookKeeper
    knew, with the value as it was; `others` are all other values that are part of a copy, by path.
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
        """The id of the next ledger when it was taken: what is below was made before. 0: not known."""
        return max(self.counters.get(IDGEN, 0), max(self.ledgers, default=-1) + 1)


def read_old_store(store: Store, report: Report) -> OldStore:
    """Return what a store knows; broken records go to `report`, and count for nothing. UnreachableError."""
    old = OldStore(counters=read_counters(store, long_buckets(store)))
    for held in store.scan():
        try:
            _take(old, held)
        except DecodeError as error:
            report(error)
    for ledger_id, (_, metadata) in old.ledgers.items():
        custom = {one.key: one.value.decode("utf-8", "replace") for one in metadata.customMetadata}
        owner = owner_in_custom(ledger_id, custom)
        if owner is not None and ledger_id not in old.names:
            _name(old.names, owner, MEANT)
    return old


def _take(old: OldStore, held: Versioned) -> None:
    ledger_id, path = ledger_of_path(held.path), held.path
    if ledger_id is not None:
        old.ledgers[ledger_id] = held.value, decode_ledger_metadata(held.value).metadata
        return
    place = managed_place(path, held.value)
    if place is not None and held.value:
        topic, cursor = place
        if cursor is None:
            old.topics[topic] = decode_managed_ledger(held.value)
        else:
            old.cursors[topic, cursor] = decode_cursor(held.value)
        for owner in named_by(held, None, lambda path, why: None):
            _name(old.names, owner, KNOWS)
    elif is_within(path, SCHEMAS) and held.value:
        old.schemas[path] = parse_message(SchemaLocator, held.value)
    elif why_left_out(held) is None and (not is_within(path, LEDGERS) or _is_copied(path)):
        old.others[path] = held.value


def _is_copied(path: str) -> bool:
    return any(is_within(path, place) for place in _OF_BOOKKEEPER)


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


SAYS: Final = "its copy in tiered storage has its name"


def names_in_objects(objects: OffloadedLedgers, report: Report) -> dict[int, Named]:
    """Return the topics of offloaded ledgers that say so; broken objects go to `report`. UnreachableError."""
    names: dict[int, Named] = {}
    for ledger_id in objects.ledgers():
        try:
            owner = owner_in_custom(ledger_id, objects.custom_metadata(ledger_id))
            if owner is not None and owner.role == "data":
                names[ledger_id] = Named(TopicName.parse(owner.name), SAYS)
        except DecodeError as error:
            report(error)
        except UsageError:
            # A name that cannot be one says nothing.
            continue
    return names
