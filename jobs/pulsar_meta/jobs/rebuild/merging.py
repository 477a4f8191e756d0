"""Merge an older store with today's disks: the newer version of each value, and what topics need besides.

A ledger that was closed keeps the older store's metadata. A topic continues after the last ledger it had
then; older
ledgers that were not in its list had been deleted and stay deleted. A cursor's position comes from its ledger
on the
disks, otherwise from its old record. Cursor ledgers that are older than the store and not in it belong to
cursors
that had moved to other ledgers.

Brokers also need the cluster, tenants, namespaces and numbers of partitions. A broker that loads a topic
deletes
what nothing retains, so namespaces are written with infinite retention and without deletion of inactive
topics,
until the operator changes that.

Sources: apache/bookkeeper LedgerMetadataFormat; apache/pulsar ManagedLedgerImpl.java (initialize),
ManagedCursorImpl.java (recover), Policies.java, InactiveTopicPolicies.java, PulsarClusterMetadataSetup.java,
PulsarTransactionCoordinatorMetadataSetup.java.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.envelope import STATE_IN_RECORD, decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.jobs.rebuild.cursors import FoundCursor
from pulsar_meta.jobs.rebuild.evidence import Rebuilt, RebuiltFacts
from pulsar_meta.jobs.rebuild.old_store import OldStore
from pulsar_meta.jobs.rebuild.scan import Scanned
from pulsar_meta.jobs.rebuild.topics import LOST_NAMESPACE, LOST_TENANT, FoundTopic
from pulsar_meta.jobs.rebuild.transactions import COORDINATORS, log_topic
from pulsar_meta.jobs.topics.owners import COMPACTED_LEDGER, COMPACTION
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import SchemaLocator

LEAST: Final = "nothing on the disks says it: the least that brokers need"
# What keeps topics that nobody uses.
NEVER_INACTIVE: Final[dict[str, Any]] = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 2**31 - 1,
    "deleteWhileInactive": False,
}
# As many bundles as brokers make by default: what one has is loaded together.
_BOUNDARIES: Final = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")
# Namespaces that the setup of every cluster makes.
_ALWAYS: Final = ("public/default", "pulsar/system")


def what_topics_need(topics: Iterable[FoundTopic], schemas: Iterable[str], cluster: str) -> Iterator[Rebuilt]:
    """Yield the cluster, tenants, namespaces and numbers of partitions that the topics need.

    `schemas` are the names (`tenant/namespace/name`) of topics that have a schema.
    """
    names = {topic.name for topic in topics}
    namespaces = {topic.namespace_name for topic in names} | {*_ALWAYS, f"{LOST_TENANT}/{LOST_NAMESPACE}"}
    namespaces |= {schema.rpartition("/")[0] for schema in schemas}
    yield Rebuilt(f"/admin/clusters/{cluster}", "invented", (LEAST,), _json({}))
    for tenant in sorted({namespace.partition("/")[0] for namespace in namespaces}):
        tenant_value = {"adminRoles": [], "allowedClusters": [cluster]}
        yield Rebuilt(f"/admin/policies/{tenant}", "invented", (LEAST,), _json(tenant_value))
    kept = (LEAST, "infinite retention, and inactive topics stay, until subscriptions are in place")
    for namespace in sorted(namespaces):
        yield Rebuilt(f"/admin/policies/{namespace}", "invented", kept, _json(_policies(cluster)))
    yield from _partitions(names)


def _partitions(names: set[TopicName]) -> Iterator[Rebuilt]:
    partitions: dict[TopicName, int] = {}
    for topic in names:
        if topic.partitioned is not None and topic.partition is not None:
            partitions[topic.partitioned] = max(partitions.get(topic.partitioned, 0), topic.partition + 1)
    why = ("by the highest partition that has a name",)
    for topic, count in sorted(partitions.items(), key=lambda pair: str(pair[0])):
        yield Rebuilt(topic.partitioned_path, "likely", why, _partition_record(count))
    coordinators = _coordinators(names)
    if coordinators:
        why = ("by the highest coordinator that the disks name",)
        yield Rebuilt(COORDINATORS.partitioned_path, "likely", why, _partition_record(coordinators))


def _coordinators(names: set[TopicName]) -> int:
    """Return how many coordinators there are, up to the highest one of which there is a log."""
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


HAS_IT: Final = "the old store has it"
PARTITIONED: Final = "/admin/partitioned-topics/"
# What is copied into the metadata of a ledger that was open when the old store was taken.
_KEPT: Final = ("customMetadata", "ctime", "ackQuorumSize")


def closed_before(ledger_id: int, old: OldStore) -> bytes | None:
    """Return BookKeeper's value of a ledger that the old store has as closed, None of others."""
    value, metadata = old.ledgers.get(ledger_id, (None, None))
    closed = metadata is not None and metadata.state == LedgerMetadataFormat.CLOSED
    return value if closed else None


