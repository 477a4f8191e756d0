"""Find the owners of ledgers, facts about them, and why they are still kept, in one pass over a store.

Source: apache/pulsar ManagedLedgerImpl.internalTrimLedgers (which ledgers a topic keeps).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursors.subscriptions import Subscription, SubscriptionReader
from pulsar_meta.jobs.disk.contents import StoredLedger, stored_ledger, times_of
from pulsar_meta.jobs.entries.entry_reading import data_entry, find_frame
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.other_clusters import OtherClusters, OtherOwner
from pulsar_meta.jobs.topics.owners import Gaps, Owner, Role, Unseen, first_owner, owner_in_custom, owners_of
from pulsar_meta.jobs.topics.related import ScalableTopics, Shadow
from pulsar_meta.jobs.topics.topic import Ledger, Metadata, Report, read_topic, with_bookkeeper
from pulsar_meta.stores.base import Store

POLICIES = "/admin/policies"
# At most this many subscriptions that retain a ledger are named.
NAMED = 5
UNNAMED = "no record"
IN_MEMORY = "non-durable readers, which exist only in brokers' memory"


class ShadowOf(TypedDict, total=False):
    """For the record of a shadow topic, the topic whose list it copies."""

    shadow_of: str | None


class OfScalable(TypedDict, total=False):
    """For a segment, its scalable topic."""

    scalable_topic: str


class OwnerDocument(TypedDict):
    """A record that refers to a ledger. `path` is null if only the ledger's custom metadata names the owner.

    `cluster` is the root or the store of another cluster that shares the BookKeeper.
    """

    role: Role
    name: str
    cursor: str | None
    path: str | None
    certain: bool
    shadow_of: NotRequired[str | None]
    cluster: NotRequired[str]


class LedgerOwnership(TypedDict):
    """The owner of a ledger, facts about it, and why it is still kept; null means unknown."""

    ledger_id: int
    role: Role | None
    name: str | None
    scalable_topic: NotRequired[str]
    cursor: str | None
    named_by: list[OwnerDocument]
    created_for: OwnerDocument | None
    metadata: Metadata
    state: str | None
    entries: int | None
    size: int | None
    created: int | None
    closed: int | None
    bookies: list[str]
    entries_here: int | None
    size_here: int | None
    files: list[str]
    content: str | None
    first_time: int | None
    last_time: int | None
    kept_by: list[str]


def whois(
    wanted: Sequence[int],
    store: Store | None,
    source: EntrySource | None,
    report: Report,
    unseen: Unseen,
    others: OtherClusters | None = None,
) -> Iterator[LedgerOwnership]:
    """Describe each ledger, in the order of `wanted`.

    `report` gets corrupt records, and an error for each ledger that was not found. `others` are clusters that
    share the BookKeeper.
    """
    elsewhere = {} if others is None else others.owners(wanted)
    named: dict[int, list[Owner]] = {}
    gaps = Gaps(report, unseen)
    if store is not None:
        named = owners_of(wanted, store, source, gaps.broken, gaps.unseen)
    known = store if store is not None and has_metadata(store) else None
    ledgers = with_bookkeeper(known, [Ledger(ledger_id) for ledger_id in wanted], report)
    topics = _Topics(store, source, report)
    for ledger in ledgers:
        stored = None if source is None else stored_ledger(source, ledger.ledger_id, report)
        document = _document(ledger, named.get(ledger.ledger_id, []), stored, source, topics, gaps)
        document = _with_other_clusters(document, elsewhere.get(ledger.ledger_id, []))
        has_entries = stored is not None and stored.entries > 0
        if document["named_by"] or ledger.metadata not in ("unread", "absent") or has_entries:
            yield document
            continue
        why = "no record refers to it, and neither BookKeeper nor a disk has it"
        report(NotFoundError(f"ledger {ledger.ledger_id} not found: {why}"))


def _document(
    ledger: Ledger,
    owners: Sequence[Owner],
    stored: StoredLedger | None,
    source: EntrySource | None,
    topics: _Topics,
    gaps: Gaps,
) -> LedgerOwnership:
    known = ledger.bookkeeper
    created_for = None if known is None else owner_in_custom(ledger.ledger_id, known.custom)
    owner = first_owner(owners, created_for)
    listed = topics.ledger(owner)
    content, first_time, last_time = _content_and_times(source, ledger, stored)
    segments = () if known is None else known.segments
    members = dict.fromkeys(member for segment in segments for member in segment.members)
    return {
        "ledger_id": ledger.ledger_id,
        "role": None if owner is None else owner.role,
        "name": None if owner is None else owner.name,
        **topics.scalable(owner),
        "cursor": None if owner is None else owner.cursor,
        "named_by": [{**_owner(reference), **topics.shadow_of(reference)} for reference in owners],
        "created_for": None if created_for is None else _owner(created_for),
        "metadata": ledger.metadata,
        "state": None if known is None else known.state,
        "entries": listed.entries if listed and ledger.entries is None else ledger.entries,
        "size": known.length if known and known.length is not None else listed.size if listed else None,
        "created": None if known is None else known.created,
        "closed": None if listed is None else listed.closed_at,
        "bookies": list(members),
        "entries_here": None if stored is None else stored.entries,
        "size_here": None if stored is None else stored.size,
        "files": sorted(stored.files) if stored is not None and stored.entries else [],
        "content": content,
        "first_time": first_time,
        "last_time": last_time,
        "kept_by": list(_reasons(ledger, owners, created_for, topics, gaps)),
    }


def _with_other_clusters(document: LedgerOwnership, others: Sequence[OtherOwner]) -> LedgerOwnership:
    """Add the records of other clusters that refer to a ledger."""
    if not others:
        return document
    named: list[OwnerDocument] = [{**_owner(other.owner), "cluster": other.cluster} for other in others]
    reasons = [f"another cluster refers to it as {other.owner.role}: {other}" for other in others]
    own = document["named_by"]
    kept = [reason for reason in document["kept_by"] if own or not reason.startswith(UNNAMED)]
    extended: LedgerOwnership = {**document, "named_by": [*own, *named], "kept_by": [*kept, *reasons]}
    if document["role"] is None:
        first = others[0]
        extended["role"], extended["cursor"] = first.owner.role, first.owner.cursor
        extended["name"] = f"{first.owner.name} of {first.cluster}"
    return extended


def _owner(owner: Owner) -> OwnerDocument:
    return {
        "role": owner.role,
        "name": owner.name,
        "cursor": owner.cursor,
        "path": owner.path,
        "certain": owner.certain,
    }


def _content_and_times(
    source: EntrySource | None, ledger: Ledger, stored: StoredLedger | None
) -> tuple[str | None, int | None, int | None]:
    """Describe the contents of a ledger; also the times of its first and last entry in ms."""
    if source is None or stored is None or not stored.entries:
        return None, None, None
    return content_of(source, ledger, stored), *times_of(source, stored)


def content_of(source: EntrySource, ledger: Ledger, stored: StoredLedger) -> str | None:
    """Describe the contents of a ledger by its first entry in the source."""
    if stored.first_entry is None:
        return None
    try:
        entry = data_entry(source.read(ledger.ledger_id, stored.first_entry), ledger.format)
    except (DecodeError, NotFoundError) as error:
        return f"its first entry can't be read: {error.message}"
    frame, compacted_from, reason = find_frame(entry.data, ledger.format)
    if frame is None:
        return reason
    kind = "messages" if compacted_from is None else "compacted messages"
    return f"{kind}, the first from producer {frame.metadata.producer_name}"


@dataclass(frozen=True, slots=True)
class _TopicFacts:
    """A topic's ledgers by id and its subscriptions; `shadow` if its ledgers belong to another topic."""

    ledgers: dict[int, Ledger] = field(default_factory=dict)
    subscriptions: list[Subscription] = field(default_factory=list)
    shadow: Shadow | None = None


