"""Topics made again: a record for each group of data ledgers, with its name or in lost+found; what they need.

A broker that loads a topic deletes what nothing holds: namespaces are written with infinite retention and
keep inactive topics, until whoever restores them says otherwise. Every ledger of a record has its entries,
the last one too: a broker deletes one that says it has none.

Sources: apache/pulsar ManagedLedgerImpl.java (initialize, internalTrimLedgers), Policies.java,
InactiveTopicPolicies.java.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.frames.batch import open_entry
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.rebuild.clues import DataClues, Mention, data_clues
from pulsar_meta.jobs.rebuild.evidence import Certainty, Rebuilt
from pulsar_meta.jobs.rebuild.groups import Group, group_ledgers
from pulsar_meta.jobs.rebuild.ledgers import FoundLedger
from pulsar_meta.jobs.rebuild.names import Names
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

# Where topics are whose names nothing says, each by its first ledger.
LOST_TENANT: Final = "lost-found"
LOST_NAMESPACE: Final = "ledgers"
# Messages that are shown of a topic without a name, and bytes of each.
PAYLOADS: Final = 3
PAYLOAD_BYTES: Final = 100

FoundGroups = Sequence[tuple[Group, Sequence[DataClues]]]


def groups_of(
    source: EntrySource, data: Mapping[int, FoundLedger], mentions: Iterable[Mention], names: Names
) -> FoundGroups:
    """Return the groups that are one topic each, with what the messages of their ledgers say."""
    clues = {one: data_clues(source, one, found.digest_type) for one, found in data.items()}
    known = {one: str(named.topic) for one, named in names.items() if one in data}
    return [(group, [clues[one] for one in group.ledgers]) for group in group_ledgers(clues, mentions, known)]


def rebuilt_topics(groups: FoundGroups, data: Mapping[int, FoundLedger], names: Names) -> Iterator[Rebuilt]:
    """Yield the record of each group's topic; ledgers that BookKeeper cannot be told of are left out."""
    for group, clues in groups:
        kept = [data[one] for one in group.ledgers if data[one].refused is None]
        topic = lost_topic(group) if group.name is None else TopicName.parse(group.name)
        facts = {"topic": str(topic), "ledgers": list(group.ledgers), **_sums(clues)}
        evidence = _evidence(group, names)
        if not kept:
            yield Rebuilt(topic.path, "refused", ("all its ledgers are refused", *evidence), None, facts)
            continue
        certainty: Certainty = "certain" if group.certain else "likely"
        if group.name is None:
            certainty = "lost+found"
        yield Rebuilt(topic.path, certainty, evidence, _record(kept), facts)


def unnamed(source: EntrySource, groups: FoundGroups) -> Iterator[Document]:
    """Yield each group without a name, as a line of a file of names to be filled in."""
    for group, clues in groups:
        if group.name is None:
            yield {
                "ledger_id": group.ledgers[0],
                "topic": None,
                "ledgers": list(group.ledgers),
                **_sums(clues),
                "producers": sorted({name for clue in clues for name in clue.producers}),
                "payloads": list(islice(_payloads(source, group.ledgers), PAYLOADS)),
                "evidence": list(_evidence(group, {})),
            }


def what_topics_need(groups: FoundGroups, cluster: str) -> Iterator[Rebuilt]:
    """Yield the cluster, tenants, namespaces and numbers of partitions that the topics need."""
    names = [TopicName.parse(group.name) for group, _ in groups if group.name is not None]
    topics = {*names, TopicName(LOST_TENANT, LOST_NAMESPACE, "any")}
    why = ("nothing on the disks says it: the least that brokers need",)
    yield Rebuilt(f"/admin/clusters/{cluster}", "invented", why, _json({}))
    for tenant in sorted({topic.tenant for topic in topics}):
        tenant_value = {"adminRoles": [], "allowedClusters": [cluster]}
        yield Rebuilt(f"/admin/policies/{tenant}", "invented", why, _json(tenant_value))
    kept = (*why, "infinite retention, and inactive topics stay, until subscriptions are in place")
    for namespace in sorted({topic.namespace_name for topic in topics}):
        yield Rebuilt(f"/admin/policies/{namespace}", "invented", kept, _json(_policies(cluster)))
    partitions: dict[TopicName, int] = {}
    for topic in topics:
        if topic.partitioned is not None and topic.partition is not None:
            partitions[topic.partitioned] = max(partitions.get(topic.partitioned, 0), topic.partition + 1)
    for topic, count in sorted(partitions.items(), key=lambda pair: str(pair[0])):
        value = _json({"partitions": count, "deleted": False})
        yield Rebuilt(topic.partitioned_path, "likely", ("by the highest partition that has a name",), value)


def lost_topic(group: Group) -> TopicName:
    """Return the name that a group has in lost+found."""
    return TopicName(LOST_TENANT, LOST_NAMESPACE, f"ledger-{group.ledgers[0]}")


def _record(ledgers: Iterable[FoundLedger]) -> bytes:
    record = ManagedLedgerInfo()
    for one in ledgers:
        record.ledgerInfo.add(ledgerId=one.ledger_id, entries=one.last_entry + 1, size=one.length or 0)
    return record.SerializeToString()


def _evidence(group: Group, names: Names) -> tuple[str, ...]:
    why = [names[one].why for one in group.ledgers if one in names]
    return (why[0] if why else "nothing on the disks says its name", *group.evidence)


def _sums(clues: Sequence[DataClues]) -> Document:
    first = [clue.first_time for clue in clues if clue.first_time is not None]
    last = [clue.last_time for clue in clues if clue.last_time is not None]
    return {
        "messages": sum(clue.messages for clue in clues),
        "first_time": min(first, default=None),
        "last_time": max(last, default=None),
    }


def _payloads(source: EntrySource, ledgers: Iterable[int]) -> Iterator[Document]:
    """Yield the beginning of the first message of each ledger that can be opened."""
    for ledger_id in ledgers:
        try:
            frame = decode_frame(decode_bookie_entry(source.read(ledger_id, 0).data).data, verify=False)
            messages = open_entry(frame).messages
        except (DecodeError, NotFoundError):
            continue
        if messages:
            text = bytes(messages[0].payload[:PAYLOAD_BYTES]).decode("utf-8", "replace")
            key = messages[0].metadata.partition_key or None
            yield {"ledger_id": ledger_id, "key": key, "payload": text}


def _policies(cluster: str) -> dict[str, Any]:
    return {
        "replication_clusters": [cluster],
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
        "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        "inactive_topic_policies": {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 2**31 - 1,
            "deleteWhileInactive": False,
        },
    }


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
