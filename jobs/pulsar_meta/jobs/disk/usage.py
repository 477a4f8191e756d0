"""Find out what uses disk space: topics, subscriptions, or entry logs.

Bytes are those of records on the given disks. The copies on each bookie are counted separately.

Source: apache/pulsar ManagedLedgerImpl.internalTrimLedgers; apache/bookkeeper GarbageCollectorThread (ledgers
without metadata are deleted from the index, logs with few live bytes are compacted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import Subscription, SubscriptionReader
from pulsar_meta.jobs.disk.contents import by_bookie, entry_logs, stored_ledgers
from pulsar_meta.jobs.disk.whois import retains
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of, has_metadata
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.owners import Gaps, Owner, Unseen, first_owner, owner_in_custom, owners_of
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Report, Topic, topics_in
from pulsar_meta.stores.base import Store, Versioned

# The number of ledgers whose metadata is read at once.
AT_ONCE = 500
ORPHAN = "orphan"
# No reference was found, but not every record and pointer could be read.
UNDECIDED = "undecided"
DELETED = "deleted"


@dataclass(slots=True)
class Sum:
    """Ledgers, entries and bytes."""

    ledgers: int = 0
    entries: int = 0
    size: int = 0

    def add(self, other: Sum) -> None:
        """Add another sum."""
        self.ledgers += other.ledgers
        self.entries += other.entries
        self.size += other.size


@dataclass(slots=True)
class Usage:
    """The disk usage by ledger, and the bytes in each entry log that its index refers to, by ledger.

    `unsized` counts entries for which the index refers to a place without a record; their bytes are in no
    sum.
    """

    ledgers: dict[int, Sum] = field(default_factory=dict)
    live: dict[str, dict[int, int]] = field(default_factory=dict)
    unsized: int = 0

    @property
    def total(self) -> Sum:
        """The sum of all ledgers."""
        total = Sum()
        for ledger in self.ledgers.values():
            total.add(ledger)
        return total


def usage_of(
    source: EntrySource, report: Report, advance: Callable[[int], None] = lambda count: None
) -> Usage:
    """Measure the disks of a source. Unreadable files go to `report`; `advance` is called for each ledger."""
    usage = Usage()
    for _, disks in by_bookie(source):
        for stored in stored_ledgers(disks, report):
            advance(1)
            total = usage.ledgers.setdefault(stored.ledger_id, Sum(1))
            total.entries += stored.entries
            total.size += stored.size
            usage.unsized += stored.unsized
            for path, (_, size) in stored.files.items():
                usage.live.setdefault(path, {})[stored.ledger_id] = size
    return usage


def report_unindexed(source: EntrySource, usage: Usage, store: Store, report: Report) -> None:
    """Report entry logs without live entries if BookKeeper has their ledgers and the index has none of these.

    The index lost their entries, which would otherwise count as dead. In the newest log of a directory, a
    running bookie's index may only lack them for a moment.
    """
    for part in source.parts:
        paths = {} if part.entry_logs is None else part.entry_logs.paths
        without_live = {number: str(path) for number, path in paths.items() if str(path) not in usage.live}
        if len(without_live) < len(paths):
            without_live.pop(max(paths), None)
        for log in entry_logs(part, report, without_live.values()):
            ids = [ledger_id for ledger_id in log.ledgers if part.last_entry(ledger_id) is None]
            kept = sum(record is not None for record in store.read_many(list(map(ledger_path, ids))))
            if kept:
                text = f"the index leads to none of its entries, but BookKeeper has {kept} of its ledgers"
                report(DecodeError(f"{text}: pulsar-meta check says more", source=log.path))


@dataclass(slots=True)
class Ownership:
    """The owners of the ledgers on disks. `gone` are the ledgers for which BookKeeper has no metadata.

    `created_for` has the owners in the custom metadata of ledgers that no record refers to.
    """

    owner: dict[int, Owner] = field(default_factory=dict)
    created_for: dict[int, Owner] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    knows_ledgers: bool = False
    gaps: Gaps | None = None

    def role(self, ledger_id: int) -> str:
        """The role of a ledger: `deleted`, `orphan`, `undecided`, or the role of its owner."""
        if ledger_id in self.gone:
            return DELETED
        if ledger_id in self.owner:
            return self.owner[ledger_id].role
        hidden = self.gaps is not None and self.gaps.may_hide(self.created_for.get(ledger_id))
        return UNDECIDED if hidden else ORPHAN

    def name(self, ledger_id: int) -> str | None:
        """The topic or schema that a ledger belongs to, or was created for."""
        owner = self.owner.get(ledger_id) or self.created_for.get(ledger_id)
        return None if owner is None else owner.name


def ownership(
    store: Store,
    source: EntrySource,
    usage: Usage,
    report: Report,
    unseen: Unseen,
    others: OtherClusters | None = None,
) -> Ownership:
    """Find the owners of the ledgers on the disks, in one pass over the store.

    If only another cluster refers to a ledger, the name of its topic is followed by the cluster.
    """
    gaps = Gaps(report, unseen)
    owned = Ownership(knows_ledgers=has_metadata(store), gaps=gaps)
    owners = owners_of(usage.ledgers, store, source, gaps.broken, gaps.unseen)
    unowned = (ledger_id for ledger_id, references in owners.items() if not references)
    elsewhere = {} if others is None else others.owners(unowned)
    for ledger_id, (first, *_) in elsewhere.items():
        owners[ledger_id] = [first.owner._replace(name=f"{first.owner.name} of {first.cluster}")]
    owned.owner = {ledger_id: references[0] for ledger_id, references in owners.items() if references}
    waiting = iter(usage.ledgers if owned.knows_ledgers else ())
    while group := list(islice(waiting, AT_ONCE)):
        for ledger_id, record in zip(group, store.read_many(list(map(ledger_path, group))), strict=True):
            _add_metadata(owned, ledger_id, owners[ledger_id], record, report)
    return owned


def _add_metadata(
    owned: Ownership, ledger_id: int, owners: Sequence[Owner], record: Versioned | None, report: Report
) -> None:
    """Use BookKeeper's metadata to choose the owner of a ledger, unless there is exactly one reference."""
    if record is None:
        owned.gone.add(ledger_id)
        return
    if len(owners) == 1:
        return
    try:
        created_for = owner_in_custom(ledger_id, bookkeeper_ledger_of(ledger_id, record).custom)
    except DecodeError as error:
        report(error)
        return
    owner = first_owner(owners, created_for)
    if owner is not None:
        owned.owner[ledger_id] = owner
    elif created_for is not None:
        owned.created_for[ledger_id] = created_for


