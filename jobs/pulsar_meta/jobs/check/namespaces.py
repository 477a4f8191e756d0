"""Namespaces: bundles, and references to clusters and tenants that don't exist.

Sources: apache/pulsar NamespaceBundleFactory, BundlesData, Policies, TenantInfoImpl,
IsolationPolicyResources. The effects on brokers were read there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import MANAGED_LEDGERS, POLICIES_ROOTS, PoliciesPlace, TopicName, policies_place
from pulsar_meta.jobs.check.codes import PARTITIONED, SCHEMAS, Finding, Severity, finding
from pulsar_meta.stores.base import Store

POLICIES: Final = "/admin/policies/"
LOCAL_POLICIES: Final = "/admin/local-policies/"
CLUSTERS: Final = "/admin/clusters/"
RESOURCE_GROUPS: Final = "/admin/resourcegroups/"
_ISOLATION: Final = "/namespaceIsolationPolicies"
# Topics of these domains have a record.
_RECORDED: Final = ("persistent", "topic")
# The number of topics with policies whose records are read at once.
BATCH: Final = 200
_BY_NAMESPACE: Final = (POLICIES, LOCAL_POLICIES, SCHEMAS, PARTITIONED, f"{MANAGED_LEDGERS}/")
_DOMAINS: Final = ("persistent", "non-persistent", "topic", "segment")
# Brokers' heartbeat topics are in namespaces without policies.
_BROKER_TENANTS: Final = ("pulsar", "sla-monitor")
# A topic's hash has 32 bits, and the bundles of a namespace cover all of them.
_LOWEST, _HIGHEST = 0, 0xFFFFFFFF
# Brokers read numbers of partitions as Java's int.
_INT_MAX: Final = (1 << 31) - 1
# Fields by the JSON type that brokers expect, where another type keeps them from reading the whole record.
_OBJECTS: Final = frozenset(
    (
        *("auth_policies", "bundles", "backlog_quota_map", "latency_stats_sample_rate", "retention_policies"),
        *("clusterDispatchRate", "topicDispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"),
        *("clusterSubscribeRate", "publishMaxMessageRate", "persistence", "autoTopicCreationOverride"),
        *("autoSubscriptionCreationOverride", "delayed_delivery_policies", "inactive_topic_policies"),
        *("offload_policies", "properties", "entryFilters", "bookieAffinityGroup"),
    )
)
_LISTS: Final = frozenset(
    (
        *("replication_clusters", "allowed_clusters", "subscription_types_enabled", "boundaries"),
        *("adminRoles", "allowedClusters", "peerClusterNames", "brokers"),
    )
)
_NUMBERS: Final = frozenset(
    (
        *("numBundles", "retentionTimeInMinutes", "retentionSizeInMB", "message_ttl_in_seconds"),
        *("bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"),
        *("subscription_expiration_time_minutes", "compaction_threshold", "offload_threshold"),
        *("max_producers_per_topic", "max_consumers_per_topic", "max_consumers_per_subscription"),
        *("max_topics_per_namespace", "max_subscriptions_per_topic", "max_unacked_messages_per_consumer"),
    )
)
_WITH_FIELDS: Final = ("bundles", "retention_policies", "persistence")


@dataclass(slots=True)
class Namespaces:
    """The namespaces that have policies, and those that have any other record, with the path of one.

    `clusters` and `tenants` are those with a record. `references` are the paths of policies by the clusters
    and tenants that they refer to. `policies_of_topics` are the paths of topics' own policies (PIP-469).
    """

    with_policies: set[str] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    references: dict[tuple[str, str], str] = field(default_factory=dict)
    policies_of_topics: list[str] = field(default_factory=list)

    def add_record(self, path: str, value: bytes) -> None:
        """Add the namespace of a schema's record, or of a record below /admin."""
        if value and path.startswith(POLICIES_ROOTS):
            self.policies_of_topics.append(path)
            return
        if value and path.startswith(CLUSTERS):
            self.clusters.add(path.removeprefix(CLUSTERS).partition("/")[0])
        if value and path.startswith(POLICIES):
            self._add_references(path, value)
        for parent in _BY_NAMESPACE if value else ():
            if path.startswith(parent):
                name = _namespace_of(path.removeprefix(parent), parent)
                if name is not None and parent == POLICIES:
                    self.with_policies.add(name)
                elif name is not None:
                    self.add(name, path)

    def add(self, name: str, path: str) -> None:
        """Add a namespace that has a record at a path; the lowest path is kept."""
        if path <= self.others.get(name, path):
            self.others[name] = path

    def merge(self, other: Namespaces) -> None:
        """Add the namespaces of another part of the store."""
        self.with_policies |= other.with_policies
        self.clusters |= other.clusters
        self.tenants |= other.tenants
        self.policies_of_topics += other.policies_of_topics
        for name, path in other.others.items():
            self.add(name, path)
        for reference, path in other.references.items():
            self._refer(*reference, path)

    def _add_references(self, path: str, value: bytes) -> None:
        """Add the clusters and the tenant that a tenant's record or a namespace's policies refer to."""
        tenant, _, namespace = path.removeprefix(POLICIES).partition("/")
        document: Mapping[str, Any] = {}
        with suppress(DecodeError):
            document = read_json_object(value)
        if namespace:
            self._refer("tenant", tenant, path)
            keys = ["replication_clusters", "allowed_clusters"]
        else:
            self.tenants.add(tenant)
            keys = ["allowedClusters"]
        for key in keys:
            clusters = document.get(key)
            for cluster in clusters if isinstance(clusters, list) else ():
                # "global" means all clusters in policies of Pulsar 1.
                if cluster != "global":
                    self._refer("cluster", str(cluster), path)

    def _refer(self, kind: str, name: str, path: str) -> None:
        if path <= self.references.get((kind, name), path):
            self.references[kind, name] = path

    def findings(self, store: Store) -> Iterator[Finding]:
        """Yield records without policies and wrong references, if they are still there when read again."""
        yield from self._without_policies(store)
        yield from self._dangling(store)
        yield from self._without_topics(store)

    def _without_topics(self, store: Store) -> Iterator[Finding]:
        """Yield policies of persistent and scalable topics that don't exist."""
        places = ((path, policies_place(path)) for path in sorted(self.policies_of_topics))
        checked = [(path, place) for path, place in places if place and place.topic.domain in _RECORDED]
        for start in range(0, len(checked), BATCH):
            batch = checked[start : start + BATCH]
            paths = [[path, *_records_of(place.topic)] for path, place in batch]
            records = iter(store.read_many(list(chain.from_iterable(paths))))
            for (path, place), needed in zip(batch, paths, strict=True):
                policies, *topics = islice(records, len(needed))
                if policies is not None and not any(topics):
                    yield _policies_finding(path, place)

    def _without_policies(self, store: Store) -> Iterator[Finding]:
        if not self.with_policies:
            return
        for name, path in sorted(self.others.items()):
            if name in self.with_policies or name.partition("/")[0] in _BROKER_TENANTS:
                continue
            policies, left = store.read_many([f"{POLICIES}{name}", path])
            if policies is None and left is not None:
                there = store.children(f"{MANAGED_LEDGERS}/{name}/persistent")
                topics = sum(not topic.startswith("__") for topic in there)
                effect = f"; it has {topics} topics, which clients can't look up" if topics else ""
                yield finding(
                    "leftover",
                    f"the namespace {name} has no policies, but there still is {path}{effect}",
                    severity=Severity.ERROR if topics else Severity.NOTE,
                    path=f"{POLICIES}{name}",
                    evidence={"namespace": name, "there": path},
                )

    def _dangling(self, store: Store) -> Iterator[Finding]:
        """Yield policies that refer to missing clusters or tenants.

        Brokers keep the records of both in the same store as the policies (apache/pulsar PulsarResources).
        """
        known = {"cluster": self.clusters, "tenant": self.tenants}
        parents = {"cluster": CLUSTERS, "tenant": POLICIES}
        for (kind, name), path in sorted(self.references.items()):
            if name in known[kind]:
                continue
            target, referring = store.read_many([f"{parents[kind]}{name}", path])
            if referring is not None and (target is None or not target.value):
                yield finding(
                    "policy-reference-missing",
                    f"it refers to the {kind} {name}, which has no record",
                    path=path,
                    evidence={"kind": kind, "name": name},
                )


