"""Topic and ledger names, and where the brokers keep them in the metadata store.

Sources: apache/pulsar TopicName.getPersistenceNamingEncoding and util/Codec.java (java.net.URLEncoder),
ScalableTopicResources.topicPath, SegmentTopicName (PIP-460);
apache/bookkeeper util/StringUtils.java and meta/*HierarchicalLedgerManager.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from urllib.parse import quote_plus, unquote_plus

from pulsar_meta.codecs.errors import DecodeError, UsageError

MANAGED_LEDGERS = "/managed-ledgers"
LEDGERS = "/ledgers"
SCALABLE_TOPICS = "/topics"
DOMAINS = ("persistent", "segment", "topic")
# A scalable topic has no managed ledger of its own.
_WITH_LEDGERS = ("persistent", "segment")
SHORT_LEDGER_LIMIT = 2**31 - 1
MAX_LEDGER_ID = 2**63 - 1

_ledger_path_re = re.compile(r"^/ledgers/(\d{2,3}(?:/\d{4})+/L\d{4})$")
# What stands in a path as it is, as almost every name does.
_plain_re = re.compile(r"[A-Za-z0-9_.*-]*")
_partition_re = re.compile(r"^(?P<base>.+)-partition-(?P<number>\d+)$")
_segment_re = re.compile(r"[0-9a-f]{4}-[0-9a-f]{4}-\d+")
# The largest hash of a key in a scalable topic.
LAST_HASH = 0xFFFF


def encode_name(name: str) -> str:
    """Return a topic's or cursor's name as it stands in a path (java.net.URLEncoder, UTF-8)."""
    if _plain_re.fullmatch(name):
        return name
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """Return the name that `encode_name` made `encoded` from."""
    if _plain_re.fullmatch(encoded):
        return encoded
    try:
        return unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not a URL-encoded name: {encoded!r}") from error


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic: `persistent://tenant/namespace/name`, with a cluster between for V1 names.

    Pulsar 5 adds scalable topics (`topic://tenant/namespace/name`) and their segments, whose local name is
    `name/SSSS-EEEE-ID`. `short` is true where no domain was written: then it may be a scalable topic's.
    `migrated_to` is the scalable topic of which a persistent one has become a segment, where that is known.
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
        """Read a full name, `tenant/namespace/name` or a bare name (then in `public/default`).

        What has four parts or more is a V1 name, and what is after its namespace the topic's own.
        """
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text
        elif domain not in DOMAINS:
            raise UsageError(f"{text!r}: a topic is persistent://tenant/namespace/name, not {domain}://…")
        parts = rest.split("/")
        if len(parts) == 1 and not separator:
            parts = ["public", "default", *parts]
        if len(parts) < 3 or not all(parts):
            raise UsageError(f"{text!r}: a topic is tenant/namespace/name or a bare name")
        if domain == "segment" and len(parts) < 4:
            raise UsageError(f"{text!r}: a segment is segment://tenant/namespace/name/SSSS-EEEE-ID")
        if domain == "persistent" and len(parts) > 3:
            tenant, cluster, namespace, *local = parts
            return cls(tenant, namespace, "/".join(local), domain, cluster, short=not separator)
        return cls(parts[0], parts[1], "/".join(parts[2:]), domain, short=not separator)

    @classmethod
    def from_path(cls, path: str) -> TopicName | None:
        """Return the topic whose ManagedLedgerInfo lies at `path`, or None where none can."""
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
        """Where the store keeps the topic's ManagedLedgerInfo, of a scalable topic its list of segments."""
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
        """The number of the partition that this topic is, or None."""
        match = _partition_re.match(self.local)
        return int(match["number"]) if match else None

    @property
    def partitioned(self) -> TopicName | None:
        """The topic that this is a partition of, by its name, or None."""
        match = _partition_re.match(self.local)
        if not match:
            return None
        # `replace` takes three times as long.
        return TopicName(
            *(self.tenant, self.namespace, match["base"], self.domain, self.cluster, self.short),
            migrated_to=self.migrated_to,
        )

    @property
    def partitioned_path(self) -> str:
        """Where the store keeps the number of partitions, if this name stands for several."""
        return f"/admin/partitioned-topics/{self.namespace_name}/{self.domain}/{encode_name(self.local)}"

    @property
    def schema_path(self) -> str:
        """Where the store keeps which ledgers have its schema; partitions share that of their topic."""
        base = self.partitioned or self
        local = base.local.rpartition("/")[0] if base.domain == "segment" else base.local
        return f"/schemas/{base.namespace_name}/{encode_name(local)}"

    def with_partition(self, number: int) -> TopicName:
        """Return the topic that is partition `number` of this one."""
        local = f"{self.local}-partition-{number}"
        return TopicName(self.tenant, self.namespace, local, self.domain, self.cluster)

    @property
    def scalable_topic(self) -> str | None:
        """The scalable topic that this is a segment of, as far as the name says it."""
        if self.domain != "segment":
            return self.migrated_to
        return f"topic://{self.namespace_name}/{self.local.rpartition('/')[0]}"

    @property
    def as_scalable(self) -> TopicName:
        """The scalable topic of the same name."""
        return replace(self, domain="topic", short=False, migrated_to=None)

    def segment_topic(self, start: int, end: int, segment_id: int) -> TopicName:
        """Return the segment of this scalable topic that has the hashes from `start` to `end`, included."""
        return replace(self, domain="segment", local=f"{self.local}/{start:04x}-{end:04x}-{segment_id}")

    def part_of(self, scalable: TopicName) -> TopicName:
        """Return this topic as the segment that it became when it was migrated to `scalable`."""
        return replace(self, short=False, migrated_to=str(scalable))

    def cursor_path(self, cursor: str) -> str:
        """Where the store keeps the cursor of the subscription `cursor`."""
        return f"{self.path}/{encode_name(cursor)}"

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace_name}/{self.local}"