class TopicUsage(TypedDict):
    """The disk usage of a topic or schema, by role. `name` is null if there is no owner."""

    name: str | None
    role: str
    ledgers: int
    entries: int
    size: int


class SubscriptionUsage(TypedDict):
    """The bytes that a subscription retains; `alone` are bytes that only this subscription retains.

    `cursor` is null for bytes that no subscription retains. Sizes are null if the cursor's state is unknown.
    """

    topic: str
    cursor: str | None
    ledgers: int | None
    size: int | None
    alone: int | None


class LogUsage(TypedDict):
    """The live and dead bytes of an entry log. `deleted` and `orphan` are null without a store."""

    log: str
    bookie: str | None
    sealed: bool
    size: int
    ledgers: int
    live_ledgers: int
    live: int
    dead: int
    deleted: int | None
    orphan: int | None


def by_topic(usage: Usage, owned: Ownership) -> list[TopicUsage]:
    """Sum the bytes of each topic and schema by role, the largest first."""
    sums: dict[tuple[str, str | None], Sum] = {}
    for ledger_id, ledger in usage.ledgers.items():
        sums.setdefault((owned.role(ledger_id), owned.name(ledger_id)), Sum()).add(ledger)
    rows: list[TopicUsage] = [
        {"name": name, "role": role, "ledgers": total.ledgers, "entries": total.entries, "size": total.size}
        for (role, name), total in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row["size"], str(row["name"]), row["role"]))