def _policies_finding(path: str, place: PoliciesPlace) -> Finding:
    severity = Severity.WARNING if place.scope == "local" else Severity.NOTE
    return finding(
        "topic-policies-without-topic",
        f"{place.scope} policies of a topic that does not exist",
        severity=severity,
        topic=str(place.topic),
        path=path,
        evidence={"scope": place.scope},
    )


def _records_of(topic: TopicName) -> list[str]:
    """Return the paths of which a topic has at least one: its own, its partitions', the scalable topic's."""
    if topic.domain == "topic":
        return [topic.path]
    first = replace(topic, local=f"{topic.local}-partition-0")
    return [topic.path, topic.partitioned_path, first.path, replace(topic, domain="topic").path]


def partitions_of(document: Mapping[str, Any]) -> int | None:
    """Return the number in a partitioned topic's record, None if there is none that brokers can read."""
    count = document.get("partitions")
    return count if type(count) is int and 0 <= count <= _INT_MAX else None


def _namespace_of(below: str, parent: str) -> str | None:
    """Return the namespace of a path below one of the parents, None for a tenant's path."""
    parts = below.split("/")
    if parent in (POLICIES, LOCAL_POLICIES):
        # A V1 namespace has its cluster in between, so its path also looks like a child of a V2 namespace.
        return below if len(parts) in (2, 3) else None
    if parent == SCHEMAS:
        return "/".join(parts[:-1]) if len(parts) in (3, 4) else None
    at = next((at for at, part in enumerate(parts) if part in _DOMAINS and at >= 2), None)
    return None if at is None or at > 3 or len(parts) <= at + 1 else "/".join(parts[:at])