class _Topics:
    """Topics and their subscriptions, each read once and only if it owns a wanted ledger."""

    def __init__(self, store: Store | None, source: EntrySource | None, report: Report) -> None:
        self._store, self._report = store, report
        self._reader = None if store is None else SubscriptionReader.of(store, source, report)
        self._scalable = None if store is None else ScalableTopics(store)
        self._known: dict[str, _TopicFacts] = {}

    def of(self, name: str) -> _TopicFacts:
        """Read a topic. The result is empty if its record is missing or corrupt."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def ledger(self, owner: Owner | None) -> Ledger | None:
        """A ledger in the list of its topic, with its end if that is known."""
        if owner is None or owner.role != "data":
            return None
        return self.of(owner.name).ledgers.get(owner.ledger_id)

    def shadow_of(self, owner: Owner) -> ShadowOf:
        """`{"shadow_of"}` for the record of a shadow topic, which copies its source's list."""
        shadow = self.of(owner.name).shadow if owner.role == "data" else None
        return {} if shadow is None else {"shadow_of": shadow.source}

    def scalable(self, owner: Owner | None) -> OfScalable:
        """`{"scalable_topic"}` for a ledger of a segment, empty for other ledgers."""
        if owner is None or owner.role == "schema" or self._scalable is None:
            return {}
        topic = TopicName.parse(owner.name)
        scalable = self._scalable.of([topic])[topic]
        return {} if scalable is None else {"scalable_topic": scalable}

    def is_offloaded(self, owners: Iterable[Owner]) -> bool:
        """True if BookKeeper has no metadata of a ledger because it was offloaded."""
        offloads = (ledger.offload for ledger in map(self.ledger, owners) if ledger is not None)
        return any(offload and offload.complete and offload.bookkeeper_deleted for offload in offloads)

    def retention(self, name: str) -> str:
        """Describe how long the policies of a topic's namespace retain consumed messages."""
        assert self._store is not None
        path = f"{POLICIES}/{TopicName.parse(name).namespace_name}"
        try:
            policies = read_json_object(self._store.read(path).value)
        except (NotFoundError, DecodeError):
            return "the namespace's retention is unknown"
        retention = policies.get("retention_policies")
        if not isinstance(retention, dict):
            return (
                "the namespace sets no retention, so the brokers' default applies, which is not visible here"
            )
        minutes, size = retention.get("retentionTimeInMinutes"), retention.get("retentionSizeInMB")
        return f"the namespace's retention is {minutes} minutes, {size} MB"

    def _read(self, name: str) -> _TopicFacts:
        if self._store is None or self._reader is None:
            return _TopicFacts()
        try:
            topic = self._reader.topic(read_topic(self._store, TopicName.parse(name)))
        except (NotFoundError, DecodeError) as error:
            self._report(error)
            return _TopicFacts()
        ledgers = {ledger.ledger_id: ledger for ledger in topic.ledgers}
        return _TopicFacts(ledgers, list(self._reader.all(topic)), topic.shadow)


