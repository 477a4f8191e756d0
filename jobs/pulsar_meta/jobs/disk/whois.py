"""Whose ledgers are, what is known of them, why they are still kept: all in one pass over a store.

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
from pulsar_meta.jobs.disk.held import Held, held_of, times_of
from pulsar_meta.jobs.entries.entry_reading import data_entry, find_frame
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.other_clusters import OtherClusters, OtherOwner
from pulsar_meta.jobs.topics.owners import Gaps, Owner, Role, Unseen, first_owner, owner_in_custom, owners_of
from pulsar_meta.jobs.topics.segments import ScalableTopics
from pulsar_meta.jobs.topics.shadow import Shadow
from pulsar_meta.jobs.topics.topic import Ledger, Metadata, Report, read_topic, with_bookkeeper
from pulsar_meta.stores.base import Store

POLICIES = "/admin/policies"
# So many subscriptions that hold a ledger are named.
NAMED = 5
UNNAMED = "no record"
IN_MEMORY = "readers that are not durable, which live in brokers' memory"


class ShadowOf(TypedDict, total=False):
    """Of the record of a shadow topic, whose list it is a snapshot of."""

    shadow_of: str | None


class OfScalable(TypedDict, total=False):
    """Of what is a segment's, its scalable topic."""

    scalable_topic: str


class OwnerDocument(TypedDict):
    """A record that names a ledger; `path` is null if only the ledger's metadata says so.

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
    """Whose a ledger is, what is known of it, why it is still kept; null is what is not known."""

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
    """Yield what is known of each ledger, in the order in which they are named.

    `report` gets broken records, and ledgers of which nobody knows anything. `others` are clusters that share
    the BookKeeper.
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
        held = None if source is None else held_of(source, ledger.ledger_id, report)
        document = _document(ledger, named.get(ledger.ledger_id, []), held, source, topics, gaps)
        document = _with_other_clusters(document, elsewhere.get(ledger.ledger_id, []))
        if (
            not document["named_by"]
            and ledger.metadata in ("unread", "absent")
            and not (held and held.entries)
        ):
            report(NotFoundError(f"no ledger {ledger.ledger_id}: nobody names it, and it is nowhere"))
            continue
        yield document


def _document(
    ledger: Ledger,
    owners: Sequence[Owner],
    held: Held | None,
    source: EntrySource | None,
    topics: _Topics,
    gaps: Gaps,
) -> LedgerOwnership:
    known = ledger.bookkeeper
    created_for = None if known is None else owner_in_custom(ledger.ledger_id, known.custom)
    owner = first_owner(owners, created_for)
    listed = topics.ledger(owner)
    content, first_time, last_time = _told(source, ledger, held)
    members = {one: None for part in (known.segments if known else ()) for one in part.members}
    return {
        "ledger_id": ledger.ledger_id,
        "role": None if owner is None else owner.role,
        "name": None if owner is None else owner.name,
        **topics.scalable(owner),
        "cursor": None if owner is None else owner.cursor,
        "named_by": [{**_owner(one), **topics.shadow_of(one)} for one in owners],
        "created_for": None if created_for is None else _owner(created_for),
        "metadata": ledger.metadata,
        "state": None if known is None else known.state,
        "entries": listed.entries if listed and ledger.entries is None else ledger.entries,
        "size": known.length if known and known.length is not None else listed.size if listed else None,
        "created": None if known is None else known.created,
        "closed": None if listed is None else listed.closed_at,
        "bookies": list(members),
        "entries_here": None if held is None else held.entries,
        "size_here": None if held is None else held.size,
        "files": sorted(held.files) if held is not None and held.entries else [],
        "content": content,
        "first_time": first_time,
        "last_time": last_time,
        "kept_by": list(_reasons(ledger, owners, created_for, topics, gaps)),
    }


def _with_other_clusters(document: LedgerOwnership, others: Sequence[OtherOwner]) -> LedgerOwnership:
    """Return what is known of a ledger, with the records of other clusters that name it."""
    if not others:
        return document
    named: list[OwnerDocument] = [{**_owner(one.owner), "cluster": one.cluster} for one in others]
    reasons = [f"another cluster names it as {one.owner.role}: {one}" for one in others]
    mine = document["named_by"]
    kept = [reason for reason in document["kept_by"] if mine or not reason.startswith(UNNAMED)]
    found: LedgerOwnership = {**document, "named_by": [*mine, *named], "kept_by": [*kept, *reasons]}
    if document["role"] is None:
        first = others[0]
        found["role"], found["cursor"] = first.owner.role, first.owner.cursor
        found["name"] = f"{first.owner.name} of {first.cluster}"
    return found


