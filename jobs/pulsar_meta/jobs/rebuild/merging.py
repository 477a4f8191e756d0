"""Merge an older store with the disks, and add the values that topics need.

A closed ledger keeps the older store's metadata. A topic continues after the last ledger that it had then.
Older ledgers that are not in its list had been deleted, and stay deleted. A cursor's position comes from its
ledger on the disks, otherwise from its old record. If a cursor ledger is older than the store and not in it,
its cursor had moved to another ledger.

Brokers also need the cluster, tenants, namespaces and numbers of partitions. A broker that loads a topic
deletes everything that nothing retains. So namespaces are written with infinite retention and without
deletion of inactive topics, until the operator changes that.

Sources: apache/bookkeeper LedgerMetadataFormat; apache/pulsar ManagedLedgerImpl.java (initialize),
ManagedCursorImpl.java (recover), Policies.java, InactiveTopicPolicies.java, PulsarClusterMetadataSetup.java,
PulsarTransactionCoordinatorMetadataSetup.java.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.acks import acks_of
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.rebuild.cursor_ledgers import CompactedClues
from pulsar_meta.jobs.rebuild.cursors import FoundCursor, cursor_facts, is_after, place_text
from pulsar_meta.jobs.rebuild.evidence import Rebuilt, RebuiltFacts
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.scan import ScanResult
from pulsar_meta.jobs.rebuild.schemas import SchemaClues
from pulsar_meta.jobs.rebuild.topics import LOST_NAMESPACE, LOST_TENANT, FoundTopic
from pulsar_meta.jobs.rebuild.transactions import COORDINATORS, log_topic
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION, Owner, custom_metadata
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.jobs.topics.topic import Position
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator

DEFAULT: Final = "not on the disks, so it has the minimum that brokers need"
KEPT: Final = "infinite retention, and no deletion of inactive topics, until subscriptions are in place"
# Keeps topics without clients.
NEVER_INACTIVE: Final[dict[str, Any]] = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 2**31 - 1,
    "deleteWhileInactive": False,
}
# The default number of bundles. A broker loads the topics of a bundle together.
_BOUNDARIES: Final = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")
# Namespaces that the setup of every cluster creates, and lost+found.
_DEFAULT_NAMESPACES: Final = ("public/default", "pulsar/system", f"{LOST_TENANT}/{LOST_NAMESPACE}")


def what_topics_need(topics: Iterable[FoundTopic], schemas: Iterable[str], cluster: str) -> Iterator[Rebuilt]:
    """Yield the cluster, tenants, namespaces and numbers of partitions that the topics need.

    `schemas` are the names (`tenant/namespace/name`) of topics that have a schema.
    """
    names = {topic.name for topic in topics}
    namespaces = {topic.namespace_name for topic in names} | {*_DEFAULT_NAMESPACES}
    namespaces |= {schema.rpartition("/")[0] for schema in schemas}
    yield Rebuilt(f"/admin/clusters/{cluster}", "invented", (DEFAULT,), _json({}))
    for tenant in sorted({namespace.partition("/")[0] for namespace in namespaces}):
        tenant_value = {"adminRoles": [], "allowedClusters": [cluster]}
        yield Rebuilt(f"/admin/policies/{tenant}", "invented", (DEFAULT,), _json(tenant_value))
    for namespace in sorted(namespaces):
        yield Rebuilt(f"/admin/policies/{namespace}", "invented", (DEFAULT, KEPT), _json(_policies(cluster)))
    yield from _partitions(names)


def _partitions(names: set[TopicName]) -> Iterator[Rebuilt]:
    partitions: dict[TopicName, int] = {}
    for topic in names:
        if topic.partitioned is not None and topic.partition is not None:
            partitions[topic.partitioned] = max(partitions.get(topic.partitioned, 0), topic.partition + 1)
    why = ("from the highest partition with a name",)
    for topic, count in sorted(partitions.items(), key=lambda pair: str(pair[0])):
        yield Rebuilt(topic.partitioned_path, "likely", why, _partition_record(count))
    coordinators = _coordinators(names)
    if coordinators:
        why = ("from the highest coordinator on the disks",)
        yield Rebuilt(COORDINATORS.partitioned_path, "likely", why, _partition_record(coordinators))


def _coordinators(names: set[TopicName]) -> int:
    """The number of coordinators: one more than the highest one with a log."""
    prefix = log_topic(0).local[:-1]
    system = [topic.local for topic in names if topic.namespace_name == "pulsar/system"]
    numbers = (local.removeprefix(prefix) for local in system if local.startswith(prefix))
    return max((int(number) for number in numbers if number.isdigit()), default=-1) + 1


def _partition_record(count: int) -> bytes:
    return _json({"partitions": count, "deleted": False})


def _policies(cluster: str) -> dict[str, Any]:
    return {
        "replication_clusters": [cluster],
        "bundles": {"boundaries": list(_BOUNDARIES), "numBundles": len(_BOUNDARIES) - 1},
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "inactive_topic_policies": NEVER_INACTIVE,
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


IN_OLD: Final = "it is in the old store"
PARTITIONED: Final = "/admin/partitioned-topics/"
# Fields to copy to the rebuilt metadata of a ledger that was open when the old store was copied.
_COPIED_FIELDS: Final = ("ctime", "ackQuorumSize")


def closed_before(ledger_id: int, old: OldStore) -> bytes | None:
    """BookKeeper's value of a ledger that is closed in the old store; None for other ledgers."""
    value, metadata = old.ledgers.get(ledger_id, (None, None))
    closed = metadata is not None and metadata.state == LedgerMetadataFormat.CLOSED
    return value if closed else None