def with_old_metadata(value: bytes, ledger_id: int, old: OldStore) -> bytes:
    """Return the value of a ledger with what only the old store says of it."""
    _, before = old.ledgers.get(ledger_id, (None, None))
    if before is None:
        return value
    decoded = decode_ledger_metadata(value)
    metadata = decoded.metadata
    for name in _KEPT:
        if name == "customMetadata":
            metadata.customMetadata.extend(before.customMetadata)
        elif before.HasField(name):
            setattr(metadata, name, getattr(before, name))
    return encode_ledger_metadata(LedgerMetadata(decoded.format_version, metadata))


def gone_ledgers(scanned: Scanned, old: OldStore) -> Iterator[Rebuilt]:
    """Yield the ledgers with entries that the old store names and of which no disk has one."""
    for ledger_id, named in sorted(old.names.items()):
        value, metadata = old.ledgers.get(ledger_id, (None, None))
        empty = metadata is None or metadata.lastEntryId < 0
        if ledger_id not in scanned.found and not (empty and _entries_of(ledger_id, named.topic, old) == 0):
            of = str(named.topic) if named.cursor is None else f"{named.topic}, subscription {named.cursor}"
            kept = _is_offloaded(ledger_id, named.topic, old)
            why = "it lies in tiered storage" if kept else "deleted since, or on disks that are not here"
            facts: RebuiltFacts = {"gone": ledger_id, "of": of}
            evidence = ("the old store names it, and no disk has it", why)
            yield Rebuilt(ledger_path(ledger_id), "gone", evidence, value if kept else None, facts)


def merged_cursors(
    rebuilt: Iterable[Rebuilt], cursors: Iterable[FoundCursor], scanned: Scanned, old: OldStore
) -> Iterator[Rebuilt]:
    """Yield the cursors that the disks and the old store know, each where it stood last."""
    made = {one.path: one for one in rebuilt}
    before = {topic.cursor_path(name): key for key in old.cursors for topic, name in (key,)}
    since = {one.clues.ledger_id for one in cursors if one.name is None and one.clues.ledger_id < old.next_id}
    for path, one in made.items():
        if path in before:
            yield _newer(one, old.cursors[before[path]], scanned)
        elif one.facts.get("cursor_ledger") not in since:
            yield one
    for path, (topic, name) in before.items():
        if path not in made:
            yield _as_it_was(path, topic, name, old.cursors[topic, name], scanned)


def merged_schemas(rebuilt: Iterable[Rebuilt], scanned: Scanned, old: OldStore) -> Iterator[Rebuilt]:
    """Yield the locators of schemas: the old store's, unless a later version is on the disks."""
    made = {one.path: one for one in rebuilt}
    for path, locator in old.schemas.items():
        one = made.pop(path, None)
        later = one is not None and one.value is not None and _is_later(one.value, old)
        if one is not None and (later or locator.info.position.ledgerId not in scanned.found):
            yield one
        elif locator.info.position.ledgerId in scanned.found:
            facts: RebuiltFacts = {"schema": path.removeprefix("/schemas/")} if one is None else one.facts
            yield Rebuilt(path, "old", (HAS_IT,), locator.SerializeToString(), facts)
        else:
            why = f"its ledger {locator.info.position.ledgerId} is on no disk"
            yield Rebuilt(path, "gone", (HAS_IT, why), None, {"schema": path.removeprefix("/schemas/")})
    yield from made.values()


def merged_needs(rebuilt: Iterable[Rebuilt], old: OldStore, *, as_they_were: bool) -> Iterator[Rebuilt]:
    """Yield all other values: those of the old store, and what else brokers need.

    Policies of namespaces keep everything, unless they are to be `as_they_were`: a topic may have no
    subscriptions yet.
    """
    left = dict(old.others)
    for one in rebuilt:
        before = left.pop(one.path, None)
        if before is None or (one.certainty == "certain" and one.value is not None) or _more(one, before):
            yield one
        else:
            yield _of_old(one.path, before, as_they_were=as_they_were)
    for path, value in left.items():
        yield _of_old(path, value, as_they_were=as_they_were)