def _owner(owner: Owner) -> OwnerDocument:
    return {
        "role": owner.role,
        "name": owner.name,
        "cursor": owner.cursor,
        "path": owner.path,
        "certain": owner.certain,
    }


def _told(
    source: EntrySource | None, ledger: Ledger, held: Held | None
) -> tuple[str | None, int | None, int | None]:
    """Return what the entries of a ledger say they are, and the times of the first and the last one."""
    if source is None or held is None or not held.entries:
        return None, None, None
    return content_of(source, ledger, held), *times_of(source, held)


def content_of(source: EntrySource, ledger: Ledger, held: Held) -> str | None:
    """Return what the first entry that is held of a ledger says it is."""
    if held.first_entry is None:
        return None
    try:
        entry = data_entry(source.read(ledger.ledger_id, held.first_entry), ledger.format)
    except (DecodeError, NotFoundError) as error:
        return f"its first entry cannot be read: {error.message}"
    frame, compacted_from, reason = find_frame(entry.data, ledger.format)
    if frame is None:
        return reason
    what = "messages" if compacted_from is None else "compacted messages"
    return f"{what}, the first from producer {frame.metadata.producer_name}"


@dataclass(frozen=True, slots=True)
class _Known:
    """A topic's ledgers by id and its subscriptions; `shadow` where its ledgers are another topic's."""

    ledgers: dict[int, Ledger] = field(default_factory=dict)
    subscriptions: list[Subscription] = field(default_factory=list)
    shadow: Shadow | None = None


class _Topics:
    """Topics and their subscriptions, each read once and only if a ledger is its."""

    def __init__(self, store: Store | None, source: EntrySource | None, report: Report) -> None:
        self._store, self._report = store, report
        self._reader = None if store is None else SubscriptionReader.of(store, source, report)
        self._scalable = None if store is None else ScalableTopics(store)
        self._known: dict[str, _Known] = {}

    def of(self, name: str) -> _Known:
        """Return what is known of a topic; nothing of one whose record is broken."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def ledger(self, owner: Owner | None) -> Ledger | None:
        """Return a ledger as the topic that owns it lists it, with its end where somebody knows it."""
        if owner is None or owner.role != "data":
            return None
        return self.of(owner.name).ledgers.get(owner.ledger_id)

    def shadow_of(self, owner: Owner) -> ShadowOf:
        """Return `{"shadow_of"}` for the record of a shadow topic: a snapshot of its source's list."""
        shadow = self.of(owner.name).shadow if owner.role == "data" else None
        return {} if shadow is None else {"shadow_of": shadow.source}

    def scalable(self, owner: Owner | None) -> OfScalable:
        """Return `{"scalable_topic"}` of what is a segment's, nothing for other ledgers."""
        if owner is None or owner.role == "schema" or self._scalable is None:
            return {}
        topic = TopicName.parse(owner.name)
        found = self._scalable.of([topic])[topic]
        return {} if found is None else {"scalable_topic": found}

    def is_offloaded(self, owners: Iterable[Owner]) -> bool:
        """Return whether a ledger is one that BookKeeper does not know any more since it was offloaded."""
        offloads = (mine.offload for mine in map(self.ledger, owners) if mine is not None)
        return any(one is not None and one.complete and one.bookkeeper_deleted for one in offloads)

    def retention(self, name: str) -> str:
        """Say how long the policies of a topic's namespace keep what everybody has consumed."""
        assert self._store is not None
        path = f"{POLICIES}/{TopicName.parse(name).namespace_name}"
        try:
            policies = read_json_object(self._store.read(path).value)
        except (NotFoundError, DecodeError):
            return "the namespace's retention is not known"
        found = policies.get("retention_policies")
        if not isinstance(found, dict):
            return (
                "the namespace sets no retention, so the brokers' default counts, which is not visible here"
            )
        minutes, size = found.get("retentionTimeInMinutes"), found.get("retentionSizeInMB")
        return f"the namespace's retention is {minutes} minutes, {size} MB"

    def _read(self, name: str) -> _Known:
        if self._store is None or self._reader is None:
            return _Known()
        try:
            topic = self._reader.topic(read_topic(self._store, TopicName.parse(name)))
        except (NotFoundError, DecodeError) as error:
            self._report(error)
            return _Known()
        ledgers = {ledger.ledger_id: ledger for ledger in topic.ledgers}
        return _Known(ledgers, list(self._reader.all(topic)), topic.shadow)