def certain_owners(
    scanned: ScanResult,
    topics: Iterable[FoundTopic],
    cursors: Iterable[FoundCursor],
    listed: Collection[int],
) -> dict[int, Owner]:
    """Map the ledgers whose topic is certain to their owners.

    `listed` are the data ledgers in the records of topics. Others have no owner, because a ledger that names
    a topic and is not in its list looks lost.
    """
    # Not every release encodes the subscription in the name of its log of pending acknowledgements.
    certain = {
        topic.name: topic for topic in topics if topic.certainty == "certain" and "%" not in topic.name.local
    }
    compacted = scanned.clues_of(CompactedClues)
    owners = [
        Owner(clues.ledger_id, "schema", clues.schema_id, None, None)
        for clues in scanned.clues_of(SchemaClues).values()
    ]
    for name, topic in certain.items():
        data = (ledger_id for ledger_id in topic.ledgers if ledger_id in listed)
        owners += (Owner(ledger_id, "data", str(name), None, None) for ledger_id in data)
        mentions = (ledger_id for ledger_id in topic.mentions if ledger_id in compacted)
        owners += (Owner(ledger_id, "compacted", str(name), COMPACTION, None) for ledger_id in mentions)
    for cursor in cursors:
        if cursor.topic in certain and cursor.name is not None and cursor.sure:
            owners.append(Owner(cursor.clues.ledger_id, "cursor", str(cursor.topic), cursor.name, None))
    return {owner.ledger_id: owner for owner in owners}


def with_old_metadata(value: bytes, ledger_id: int, old: OldStore, owner: Owner | None) -> bytes:
    """Add the fields that no disk has to the value of a ledger.

    They come from the old store. If that has no custom metadata, Pulsar's for the ledger's owner is added.
    """
    _, before = old.ledgers.get(ledger_id, (None, None))
    if before is None and owner is None:
        return value
    decoded = decode_ledger_metadata(value)
    metadata = decoded.metadata
    if before is not None:
        metadata.customMetadata.extend(before.customMetadata)
        for name in _COPIED_FIELDS:
            if before.HasField(name):
                setattr(metadata, name, getattr(before, name))
    if owner is not None and not metadata.customMetadata:
        for key, text in custom_metadata(owner):
            metadata.customMetadata.add(key=key, value=text)
    return encode_ledger_metadata(LedgerMetadata(decoded.format_version, metadata))