def _of_old(path: str, value: bytes, *, as_they_were: bool) -> Rebuilt:
    kept = None if as_they_were else _keeping_everything(path, value)
    if kept is None:
        return Rebuilt(path, "old", (HAS_IT,), value)
    why = "infinite retention, and inactive topics stay, until subscriptions are in place"
    return Rebuilt(path, "old", (HAS_IT, why), kept)


def _keeping_everything(path: str, value: bytes) -> bytes | None:
    """Return the policies of a namespace under which nothing is deleted, None where that is no such value."""
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


def _more(one: Rebuilt, before: bytes) -> bool:
    """Return whether the disks have more partitions than the old store."""
    if not one.path.startswith(PARTITIONED) or one.value is None:
        return False
    try:
        here, then = (read_json_object(value).get("partitions") for value in (one.value, before))
    except DecodeError:
        return True
    return not isinstance(then, int) or (isinstance(here, int) and here > then)


def _newer(one: Rebuilt, before: ManagedCursorInfo, scanned: Scanned) -> Rebuilt:
    """Return the cursor that the disks have, unless its old record was further."""
    if one.value is None:
        return one
    record = decode_cursor(one.value)
    mine, theirs = (_stood(record), _stood(before))
    if before.cursorsLedgerId != record.cursorsLedgerId and theirs > mine and _is_readable(before, scanned):
        facts = one.facts | {"position": f"{theirs[0]}:{theirs[1]}", "cursor_ledger": None}
        return Rebuilt(one.path, "old", (HAS_IT, "it was further than its ledger"), _bytes(before), facts)
    record.cursorProperties.extend(before.cursorProperties)
    if before.HasField("lastActive"):
        record.lastActive = before.lastActive
    certainty = "certain" if one.certainty == "lost+found" else one.certainty
    return Rebuilt(one.path, certainty, (*one.evidence, HAS_IT), _bytes(record), one.facts)


def _as_it_was(
    path: str, topic: TopicName, name: str, before: ManagedCursorInfo, scanned: Scanned
) -> Rebuilt:
    record = ManagedCursorInfo()
    record.CopyFrom(before)
    evidence = [HAS_IT]
    if not _is_readable(before, scanned):
        record.cursorsLedgerId = STATE_IN_RECORD
        evidence.append(f"its ledger {before.cursorsLedgerId} is on no disk: it stands where its record says")
    if name == COMPACTION:
        kept = [one for one in record.properties if one.name != COMPACTED_LEDGER or one.value in scanned.kept]
        if len(kept) < len(record.properties):
            evidence.append("its compacted ledger is on no disk")
            del record.properties[:]
            record.properties.extend(kept)
    ledger_id, entry_id = _stood(record)
    facts: RebuiltFacts = {"topic": str(topic), "cursor": name, "position": f"{ledger_id}:{entry_id}"}
    return Rebuilt(path, "old", tuple(evidence), _bytes(record), facts)


def _is_readable(record: ManagedCursorInfo, scanned: Scanned) -> bool:
    return record.cursorsLedgerId == STATE_IN_RECORD or record.cursorsLedgerId in scanned.kept


def _stood(record: ManagedCursorInfo) -> tuple[int, int]:
    return record.markDeleteLedgerId, record.markDeleteEntryId


def _is_later(value: bytes, old: OldStore) -> bool:
    """Return whether a schema was written after the old store was taken."""
    return parse_message(SchemaLocator, value).info.position.ledgerId >= old.next_id


def _entries_of(ledger_id: int, topic: TopicName, old: OldStore) -> int:
    info = old.topics.get(topic)
    return sum(one.entries for one in info.ledgerInfo if one.ledgerId == ledger_id) if info else 0


def _is_offloaded(ledger_id: int, topic: TopicName, old: OldStore) -> bool:
    info = old.topics.get(topic)
    return info is not None and any(
        one.ledgerId == ledger_id and one.offloadContext.complete for one in info.ledgerInfo
    )


def _bytes(record: ManagedCursorInfo) -> bytes:
    return record.SerializeToString()