def bundle_findings(path: str, document: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that the bundles in policies cover every hash once."""
    bundles = document.get("bundles")
    if not path.startswith((POLICIES, LOCAL_POLICIES)) or not isinstance(bundles, dict):
        return
    boundaries, count = bundles.get("boundaries"), bundles.get("numBundles")
    fault = _bundle_fault(boundaries, count)
    if fault is not None:
        evidence = {"boundaries": boundaries if isinstance(boundaries, list) else [], "bundles": count}
        text = f"its bundles are invalid: {fault}"
        yield finding("namespace-bundles-invalid", text, path=path, evidence=evidence)


def type_fault(path: str, document: Mapping[str, Any]) -> str | None:
    """Return the first field with a value that brokers can't read in policies or a cluster, or None."""
    if path.endswith(_ISOLATION):
        # The names in this record are those of policies.
        wrong = [name for name, policy in document.items() if not isinstance(policy, dict)]
        return f"the policy {wrong[0]!r:.60} is not an object" if wrong else None
    nested = [document[name] for name in _WITH_FIELDS if isinstance(document.get(name), dict)]
    for name, value in chain(document.items(), *(each.items() for each in nested)):
        kind = _expected(name, value)
        if kind is not None:
            return f"{name} is {value!r:.60}, and brokers expect {kind}"
    return None


def _expected(name: str, value: object) -> str | None:
    """Return the kind of value that brokers expect in a field, None if this one is of that kind."""
    if value is None:
        return None
    if name in _OBJECTS:
        return None if isinstance(value, dict) else "an object"
    if name in _LISTS:
        return None if isinstance(value, list) else "a list"
    if name in _NUMBERS:
        is_number = isinstance(value, (int, float, str)) and not isinstance(value, bool)
        return (
            None if is_number and str(value).strip().lstrip("+-").replace(".", "").isdecimal() else "a number"
        )
    return None


def _bundle_fault(boundaries: object, count: object) -> str | None:
    if not isinstance(boundaries, list) or not boundaries:
        # Brokers derive the boundaries from the number of bundles.
        return None
    try:
        numbers = [int(str(boundary), 16) for boundary in boundaries]
    except ValueError:
        return "a boundary is not a hexadecimal number"
    if numbers != sorted(set(numbers)):
        return "the boundaries are not in order"
    if (numbers[0], numbers[-1]) != (_LOWEST, _HIGHEST):
        return f"they go from {boundaries[0]} to {boundaries[-1]}"
    if isinstance(count, int) and count != len(numbers) - 1:
        return f"{count} bundles have {len(numbers)} boundaries"
    return None
