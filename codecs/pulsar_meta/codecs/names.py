"""Topic and ledger names, and where the brokers keep them in the metadata store.

Sources: apache/pulsar TopicName.getPersistenceNamingEncoding and util/Codec.java (java.net.URLEncoder);
apache/bookkeeper util/StringUtils.java and meta/*HierarchicalLedgerManager.java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote_plus, unquote_plus

from pulsar_meta.codecs.errors import DecodeError, UsageError

MANAGED_LEDGERS = "/managed-ledgers"
LEDGERS = "/ledgers"
DOMAINS = ("persistent", "segment", "topic")
SHORT_LEDGER_LIMIT = 2**31 - 1
MAX_LEDGER_ID = 2**63 - 1

_ledger_path_re = re.compile(r"^/ledgers/(\d{2,3}(?:/\d{4})+/L\d{4})$")
_partition_re = re.compile(r"^(?P<base>.+)-partition-(?P<number>\d+)$")


def encode_name(name: str) -> str:
    """Return a topic's or cursor's name as it stands in a path (java.net.URLEncoder, UTF-8)."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """Return the name that `encode_name` made `encoded` from."""
    try:
        return unquote_plus(encoded, errors="strict")
    except UnicodeDecodeError as error:
        raise DecodeError(f"not a URL-encoded name: {encoded!r}") from error


@dataclass(frozen=True, slots=True)
class TopicName:
    """A topic: `persistent://tenant/namespace/name`, with a cluster between for V1 names."""

    tenant: str
    namespace: str
    local: str
    domain: str = "persistent"
    cluster: str | None = None

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
        if domain == "persistent" and len(parts) > 3:
            tenant, cluster, namespace, *local = parts
            return cls(tenant, namespace, "/".join(local), domain, cluster)
        return cls(parts[0], parts[1], "/".join(parts[2:]), domain)

    @classmethod
    def from_path(cls, path: str) -> TopicName | None:
        """Return the topic whose ManagedLedgerInfo lies at `path`, or None where none can."""
        location = split_managed_ledger_path(path)
        return location[0] if location and location[1] is None else None

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace`, or `tenant/cluster/namespace` for V1."""
        return "/".join(part for part in (self.tenant, self.cluster, self.namespace) if part)

    @property
    def path(self) -> str:
        """Where the store keeps the topic's ManagedLedgerInfo."""
        if self.domain == "segment":
            topic, _, segment = self.local.partition("/")
            encoded = f"{encode_name(topic)}/{encode_name(segment)}" if segment else encode_name(topic)
        else:
            encoded = encode_name(self.local)
        return f"{MANAGED_LEDGERS}/{self.namespace_name}/{self.domain}/{encoded}"

    @property
    def partition(self) -> int | None:
        """The number of the partition that this topic is, or None."""
        match = _partition_re.match(self.local)
        return int(match["number"]) if match else None

    @property
    def partitioned_path(self) -> str:
        """Where the store keeps the number of partitions, if this name stands for several."""
        return f"/admin/partitioned-topics/{self.namespace_name}/{self.domain}/{encode_name(self.local)}"

    def with_partition(self, number: int) -> TopicName:
        """Return the topic that is partition `number` of this one."""
        local = f"{self.local}-partition-{number}"
        return TopicName(self.tenant, self.namespace, local, self.domain, self.cluster)

    def cursor_path(self, cursor: str) -> str:
        """Where the store keeps the cursor of the subscription `cursor`."""
        return f"{self.path}/{encode_name(cursor)}"

    def __str__(self) -> str:
        return f"{self.domain}://{self.namespace_name}/{self.local}"


# A rewriting asks three times about each path of a group.
@lru_cache(maxsize=1024)
def split_managed_ledger_path(path: str) -> tuple[TopicName, str | None] | None:
    """Return (topic, cursor or None) for a path below /managed-ledgers that holds a value, else None.

    A topic is recognised by the domain in its path, since V1 names lie one level deeper and the
    segments of Pulsar 5 (`/managed-ledgers/T/NS/segment/TOPIC/RANGE-ID`) too.
    """
    parts = path.split("/")
    if parts[:2] != ["", "managed-ledgers"]:
        return None
    parts = parts[2:]
    for at in (2, 3):
        if len(parts) > at + 1 and parts[at] in DOMAINS:
            break
    else:
        return None
    domain, rest = parts[at], parts[at + 1 :]
    depth = 2 if domain == "segment" else 1
    if not depth <= len(rest) <= depth + 1:
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
    match = _ledger_path_re.match(path)
    if not match:
        return None
    digits = match[1].replace("/", "").replace("L", "")
    return int(digits) if len(digits) in (10, 19) else None