def split_scalable_path(path: str) -> TopicName | None:
    """Return the scalable topic whose record lies at `path`, or None where none can."""
    parts = path.split("/")
    if len(parts) != 5 or parts[:2] != ["", "topics"] or not all(parts[2:]):
        return None
    try:
        return TopicName(parts[2], parts[3], decode_name(parts[4]), "topic")
    except DecodeError:
        return None


def split_managed_ledger_path(path: str) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for a path below /managed-ledgers that holds a value, else None.

    Where it can be two things (`managed_ledger_places`) the one that V2 names make of it: with the value at
    hand ask `codecs.metadata.managed_place`.
    """
    found = managed_ledger_places(path)
    return found[0] if found else None


# A rewriting asks three times about each path of a group.
@lru_cache(maxsize=1024)
def managed_ledger_places(path: str) -> tuple[tuple[TopicName, str | None], ...]:
    """Return what can lie at a path below /managed-ledgers, as (topic, cursor or None); nothing elsewhere.

    A topic is recognised by the domain in its path, since V1 names lie one level deeper and the segments of
    Pulsar 5 (`/managed-ledgers/T/NS/segment/TOPIC/RANGE-ID`) too. A V1 namespace may be called as a domain:
    `…/prop/cluster/persistent/persistent/x` is a cursor of the topic `persistent`, or the topic `x` there.
    """
    parts = path.split("/")
    if parts[:2] != ["", "managed-ledgers"]:
        return ()
    parts = parts[2:]
    # Segments are younger than V1 names.
    domains = ((2, _WITH_LEDGERS), (3, ("persistent",)))
    found = (_place(parts, at) for at, names in domains if len(parts) > at + 1 and parts[at] in names)
    return tuple(place for place in found if place is not None)


def _place(parts: list[str], at: int) -> tuple[TopicName, str | None] | None:
    """Return what lies at a path whose part number `at` is the domain, None where nothing does."""
    domain, rest = parts[at], parts[at + 1 :]
    depth = 2 if domain == "segment" else 1
    if not depth <= len(rest) <= depth + 1:
        return None
    if domain == "segment" and rest[0] == "persistent" and not _segment_re.fullmatch(rest[1]):
        # A topic of the V1 namespace `segment`.
        return None
    try:
        local = "/".join(decode_name(part) for part in rest[:depth])
        cursor = decode_name(rest[depth]) if len(rest) > depth else None
    except DecodeError:
        return None
    cluster = parts[1] if at == 3 else None
    return TopicName(parts[0], parts[at - 1], local, domain, cluster), cursor


def ledger_path(ledger_id: int) -> str:
    """Return the path of a ledger's LedgerMetadata (HierarchicalLedgerManager: short below 2³¹-1)."""
    if not 0 <= ledger_id <= MAX_LEDGER_ID:
        raise UsageError(f"a ledger id is 0 to {MAX_LEDGER_ID}, not {ledger_id}")
    if ledger_id < SHORT_LEDGER_LIMIT:
        digits = f"{ledger_id:010d}"
        return f"{LEDGERS}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
    digits = f"{ledger_id:019d}"
    return f"{LEDGERS}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"


def ledger_of_path(path: str) -> int | None:
    """Return the id of the ledger whose LedgerMetadata lies at `path`, or None."""
    short = path[9:11] + path[12:16] + path[18:]
    if len(path) == 22 and path == f"{LEDGERS}/{short[:2]}/{short[2:6]}/L{short[6:]}" and short.isascii():
        # As almost all are.
        return int(short) if short.isdigit() else None
    match = _ledger_path_re.match(path)
    if not match:
        return None
    digits = match[1].replace("/", "").replace("L", "")
    return int(digits) if len(digits) in (10, 19) else None
