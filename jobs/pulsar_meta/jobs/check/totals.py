"""Totals that can only be judged once every part of the store has been scanned."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from pulsar_meta.jobs.check.codes import Finding, finding
from pulsar_meta.jobs.check.ledger_facts import owner_hash
from pulsar_meta.jobs.topics.shadow import names_source
from pulsar_meta.stores.base import Store, Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PARTITIONED: Final = "/admin/partitioned-topics/"
_POLICIES: Final = "/admin/policies/"
_LOCAL_POLICIES: Final = "/admin/local-policies/"
_SCHEMAS: Final = "/schemas/"
_BY_NAMESPACE: Final = (_POLICIES, _LOCAL_POLICIES, _SCHEMAS, PARTITIONED, f"{MANAGED_LEDGERS}/")
_DOMAINS: Final = ("persistent", "non-persistent", "topic", "segment")
# Brokers' heartbeat topics are in namespaces without policies.
_BROKER_TENANTS: Final = ("pulsar", "sla-monitor")


@dataclass(slots=True)
class Namespaces:
    """The namespaces that have policies, and those that have any other record, with the path of one."""

    with_policies: set[str] = field(default_factory=set)
    others: dict[str, str] = field(default_factory=dict)

    def add_record(self, path: str, value: bytes) -> None:
        """Add the namespace of a schema's record, or of a record below /admin."""
        for parent in _BY_NAMESPACE if value else ():
            if path.startswith(parent):
                name = _namespace_of(path.removeprefix(parent), parent)
                if name is not None and parent == _POLICIES:
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
        for name, path in other.others.items():
            self.add(name, path)

    def findings(self, store: Store) -> Iterator[Finding]:
        """Yield the namespaces that have records and no policies, also when both are read again."""
        if not self.with_policies:
            return
        for name, path in sorted(self.others.items()):
            if name in self.with_policies or name.partition("/")[0] in _BROKER_TENANTS:
                continue
            policies, left = store.read_many([f"{_POLICIES}{name}", path])
            if policies is None and left is not None:
                yield finding(
                    "leftover",
                    f"the namespace {name} has no policies, but there still is {path}",
                    path=f"{_POLICIES}{name}",
                    evidence={"namespace": name, "there": path},
                )


def _namespace_of(below: str, parent: str) -> str | None:
    """Return the namespace of a path below one of the parents, None for a tenant's path."""
    parts = below.split("/")
    if parent in (_POLICIES, _LOCAL_POLICIES):
        # A V1 namespace has its cluster in between, so its path also looks like a child of a V2 namespace.
        return below if len(parts) in (2, 3) else None
    if parent == _SCHEMAS:
        return "/".join(parts[:-1]) if len(parts) in (3, 4) else None
    at = next((at for at, part in enumerate(parts) if part in _DOMAINS and at >= 2), None)
    return None if at is None or at > 3 or len(parts) <= at + 1 else "/".join(parts[:at])


class PartitionCounts:
    """The numbers of partitions of topics, 16 bytes each.

    `shadows` are the records of partitioned topics that may be shadows, by path.
    """

    def __init__(
        self, counts: NDArray[np.int64] | None = None, shadows: dict[str, bytes] | None = None
    ) -> None:
        self._hashes, self._numbers = array("q"), array("q")
        self._counts = counts
        self.shadows = {} if shadows is None else shadows

    def add_record(self, record: Versioned) -> None:
        """Add a partitioned topic's record, with 0 partitions if it can't be read; ignore other records."""
        if not record.value or not record.path.startswith(PARTITIONED):
            return
        if names_source(record.value):
            self.shadows[record.path] = record.value
        count = None
        with suppress(DecodeError):
            count = read_json_object(record.value).get("partitions")
        if count != 0:
            self._hashes.append(_path_hash(record.path))
            self._numbers.append(max(0, count) if type(count) is int else 0)

    def merge(self, other: PartitionCounts) -> None:
        """Add another part's counts; not possible after `ordered` or `of` was called."""
        self._hashes += other._hashes
        self._numbers += other._numbers
        self.shadows |= other.shadows

    def of(self, name: TopicName) -> int | None:
        """Return the partitions of the topic that `name` is a partition of, None if it has no record."""
        base = name.partitioned
        if base is None:
            return None
        hashes, numbers = self.ordered()
        hashed = _path_hash(base.partitioned_path)
        at = int(hashes.searchsorted(hashed))
        return int(numbers[at]) if at < len(hashes) and hashes[at] == hashed else None

    def ordered(self) -> NDArray[np.int64]:
        """Return a row of path hashes in order and a row of their counts; nothing can be added any more."""
        import numpy as np

        if self._counts is None:
            rows = np.array([self._hashes, self._numbers], np.int64)
            self._counts = rows[:, np.argsort(rows[0], kind="stable")]
            self._hashes, self._numbers = array("q"), array("q")
        return self._counts


def _path_hash(path: str) -> int:
    return owner_hash("data", path)


@dataclass(slots=True)
class ScanTotals:
    """Totals of a scan; ids and hashes are in arrays of 8 bytes each, because there can be millions.

    `checked` counts records by plural nouns, `not_checked` has reasons. `referenced` are the ledgers that
    records refer to, `topics` the owner hashes of topics with a record, `offloaded` those of offloads.
    `reported` are the owner hashes of topics that were read completely, `attributed` the broken ledgers that
    these refer to, `explained` unreferenced ledgers that another finding explains, `segments` those of
    scalable topics. The others count topics whose record can't be read, subscriptions without a recorded last
    activity, and topics and cursors whose bookies did not answer (`unreachable` is the first error).
    """

    checked: Counter[str] = field(default_factory=Counter)
    not_checked: dict[str, str] = field(default_factory=dict)
    referenced: array[int] = field(default_factory=lambda: array("q"))
    topics: array[int] = field(default_factory=lambda: array("q"))
    offloaded: array[int] = field(default_factory=lambda: array("q"))
    reported: set[int] = field(default_factory=set)
    attributed: set[int] = field(default_factory=set)
    explained: set[int] = field(default_factory=set)
    segments: list[TopicName] = field(default_factory=list)
    namespaces: Namespaces = field(default_factory=Namespaces)
    unread_topics: int = 0
    without_activity: int = 0
    without_answer: int = 0
    unreachable: UnreachableError | None = None

    def merge(self, other: ScanTotals) -> None:
        """Add the totals of another part of the store."""
        self.checked.update(other.checked)
        self.not_checked |= other.not_checked
        self.referenced += other.referenced
        self.topics += other.topics
        self.offloaded += other.offloaded
        self.reported |= other.reported
        self.attributed |= other.attributed
        self.explained |= other.explained
        self.segments += other.segments
        self.namespaces.merge(other.namespaces)
        self.unread_topics += other.unread_topics
        self.without_activity += other.without_activity
        self.without_answer += other.without_answer
        self.unreachable = self.unreachable or other.unreachable
