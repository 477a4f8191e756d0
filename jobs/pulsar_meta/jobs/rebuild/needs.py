"""What brokers need beside topics: the cluster, tenants, namespaces, numbers of partitions.

A broker that loads a topic deletes what nothing holds: namespaces are written with infinite retention and
keep inactive topics, until whoever restores them says otherwise.

Sources: apache/pulsar PulsarClusterMetadataSetup.java, Policies.java, InactiveTopicPolicies.java,
PulsarTransactionCoordinatorMetadataSetup.java.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.rebuild.evidence import Rebuilt
from pulsar_meta.jobs.rebuild.topics import LOST_NAMESPACE, LOST_TENANT, FoundTopic
from pulsar_meta.jobs.rebuild.transactions import COORDINATORS, log_topic

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
