"""What takes the place on disks: topics and what belongs to them, subscriptions that hold data, entry logs.

Bytes are those of records on the disks that were given; each bookie's copy counts.

Source: apache/pulsar ManagedLedgerImpl.internalTrimLedgers; apache/bookkeeper GarbageCollectorThread
(ledgers without metadata are deleted from the index, logs with little that is live are compacted).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypedDict

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.names import ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import Subscription, SubscriptionReader
from pulsar_meta.jobs.disk.contents import entry_logs
from pulsar_meta.jobs.disk.held import by_bookie, held_ledgers
from pulsar_meta.jobs.disk.whois import holds
from pulsar_meta.jobs.topics.bookkeeper import bookkeeper_ledger_of, has_metadata
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.owners import Gaps, Owner, Unseen, first_owner, owner_in_custom, owners_of
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.jobs.topics.topic import Report, Topic, topics_in
from pulsar_meta.stores.base import Store, Versioned

# Ledgers whose metadata is read in one go.
AT_ONCE = 500
ORPHAN = "orphan"
# Nobody was seen to name it, and not every record and pointer could be seen.
UNDECIDED = "undecided"
DELETED = "deleted"


@dataclass(slots=True)
class Sum:
    """Ledgers, entries and bytes."""

    ledgers: int = 0
    entries: int = 0
    size: int = 0

    def add(self, other: Sum) -> None:
        """Add another sum, which is of ledgers that were not counted."""
        self.ledgers += other.ledgers
        self.entries += other.entries
        self.size += other.size


@dataclass(slots=True)
class Usage:
    """What the disks hold: by ledger, and of each log what its index points at (by ledger).

    `unsized` counts entries that the index says lie where no record is: their bytes are in no sum.
    """

    ledgers: dict[int, Sum] = field(default_factory=dict)
    live: dict[str, dict[int, int]] = field(default_factory=dict)
    unsized: int = 0

    @property
    def total(self) -> Sum:
        """The sum of all ledgers."""
        total = Sum()
        for one in self.ledgers.values():
            total.add(one)
        return total


def usage_of(source: EntrySource, report: Report) -> Usage:
    """Return what lies on the disks of a source; files that cannot be read are reported."""
    usage = Usage()
    for _, disks in by_bookie(source):
        for held in held_ledgers(disks, report):
            found = usage.ledgers.setdefault(held.ledger_id, Sum(1))
            found.entries += held.entries
            found.size += held.size
            usage.unsized += held.unsized
            for path, (_, size) in held.files.items():
                usage.live.setdefault(path, {})[held.ledger_id] = size
    return usage


@dataclass(slots=True)
class Ownership:
    """Whose the ledgers on disks are; `gone` are those that BookKeeper does not know.

    `created_for` has what the custom metadata of those says that nobody names.
    """

    owner: dict[int, Owner] = field(default_factory=dict)
    created_for: dict[int, Owner] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    knows_ledgers: bool = False
    gaps: Gaps | None = None

    def role(self, ledger_id: int) -> str:
        """Return as what a ledger is on the disk."""
        if ledger_id in self.gone:
            return DELETED
        found = self.owner.get(ledger_id)
        if found is not None:
            return found.role
        hidden = self.gaps is not None and self.gaps.may_hide(self.created_for.get(ledger_id))
        return UNDECIDED if hidden else ORPHAN

    def name(self, ledger_id: int) -> str | None:
        """Return the topic or schema that a ledger belongs to, or was made for."""
        found = self.owner.get(ledger_id) or self.created_for.get(ledger_id)
        return None if found is None else found.name


def ownership(
    store: Store,
    source: EntrySource,
    usage: Usage,
    report: Report,
    unseen: Unseen,
    others: OtherClusters | None = None,
) -> Ownership:
    """Return whose the ledgers on the disks are, in one pass over the store.

    A ledger that only another cluster names is its topic's, with the cluster after the name.
    """
    gaps = Gaps(report, unseen)
    found = Ownership(knows_ledgers=has_metadata(store), gaps=gaps)
    named = owners_of(usage.ledgers, store, source, gaps.broken, gaps.unseen)
    elsewhere = {} if others is None else others.owners(one for one, some in named.items() if not some)
    for ledger_id, (first, *_) in elsewhere.items():
        named[ledger_id] = [first.owner._replace(name=f"{first.owner.name} of {first.cluster}")]
    found.owner = {ledger_id: some[0] for ledger_id, some in named.items() if some}
    waiting = iter(usage.ledgers if found.knows_ledgers else ())
    while some := list(islice(waiting, AT_ONCE)):
        for ledger_id, record in zip(some, store.read_many(list(map(ledger_path, some))), strict=True):
            _look_up(found, ledger_id, named[ledger_id], record, report)
    return found


def _look_up(
    found: Ownership, ledger_id: int, named: Sequence[Owner], record: Versioned | None, report: Report
) -> None:
    """Note what BookKeeper's record of a ledger says, where not one alone names it."""
    if record is None:
        found.gone.add(ledger_id)
        return
    if len(named) == 1:
        return
    try:
        meant = owner_in_custom(ledger_id, bookkeeper_ledger_of(ledger_id, record).custom)
    except DecodeError as error:
        report(error)
        return
    owner = first_owner(named, meant)
    if owner is not None:
        found.owner[ledger_id] = owner
    elif meant is not None:
        found.created_for[ledger_id] = meant