def by_subscription(
    store: Store, source: EntrySource, usage: Usage, report: Report
) -> Iterator[SubscriptionUsage]:
    """Yield the bytes that each subscription retains, topic by topic.

    Bytes that no subscription retains have a row without a subscription. The topic itself retains its last
    ledger, because that is never deleted.
    """
    reader = SubscriptionReader.of(store, source, report)
    for topic in topics_in(store, Scope(), report):
        # The ledgers of a shadow topic are retained by its source.
        ledgers = topic.ledgers if topic.shadow is None else ()
        if any(ledger.ledger_id in usage.ledgers for ledger in ledgers):
            subscriptions = list(reader.all(topic))
            with_ends = subscriptions[0].topic if subscriptions else topic
            yield from _of_topic(with_ends, subscriptions, usage.ledgers)


def _of_topic(
    topic: Topic, subscriptions: list[Subscription], sizes: Mapping[int, Sum]
) -> Iterator[SubscriptionUsage]:
    retained: dict[str, Sum] = {subscription.name: Sum() for subscription in subscriptions}
    alone: dict[str, Sum] = {subscription.name: Sum() for subscription in subscriptions}
    free = Sum()
    all_known = all(subscription.recovery.mark_delete is not None for subscription in subscriptions)
    for ledger in topic.ledgers:
        size = sizes.get(ledger.ledger_id)
        if size is None:
            continue
        holding = [subscription.name for subscription in subscriptions if retains(subscription, ledger)]
        for name in holding:
            retained[name].add(size)
        if len(holding) == 1 and all_known and ledger is not topic.ledgers[-1]:
            alone[holding[0]].add(size)
        if not holding:
            free.add(size)
    for subscription in subscriptions:
        name, known = subscription.name, subscription.recovery.mark_delete is not None
        yield _row(
            topic.name, name, retained[name] if known else None, alone[name].size if all_known else None
        )
    if free.ledgers:
        yield _row(topic.name, None, free, None)


def _row(topic: str, cursor: str | None, total: Sum | None, alone: int | None) -> SubscriptionUsage:
    return {
        "topic": topic,
        "cursor": cursor,
        "ledgers": None if total is None else total.ledgers,
        "size": None if total is None else total.size,
        "alone": alone,
    }


def by_log(source: EntrySource, usage: Usage, owned: Ownership | None, report: Report) -> Iterator[LogUsage]:
    """Yield the live bytes of each entry log, and the bytes that bookies can free.

    `dead` are bytes that the index no longer refers to; compaction frees them. `deleted` are indexed bytes of
    ledgers without metadata; the bookie's next garbage collection makes them dead. `orphan` are bytes of
    ledgers that no record refers to. The last two are null without a store.
    """
    for log in entry_logs(source, report):
        live = usage.live.get(log.path, {})
        dead = max(0, sum(log.ledgers.values()) - sum(live.values()))
        yield {
            "log": log.path,
            "bookie": log.bookie,
            "sealed": log.read == "map",
            "size": log.size,
            "ledgers": len(log.ledgers),
            "live_ledgers": len(live),
            "live": sum(live.values()),
            "dead": dead,
            "deleted": _sum_of(live, owned, DELETED),
            "orphan": _sum_of(live, owned, ORPHAN),
        }


def _sum_of(live: Mapping[int, int], owned: Ownership | None, role: str) -> int | None:
    if owned is None or (role == DELETED and not owned.knows_ledgers):
        return None
    return sum(size for ledger_id, size in live.items() if owned.role(ledger_id) == role)


def total_of(rows: Iterable[Mapping[str, Any]], name: str) -> int:
    """Sum a column; null counts as 0."""
    return sum(row[name] or 0 for row in rows)