def gone_ledgers(scanned: ScanResult, old: OldStore) -> Iterator[Rebuilt]:
    """Yield the ledgers with entries that the old store refers to and that are on no disk."""
    for ledger_id, named in sorted(old.names.items()):
        value, metadata = old.ledgers.get(ledger_id, (None, None))
        empty = metadata is None or metadata.lastEntryId < 0
        if ledger_id not in scanned.ledgers and not (empty and _entries_of(ledger_id, named.topic, old) == 0):
            of = str(named.topic) if named.cursor is None else f"{named.topic}, subscription {named.cursor}"
            offloaded = _is_offloaded(ledger_id, named.topic, old)
            why = "it is in tiered storage" if offloaded else "it was deleted, or its disks are missing"
            facts: RebuiltFacts = {"gone": ledger_id, "of": of}
            evidence = ("the old store refers to it, but no disk has it", why)
            yield Rebuilt(ledger_path(ledger_id), "gone", evidence, value if offloaded else None, facts)


def merged_cursors(
    rebuilt: Iterable[Rebuilt],
    cursors: Iterable[FoundCursor],
    scanned: ScanResult,
    old: OldStore,
    ends: Mapping[TopicName, Position],
) -> Iterator[Rebuilt]:
    """Yield the cursors on the disks and in the old store, each with its last position.

    `ends` are the last positions of topics.
    """
    by_path = {cursor.path: cursor for cursor in rebuilt}
    before = {topic.cursor_path(name): (topic, name) for topic, name in old.cursors}
    unnamed = (cursor.clues.ledger_id for cursor in cursors if cursor.name is None)
    abandoned = {ledger_id for ledger_id in unnamed if ledger_id < old.next_id}
    for path, cursor in by_path.items():
        if path in before:
            topic, _ = before[path]
            yield _within(_newer(cursor, old.cursors[before[path]], scanned), ends.get(topic))
        elif cursor.facts.get("cursor_ledger") not in abandoned:
            yield cursor
    for path, (topic, name) in before.items():
        if path not in by_path:
            yield _within(_as_it_was(path, topic, name, old.cursors[topic, name], scanned), ends.get(topic))


def _within(cursor: Rebuilt, end: Position | None) -> Rebuilt:
    """Move a position in an empty ledger that the topic does not have any more to the topic's end."""
    if cursor.value is None or end is None:
        return cursor
    record = decode_cursor(cursor.value)
    at, in_record = _mark_delete(record), record.cursorsLedgerId == STATE_IN_RECORD
    if not in_record or not is_after(at, end) or acks_of(record).range_count:
        return cursor
    record.markDeleteLedgerId, record.markDeleteEntryId = end
    facts = cursor.facts | {"position": place_text(end)}
    why = f"its old position is in ledger {at.ledger_id}, of which no disk has an entry"
    return replace(cursor, value=record.SerializeToString(), facts=facts, evidence=(*cursor.evidence, why))


def merged_schemas(rebuilt: Iterable[Rebuilt], scanned: ScanResult, old: OldStore) -> Iterator[Rebuilt]:
    """Yield the schema locators of the old store, unless the disks have a later version."""
    by_path = {schema.path: schema for schema in rebuilt}
    for path, locator in old.schemas.items():
        schema, ledger_id = by_path.pop(path, None), locator.info.position.ledgerId
        later = schema is not None and schema.value is not None and _is_later(schema.value, old)
        facts: RebuiltFacts = {"schema": path.removeprefix("/schemas/")}
        if schema is not None and (later or ledger_id not in scanned.ledgers):
            yield schema
        elif ledger_id in scanned.ledgers:
            facts = facts if schema is None else schema.facts
            yield Rebuilt(path, "old", (IN_OLD,), locator.SerializeToString(), facts)
        else:
            yield Rebuilt(path, "gone", (IN_OLD, f"its ledger {ledger_id} is on no disk"), None, facts)
    yield from by_path.values()


def merged_needs(rebuilt: Iterable[Rebuilt], old: OldStore, *, as_they_were: bool) -> Iterator[Rebuilt]:
    """Yield all other values: those of the old store, and the others that brokers need.

    Policies of namespaces are changed to keep everything, because topics may not have subscriptions yet. With
    `as_they_were`, policies stay as they are in the old store.
    """
    left = dict(old.others)
    for made in rebuilt:
        before = left.pop(made.path, None)
        certain = made.certainty == "certain" and made.value is not None
        if before is None or certain or _has_more_partitions(made, before):
            yield made
        else:
            yield _of_old(made.path, before, as_they_were=as_they_were)
    for path, value in left.items():
        yield _of_old(path, value, as_they_were=as_they_were)


