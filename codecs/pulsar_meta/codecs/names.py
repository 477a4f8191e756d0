"""Topic names, ledger ids, and their paths in the metadata store.

Sources: apache/pulsar TopicName.getPersistenceNamingEncoding and util/Codec.java (java.net.URLEncoder),
ScalableTopicResources.topicPath, SegmentTopicName (PIP-460),
MetadataStoreTopicPoliciesService (5.0.0-M1, PIP-469), SystemTopicNames;
apache/bookkeeper util/StringUtils.java and meta/*HierarchicalLedgerManager.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from pulsar_meta.codecs.errors import DecodeError, UsageError

MANAGED_LEDGERS = "/managed-ledgers"
LEDGERS = "/ledgers"
SCALABLE_TOPICS = "/topics"
DOMAINS = ("persistent", "segment", "topic")
# A scalable topic has no managed ledger; only its segments have one.
_WITH_LEDGERS = ("persistent", "segment")
SHORT_LEDGER_LIMIT = 2**31 - 1
MAX_LEDGER_ID = 2**63 - 1

_ledger_path_re = re.compile(r"^/ledgers/(\d{2,3}(?:/\d{4})+/L\d{4})$")
# Names that need no encoding in a path, as most names.
_plain_re = re.compile(r"[A-Za-z0-9_.*-]*")
_broken_escape_re = re.compile(r"%(?![0-9A-Fa-f]{2})")
_partition_re = re.compile(r"^(?P<base>.+)-partition-(?P<number>\d+)$")
_segment_re = re.compile(r"[0-9a-f]{4}-[0-9a-f]{4}-\d+")
# The largest key hash in a scalable topic.
LAST_HASH = 0xFFFF


def encode_name(name: str) -> str:
    """Encode a topic's or cursor's name for a path, as java.net.URLEncoder does (UTF-8)."""
    if _plain_re.fullmatch(name):
        return name
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """Reverse `encode_name`. Raises DecodeError if `encoded` is not valid, as brokers' decoder does."""
    if _plain_re.fullmatch(encoded):
        return encoded
    if _broken_escape_re.search(encoded):
        raise DecodeError(f"not a URL-encoded name: {encoded!r}")
    try:
        return unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not a URL-encoded name: {encoded!r}") from error


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic: `persistent://tenant/namespace/name`; V1 names have a cluster after the tenant.

    Pulsar 5 adds scalable topics (`topic://tenant/namespace/name`) and their segments, whose local name is
    `name/SSSS-EEEE-ID`. `short` is True if the name was written without a domain and so may refer to a
    scalable topic. `migrated_to` is the scalable topic that this persistent topic became a segment of, if
    that is known.
    """

    tenant: str
    namespace: str
    local: str
    domain: str = "persistent"
    cluster: str | None = None
    short: bool = field(default=False, compare=False, repr=False)
    migrated_to: str | None = field(default=None, compare=False, repr=False)

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a full name, `tenant/namespace/name`, or a bare name (in `public/default`).

        A persistent name of four or more parts is a V1 name; the parts after its namespace are the local
        name. Raises UsageError if the name is not valid.
        """
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text
        elif domain not in DOMAINS:
            raise UsageError(f"invalid topic {text!r}: use persistent://tenant/namespace/name")
        parts = rest.split("/")
        if len(parts) == 1 and not separator:
            parts = ["public", "default", *parts]
        if len(parts) < 3 or not all(parts):
            raise UsageError(f"invalid topic {text!r}: use tenant/namespace/name or a bare name")
        if domain == "segment" and len(parts) < 4:
            raise UsageError(f"invalid segment {text!r}: use segment://tenant/namespace/name/SSSS-EEEE-ID")
        if domain == "persistent" and len(parts) > 3:
            tenant, cluster, namespace, *local = parts
            return cls(tenant, namespace, "/".join(local), domain, cluster, short=not separator)
        return cls(parts[0], parts[1], "/".join(parts[2:]), domain, short=not separator)

    @classmethod
    def from_path(cls, path: str) -> TopicName | None:
        """Return the topic whose ManagedLedgerInfo is stored at `path`, or None if it is another path."""
        location = split_managed_ledger_path(path)
        return location[0] if location and location[1] is None else None

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`, or `tenant/cluster/namespace` for V1."""
        if self.cluster:
            return f"{self.tenant}/{self.cluster}/{self.namespace}"
        return f"{self.tenant}/{self.namespace}"

    @property
    def path(self) -> str:
        """The path of the topic's ManagedLedgerInfo, or of a scalable topic's list of segments."""
        if self.domain == "topic":
            return f"{SCALABLE_TOPICS}/{self.namespace_name}/{encode_name(self.local)}"
        if self.domain == "segment":
            topic, _, segment = self.local.rpartition("/")
            encoded = f"{encode_name(topic)}/{encode_name(segment)}"
        else:
            encoded = encode_name(self.local)
        return f"{MANAGED_LEDGERS}/{self.namespace_name}/{self.domain}/{encoded}"

    @property
    def partition(self) -> int | None:
        """This topic's partition number, or None if its name has none."""
        match = _partition_re.match(self.local)
        return int(match["number"]) if match else None

    @property
    def partitioned(self) -> TopicName | None:
        """The partitioned topic, if this topic's name is that of a partition, else None."""
        match = _partition_re.match(self.local)
        if not match:
            return None
        # `dataclasses.replace` takes three times as long.
        return TopicName(
            *(self.tenant, self.namespace, match["base"], self.domain, self.cluster, self.short),
            migrated_to=self.migrated_to,
        )

    @property
    def partitioned_path(self) -> str:
        """The path of the number of partitions, if this is a partitioned topic."""
        return f"/admin/partitioned-topics/{self.namespace_name}/{self.domain}/{encode_name(self.local)}"

    @property
    def schema_path(self) -> str:
        """The path of the topic's schema record. All partitions share the record of their topic."""
        base = self.partitioned or self
        local = base.local.rpartition("/")[0] if base.domain == "segment" else base.local
        return f"/schemas/{base.namespace_name}/{encode_name(local)}"

    def with_partition(self, number: int) -> TopicName:
        """Return partition `number` of this topic."""
        local = f"{self.local}-partition-{number}"
        return TopicName(self.tenant, self.namespace, local, self.domain, self.cluster)

    @property
    def scalable_topic(self) -> str | None:
        """The scalable topic that this topic is a segment of, if the name tells, else None."""
        if self.domain != "segment":
            return self.migrated_to
        return f"topic://{self.namespace_name}/{self.local.rpartition('/')[0]}"

    @property
    def as_scalable(self) -> TopicName:
        """The scalable topic of the same name."""
        return replace(self, domain="topic", short=False, migrated_to=None)

    def segment_topic(self, start: int, end: int, segment_id: int) -> TopicName:
        """Return the segment of this scalable topic for the hashes `start` to `end` (inclusive)."""
        return replace(self, domain="segment", local=f"{self.local}/{start:04x}-{end:04x}-{segment_id}")

    def part_of(self, scalable: TopicName) -> TopicName:
        """Return this topic as a segment of `scalable`, to which it was migrated."""
        return replace(self, short=False, migrated_to=str(scalable))

    def cursor_path(self, cursor: str) -> str:
        """Return the path of the cursor of the subscription `cursor`."""
        return f"{self.path}/{encode_name(cursor)}"

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace_name}/{self.local}"


def split_scalable_path(path: str) -> TopicName | None:
    """Return the scalable topic whose record is stored at `path`, or None if it is another path."""
    parts = path.split("/")
    if len(parts) != 5 or parts[:2] != ["", "topics"] or not all(parts[2:]):
        return None
    try:
        return TopicName(parts[2], parts[3], decode_name(parts[4]), "topic")
    except DecodeError:
        return None


def split_managed_ledger_path(path: str) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for the path of a record below /managed-ledgers, else None.

    If the path is ambiguous (see `managed_ledger_places`), it is read as a V2 name. Callers that have the
    value use `codecs.metadata.managed_place` instead.
    """
    places = managed_ledger_places(path)
    return places[0] if places else None


# Cached because a rewrite looks up every path of a group three times.
@lru_cache(maxsize=1024)
def managed_ledger_places(path: str) -> tuple[tuple[TopicName, str | None], ...]:
    """Return every (topic, cursor or None) whose record may be stored at a path; empty for other paths.

    The domain in the path tells how to read it, because V1 names are one level deeper, and so are the
    segments of Pulsar 5 (`/managed-ledgers/T/NS/segment/TOPIC/RANGE-ID`). If a V1 namespace is named like a
    domain, the path is ambiguous: `…/prop/cluster/persistent/persistent/x` is a cursor of the V2 topic
    `persistent` or the V1 topic `x`.
    """
    parts = path.split("/")
    if parts[:2] != ["", "managed-ledgers"]:
        return ()
    parts = parts[2:]
    places = []
    if len(parts) > 3 and parts[2] in _WITH_LEDGERS:
        places.append(_place(parts, 2))
    if len(parts) > 4 and parts[3] == "persistent":
        # A V1 name. Segments never have one.
        places.append(_place(parts, 3))
    return tuple([place for place in places if place is not None])


def _place(parts: list[str], at: int) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for a path whose part number `at` is the domain, or None."""
    domain, rest = parts[at], parts[at + 1 :]
    depth = 2 if domain == "segment" else 1
    if not depth <= len(rest) <= depth + 1:
        return None
    if domain == "segment" and rest[0] == "persistent" and not _segment_re.fullmatch(rest[1]):
        # This is a topic in a V1 namespace named `segment`.
        return None
    try:
        local = decode_name(rest[0]) if depth == 1 else "/".join(map(decode_name, rest[:depth]))
        cursor = decode_name(rest[depth]) if len(rest) > depth else None
    except DecodeError:
        return None
    cluster = parts[1] if at == 3 else None
    return TopicName(parts[0], parts[at - 1], local, domain, cluster), cursor


def ledger_path(ledger_id: int) -> str:
    """Return the path of a ledger's LedgerMetadata (HierarchicalLedgerManager).

    Ids below 2³¹-1 have short paths. Raises UsageError if the id is out of range.
    """
    if not 0 <= ledger_id <= MAX_LEDGER_ID:
        raise UsageError(f"invalid ledger id {ledger_id}: it must be between 0 and {MAX_LEDGER_ID}")
    if ledger_id < SHORT_LEDGER_LIMIT:
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{LEDGERS}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_of_path(path: str) -> int | None:
    """Return the id of the ledger whose LedgerMetadata is stored at `path`, or None."""
    short = path[9:11] + path[12:16] + path[18:]
    if len(path) == 22 and path == f"{LEDGERS}/{short[:2]}/{short[2:6]}/L{short[6:]}" and short.isascii():
        # A shortcut, because almost all ids are short.
        return int(short) if short.isdigit() else None
    match = _ledger_path_re.match(path)
    if not match:
        return None
    digits = match[1].replace("/", "").replace("L", "")
    return int(digits) if len(digits) in (10, 19) else None


# Policies of topics (PIP-469), one JSON record for each topic and scope. 5.0.0-M1 has them at the first root,
# below `global` or `local`. The text of PIP-469 has the global ones there without a scope, and the local ones
# at the second root. Partitions share the record of their topic.
POLICIES_ROOTS = ("/admin/topic-policies", "/admin/local-policies/topic-policies")
_policies_re = re.compile(
    r"/admin/(?:topic-policies(?:/(?P<scope>global|local))?|local-policies/(?P<local>topic-policies))"
    r"/(?P<tenant>[^/]+)/(?P<namespace>[^/]+)/(?P<domain>persistent|non-persistent|topic|segment)/(?P<name>[^/]+)"
)


class PoliciesPlace(NamedTuple):
    """The topic and the scope of a record of policies."""

    topic: TopicName
    scope: Literal["global", "local"]


def policies_place(path: str) -> PoliciesPlace | None:
    """Return whose policies are stored at a path, None if it is another path."""
    match = _policies_re.fullmatch(path)
    if match is None:
        return None
    try:
        name = decode_name(match["name"])
    except DecodeError:
        return None
    topic = TopicName(match["tenant"], match["namespace"], name, match["domain"])
    return PoliciesPlace(topic, "local" if match["local"] or match["scope"] == "local" else "global")


LogKind = Literal["transaction-log", "pending-acks"]
SnapshotKind = Literal["snapshot", "indexes", "segment"]
PENDING_ACK_SUFFIX = "__transaction_pending_ack"
SNAPSHOTS = "__transaction_buffer_snapshot"
INDEXES = "__transaction_buffer_snapshot_indexes"
SEGMENTS = "__transaction_buffer_snapshot_segments"

_snapshots: dict[str, SnapshotKind] = {SNAPSHOTS: "snapshot", INDEXES: "indexes", SEGMENTS: "segment"}
_COORDINATOR_LOG = "__transaction_log_"


def log_kind(name: str) -> LogKind | None:
    """Return the kind of log that a managed ledger or topic is, by its name; None for other topics."""
    if name.endswith(PENDING_ACK_SUFFIX):
        return "pending-acks"
    # Both the topic's name and the managed ledger's match.
    if _COORDINATOR_LOG in name and re.fullmatch(
        rf"(?:.*/)?pulsar/system/(?:persistent/)?{_COORDINATOR_LOG}\d+", name
    ):
        return "transaction-log"
    return None


def snapshot_kind(name: str) -> SnapshotKind | None:
    """Return the kind of snapshots in the topic or partition of this name, or None for other topics."""
    local = name.rpartition("/")[2]
    base, _, number = local.rpartition("-partition-")
    return _snapshots.get(base if number.isdigit() else local)