def _reasons(
    ledger: Ledger, owners: Sequence[Owner], created_for: Owner | None, topics: _Topics, gaps: Gaps
) -> Iterator[str]:
    """Yield why a ledger is still kept."""
    for owner in owners:
        if owner.role == "data":
            yield from _reasons_of_data(owner, topics)
        elif not owner.certain:
            yield f"a record that may be older than the truth points at it: {owner.path}"
        else:
            yield _POINTERS[owner.role].format(name=owner.name, cursor=owner.cursor)
    if not owners and ledger.metadata == "known":
        meant = "" if created_for is None else f" (created as {created_for.role} of {created_for.name})"
        if gaps.may_hide(created_for):
            yield f"{UNNAMED} that could be read names it{meant}: whether any does is not known"
        else:
            yield f"{UNNAMED} names it{meant}: nobody deletes it"
    if ledger.metadata == "absent" and not topics.is_offloaded(owners):
        yield "BookKeeper has no metadata of it: bookies delete its entries at their next garbage collection"


_POINTERS = {
    "cursor": "it has the state of the subscription {cursor} of {name}",
    "compacted": "it has the compacted messages of {name}",
    "delayed-index-bucket": "it has an index of the delayed messages of the subscription {cursor} of {name}",
    "schema": "it has a version of the schema of {name}",
}


def _reasons_of_data(owner: Owner, topics: _Topics) -> Iterator[str]:
    known = topics.of(owner.name)
    ledgers, subscriptions = known.ledgers, known.subscriptions
    mine = ledgers.get(owner.ledger_id)
    if mine is None or known.shadow is not None:
        # What a shadow topic reads is its source's to keep.
        return
    if mine.ledger_id == max(ledgers):
        yield f"it is the last ledger of {owner.name}"
    if mine.offload is not None and mine.offload.complete:
        where = (
            "bookies' copy deleted" if mine.offload.bookkeeper_deleted else "bookies' copy not yet deleted"
        )
        yield f"offloaded to {mine.offload.driver or 'tiered storage'}, {where}"
    holding = [one for one in subscriptions if holds(one, mine)]
    unknown = [one.name for one in subscriptions if one.recovery.mark_delete is None]
    yield from (_holder(one, mine) for one in holding[:NAMED])
    if len(holding) > NAMED:
        more = len(holding) - NAMED
        yield f"{more} other subscription{' has' if more == 1 else 's have'} not consumed it"
    if unknown:
        yield f"not known of {', '.join(unknown[:NAMED])}: their state lies in ledgers that are not given"
    if not holding and not unknown and mine.ledger_id != max(ledgers):
        everybody = "every subscription has consumed it" if subscriptions else "the topic has no subscription"
        yield f"{everybody}; {topics.retention(owner.name)}, topic policies lie in __change_events"
        yield f"not visible here: {IN_MEMORY}"


def holds(subscription: Subscription, ledger: Ledger) -> bool:
    """Return whether a subscription has something left in a ledger, or may have: its end is not known."""
    position = subscription.recovery.mark_delete
    if position is None or position.ledger_id > ledger.ledger_id:
        return False
    if position.ledger_id < ledger.ledger_id:
        return ledger.entries != 0
    return ledger.entries is None or position.entry_id < ledger.entries - 1


def _holder(subscription: Subscription, ledger: Ledger) -> str:
    left = subscription.backlog
    runs: Iterable[int] = (
        ()
        if left is None
        else (run.last - run.first + 1 for run in left.runs if run.ledger_id == ledger.ledger_id)
    )
    count = sum(runs)
    position = "{}:{}".format(*subscription.recovery.mark_delete or ())
    more = "or more " if ledger.entries is None else ""
    return (
        f"the subscription {subscription.name} stands at {position} and has {count} {more}of its entries left"
    )