def _reasons(
    ledger: Ledger, owners: Sequence[Owner], created_for: Owner | None, topics: _Topics, gaps: Gaps
) -> Iterator[str]:
    """Yield the reasons why a ledger is still kept."""
    for owner in owners:
        if owner.role == "data":
            yield from _reasons_of_data(owner, topics)
        elif not owner.certain:
            yield f"a record that may be outdated points to it: {owner.path}"
        else:
            yield _POINTERS[owner.role].format(name=owner.name, cursor=owner.cursor)
    if not owners and ledger.metadata == "known":
        purpose = "" if created_for is None else f" (created as {created_for.role} of {created_for.name})"
        if gaps.may_hide(created_for):
            yield f"{UNNAMED} that could be read refers to it{purpose}, but an unreadable one may"
        else:
            yield f"{UNNAMED} refers to it{purpose}, so it is never deleted"
    if ledger.metadata == "absent" and not topics.is_offloaded(owners):
        yield "BookKeeper has no metadata of it, so the bookies' next garbage collection deletes its entries"


_POINTERS = {
    "cursor": "it contains the state of the subscription {cursor} of {name}",
    "compacted": "it contains the compacted messages of {name}",
    "delayed-index-bucket": "it contains an index of delayed messages of the subscription {cursor} of {name}",
    "schema": "it contains a version of the schema of {name}",
}


def _reasons_of_data(owner: Owner, topics: _Topics) -> Iterator[str]:
    facts = topics.of(owner.name)
    ledger = facts.ledgers.get(owner.ledger_id)
    if ledger is None or facts.shadow is not None:
        # The ledgers of a shadow topic are retained by its source.
        return
    is_last = ledger.ledger_id == max(facts.ledgers)
    if is_last:
        yield f"it is the last ledger of {owner.name}"
    if ledger.offload is not None and ledger.offload.complete:
        deleted = "deleted" if ledger.offload.bookkeeper_deleted else "not yet deleted"
        yield f"offloaded to {ledger.offload.driver or 'tiered storage'}, bookies' copy {deleted}"
    yield from _reasons_of_subscriptions(ledger, facts.subscriptions)
    consumed = all(
        subscription.recovery.mark_delete is not None and not retains(subscription, ledger)
        for subscription in facts.subscriptions
    )
    if consumed and not is_last:
        why = "every subscription has consumed it" if facts.subscriptions else "the topic has no subscription"
        yield f"{why}; {topics.retention(owner.name)}, topic policies are in __change_events"
        yield f"not visible here: {IN_MEMORY}"


def _reasons_of_subscriptions(ledger: Ledger, subscriptions: Sequence[Subscription]) -> Iterator[str]:
    holding = [subscription for subscription in subscriptions if retains(subscription, ledger)]
    unknown = [item.name for item in subscriptions if item.recovery.mark_delete is None]
    yield from (_holder(subscription, ledger) for subscription in holding[:NAMED])
    if len(holding) > NAMED:
        more = len(holding) - NAMED
        yield f"{more} other subscription{' has' if more == 1 else 's have'} not consumed it"
    if unknown:
        yield f"unknown for {', '.join(unknown[:NAMED])}, whose state is in ledgers that were not given"


def retains(subscription: Subscription, ledger: Ledger) -> bool:
    """True if a subscription has unacknowledged entries in a ledger, or may have because its end is open."""
    position = subscription.recovery.mark_delete
    if position is None or position.ledger_id > ledger.ledger_id:
        return False
    if position.ledger_id < ledger.ledger_id:
        return ledger.entries != 0
    return ledger.entries is None or position.entry_id < ledger.entries - 1


def _holder(subscription: Subscription, ledger: Ledger) -> str:
    runs = () if subscription.backlog is None else subscription.backlog.runs
    count = sum(run.last - run.first + 1 for run in runs if run.ledger_id == ledger.ledger_id)
    position = "{}:{}".format(*subscription.recovery.mark_delete or ())
    more = "or more " if ledger.entries is None else ""
    return f"the subscription {subscription.name} is at {position}, with {count} {more}of its entries left"