def _of_old(path: str, value: bytes, *, as_they_were: bool) -> Rebuilt:
    kept = None if as_they_were else _keeping_everything(path, value)
    if kept is None:
        return Rebuilt(path, "old", (IN_OLD,), value)
    return Rebuilt(path, "old", (IN_OLD, KEPT), kept)


def _keeping_everything(path: str, value: bytes) -> bytes | None:
    """Change the policies of a namespace so that nothing is deleted; None if the value has no policies."""
    if not path.startswith(f"{POLICIES}/") or path.count("/") < POLICIES.count("/") + 2:
        return None
    try:
        policies = read_json_object(value)
    except DecodeError:
        return None
    inactive = policies.get("inactive_topic_policies") or {}
    return _json(
        {
            **policies,
            "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            "inactive_topic_policies": {**NEVER_INACTIVE, **inactive, "deleteWhileInactive": False},
        }
    )


def _has_more_partitions(made: Rebuilt, before: bytes) -> bool:
    if not made.path.startswith(PARTITIONED) or made.value is None:
        return False
    try:
        here, then = (read_json_object(value).get("partitions") for value in (made.value, before))
    except DecodeError:
        return True
    return not isinstance(then, int) or (isinstance(here, int) and here > then)


def _newer(cursor: Rebuilt, before: ManagedCursorInfo, scanned: ScanResult) -> Rebuilt:
    """Choose the cursor on the disks, unless its old record has a later position."""
    if cursor.value is None:
        return cursor
    record = decode_cursor(cursor.value)
    here, then = _mark_delete(record), _mark_delete(before)
    if before.cursorsLedgerId != record.cursorsLedgerId and then > here and _is_readable(before, scanned):
        facts = cursor.facts | {"position": place_text(then), "cursor_ledger": None}
        why = IN_OLD, "its old position is later than the one in its ledger"
        return Rebuilt(cursor.path, "old", why, before.SerializeToString(), facts)
    record.cursorProperties.extend(before.cursorProperties)
    if before.HasField("lastActive"):
        record.lastActive = before.lastActive
    certainty = "certain" if cursor.certainty == "lost+found" else cursor.certainty
    evidence = (*cursor.evidence, IN_OLD)
    return Rebuilt(cursor.path, certainty, evidence, record.SerializeToString(), cursor.facts)


def _as_it_was(
    path: str, topic: TopicName, name: str, before: ManagedCursorInfo, scanned: ScanResult
) -> Rebuilt:
    record = ManagedCursorInfo()
    record.CopyFrom(before)
    evidence = [IN_OLD]
    if not _is_readable(before, scanned):
        record.cursorsLedgerId = STATE_IN_RECORD
        why = f"its ledger {before.cursorsLedgerId} is on no disk, so it has the position of its record"
        evidence.append(why)
    if name == COMPACTION:
        kept = [
            item for item in record.properties if item.name != COMPACTED_LEDGER or item.value in scanned.kept
        ]
        if len(kept) < len(record.properties):
            evidence.append("its compacted ledger is on no disk")
            del record.properties[:]
            record.properties.extend(kept)
    facts = cursor_facts(topic, name) | {"position": place_text(_mark_delete(record))}
    return Rebuilt(path, "old", tuple(evidence), record.SerializeToString(), facts)


def _is_readable(record: ManagedCursorInfo, scanned: ScanResult) -> bool:
    return record.cursorsLedgerId == STATE_IN_RECORD or record.cursorsLedgerId in scanned.kept


def _mark_delete(record: ManagedCursorInfo) -> Position:
    return Position(record.markDeleteLedgerId, record.markDeleteEntryId)


def _is_later(value: bytes, old: OldStore) -> bool:
    """True if a schema was written after the old store was copied."""
    return parse_message(SchemaLocator, value).info.position.ledgerId >= old.next_id


def _entries_of(ledger_id: int, topic: TopicName, old: OldStore) -> int:
    info = old.topics.get(topic)
    return sum(item.entries for item in info.ledgerInfo if item.ledgerId == ledger_id) if info else 0


def _is_offloaded(ledger_id: int, topic: TopicName, old: OldStore) -> bool:
    info = old.topics.get(topic)
    return info is not None and any(
        item.ledgerId == ledger_id and item.offloadContext.complete for item in info.ledgerInfo
    )