class TopicUsage(TypedDict):
    """Bytes of a topic or schema on disks, by what they are; `name` is null of what nobody names."""

    name: str | None
    role: str
    ledgers: int
    entries: int
    size: int


class SubscriptionUsage(TypedDict):
    """What a subscription holds; `cursor` is null for what none does, sizes where the state is not known."""

    topic: str
    cursor: str | None
    ledgers: int | None
    size: int | None
    alone: int | None


class LogUsage(TypedDict):
    """How much of an entry log is live; `deleted` and `orphan` are null without a store."""

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
    """Return the bytes of each topic and schema by what they are, the most first."""
    sums: dict[tuple[str, str | None], Sum] = {}
    for ledger_id, held in usage.ledgers.items():
        sums.setdefault((owned.role(ledger_id), owned.name(ledger_id)), Sum()).add(held)
    rows: list[TopicUsage] = [
        {"name": name, "role": role, "ledgers": one.ledgers, "entries": one.entries, "size": one.size}
        for (role, name), one in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row["size"], str(row["name"]), row["role"]))


def by_subscription(
    store: Store, source: EntrySource, usage: Usage, report: Report
) -> Iterator[SubscriptionUsage]:
    """Yield what each subscription holds of its topic, and what nothing but it holds; topic by topic.

    Ledgers that no subscription holds come with none. A topic's last ledger is never deleted, so it counts
    as held by the topic itself.
    """
    reader = SubscriptionReader.of(store, source, report)
    for topic in topics_in(store, Scope(), report):
        # What a shadow topic reads is its source's to keep.
        mine = topic.ledgers if topic.shadow is None else ()
        if any(ledger.ledger_id in usage.ledgers for ledger in mine):
            subscriptions = list(reader.all(topic))
            with_ends = subscriptions[0].topic if subscriptions else topic
            yield from _of_topic(with_ends, subscriptions, usage.ledgers)


def _of_topic(
    topic: Topic, subscriptions: list[Subscription], sizes: Mapping[int, Sum]
) -> Iterator[SubscriptionUsage]:
    held: dict[str, Sum] = {one.name: Sum() for one in subscriptions}
    alone: dict[str, Sum] = {one.name: Sum() for one in subscriptions}
    nobody = Sum()
    unknown = [one.name for one in subscriptions if one.recovery.mark_delete is None]
    for ledger in topic.ledgers:
        size = sizes.get(ledger.ledger_id)
        if size is None:
            continue
        holding = [one.name for one in subscriptions if holds(one, ledger)]
        for name in holding:
            held[name].add(size)
        if len(holding) == 1 and not unknown and ledger is not topic.ledgers[-1]:
            alone[holding[0]].add(size)
        if not holding:
            nobody.add(size)
    for one in subscriptions:
        seen = one.recovery.mark_delete is not None
        mine, only = held[one.name], alone[one.name]
        yield _row(topic.name, one.name, mine if seen else None, only.size if seen and not unknown else None)
    if nobody.ledgers:
        yield _row(topic.name, None, nobody, None)


def _row(topic: str, cursor: str | None, held: Sum | None, alone: int | None) -> SubscriptionUsage:
    return {
        "topic": topic,
        "cursor": cursor,
        "ledgers": None if held is None else held.ledgers,
        "size": None if held is None else held.size,
        "alone": alone,
    }


def by_log(source: EntrySource, usage: Usage, owned: Ownership | None, report: Report) -> Iterator[LogUsage]:
    """Yield for each entry log how much of it is live, and what bookies would free.

    `dead` is what the index does not point at any more: compaction frees it. `deleted` is what the index
    points at of ledgers that BookKeeper does not know (the bookie's next garbage collection makes it dead);
    `orphan` what nobody names. Both are null without a store.
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
    """Return the sum of a column, null counting nothing."""
    return sum(row[name] or 0 for row in rows)
