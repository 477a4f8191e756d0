"""One run of the doctor: a pass over the store, and a second look at what that suspects."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.codecs.times import iso_time
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_disk import split_url
from pulsar_meta.entries.bookie_layout import BookieLayout, find_bookies
from pulsar_meta.jobs.check.bookies import bookie_findings
from pulsar_meta.jobs.check.catalogue import CODES, ENTRIES, GROUPS
from pulsar_meta.jobs.check.cluster import SYSTEM_TOPIC, Namespaces, blocked, generator
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.cookies import cookies
from pulsar_meta.jobs.check.cursors import IDLE, is_internal
from pulsar_meta.jobs.check.listing import ROLES, Listing, list_ledgers, mark_of, read_facts
from pulsar_meta.jobs.check.orphans import Orphans
from pulsar_meta.jobs.check.records import (
    DEFAULT_LIMIT,
    LOST,
    PARTITIONED,
    UNDECODABLE,
    WRONG_KIND,
    value_findings,
)
from pulsar_meta.jobs.check.repairs import with_repair
from pulsar_meta.jobs.check.schemas import VERSION_MISSING, SchemaVersions, schema_ledgers
from pulsar_meta.jobs.check.scope import CheckScope, check_scope
from pulsar_meta.jobs.check.segments import segment_findings
from pulsar_meta.jobs.check.sight import (
    Check,
    Cluster,
    Created,
    Reader,
    Sight,
    cursor_sight,
    topic_sight,
)
from pulsar_meta.jobs.check.tiered import OBJECT_ORPHAN, offload_mark, orphan_objects
from pulsar_meta.jobs.entries.entry_sources import LIVE
from pulsar_meta.jobs.rewrite.readable import registered_versions
from pulsar_meta.jobs.rewrite.releases import is_release
from pulsar_meta.jobs.seek.questions import parse_time
from pulsar_meta.jobs.topics.owners import named_by, named_by_cursor
from pulsar_meta.jobs.topics.segments import ScalableTopics
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.stores.base import Store, Versioned

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Topics that are kept at hand for the cursors that follow them.
TOPICS_AT_HAND: Final = 512
# So many cursors of a topic are looked at together.
CURSORS_AT_ONCE: Final = 256
DISK: Final = "bookie-disk:"
_DATA: Final = ROLES.index("data")
# Where none of these is wanted no entry has to be looked for.
_OF_ENTRIES: Final = frozenset(
    (*(code.name for code in GROUPS[ENTRIES].codes), SYSTEM_TOPIC.name, VERSION_MISSING.name)
)
# What entries prove, those of cursors' ledgers among them.
_SEEN_ON_BOOKIES: Final = _OF_ENTRIES | {code.name for code in GROUPS["cursors"].codes}
Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What a run looks for: the codes, and how old (ms) an orphan is at least.

    `releases` have to load what is there; none: those of the registered brokers. `idle` is how long (ms) a
    subscription may go unused.
    """

    wanted: frozenset[str] = frozenset(CODES)
    min_age: int = 24 * 3600 * 1000
    releases: tuple[str, ...] = ()
    idle: int = 30 * 24 * 3_600_000


class _CursorRecord(NamedTuple):
    """A record, and whose it is."""

    record: Versioned
    topic: TopicName
    cursor: str


@dataclass(slots=True)
class Checkup:
    """A run over a scope of a store; counts what it looks at, and says what it could not.

    `wanted` are the names of codes. `checked` counts by plural nouns; `not_checked` has a reason each.
    `unreachable` is the first answer of a bookie that did not come.
    """

    store: Store
    cluster: Cluster
    listing: Listing
    scope: CheckScope
    wanted: frozenset[str]
    advance: Callable[[int], None] = lambda count: None
    disks: Sequence[BookieLayout] = ()
    checked: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("topics", "cursors", "schemas"), 0)
    )
    not_checked: dict[str, str] = field(default_factory=dict)
    unreachable: UnreachableError | None = None
    _without_answer: int = 0
    _named: array[int] = field(default_factory=lambda: array("q"))
    _topics: array[int] = field(default_factory=lambda: array("Q"))
    _reported: set[str] = field(default_factory=set)
    _attributed: set[int] = field(default_factory=set)
    _told: set[int] = field(default_factory=set)
    _at_hand: OrderedDict[str, Sight] = field(default_factory=OrderedDict)
    _counts: dict[str, int] = field(default_factory=dict)
    _partitions: OrderedDict[str, int | None] = field(default_factory=OrderedDict)
    _segments: list[TopicName] = field(default_factory=list)
    _namespaces: Namespaces = field(default_factory=Namespaces)
    _offloaded: array[int] = field(default_factory=lambda: array("q"))
    _chosen: dict[bool, list[Check]] = field(default_factory=dict)
    _unread_topics: int = 0
    _without_activity: int = 0
    _scalable: ScalableTopics = field(init=False)

    def __post_init__(self) -> None:
        self._scalable = ScalableTopics(self.store)

    @property
    def looked_at(self) -> dict[str, int]:
        """How many of what were looked at, by plural nouns; ledgers first."""
        return {"ledgers": len(self.listing.rows), **self.checked}

    @property
    def reader(self) -> Reader:
        """What reads topics again."""
        return Reader(self.store, self.cluster, self.listing)

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, as it is found."""
        for finding in chain(
            self._values(),
            self._managed_ledgers(),
            self._without_record(),
            self._of_segments(),
            self._broken_ledgers(),
            self._of_everything(),
        ):
            self._told.add(finding.ledger_id or 0)
            if finding.code in self.wanted:
                yield with_repair(self._of_scalable(self._decided(finding)))
        if self._without_activity and IDLE.name in self.wanted:
            why = "nobody wrote down when they were last active"
            self.not_checked[f"whether {self._without_activity} subscriptions are idle"] = why
        if self._without_answer:
            why = "their bookies did not answer"
            self.not_checked[f"entries of {self._without_answer} topics and cursors"] = why

    def _of_scalable(self, finding: Finding) -> Finding:
        """Return the finding with the scalable topic that it is about, or of which its topic is a segment."""
        with suppress(UsageError):
            topic = None if finding.topic is None else TopicName.parse(finding.topic)
            if topic is not None:
                found = str(topic) if topic.domain == "topic" else self._scalable.of([topic])[topic]
                return finding if found is None else replace(finding, scalable_topic=found)
        return finding

    def _decided(self, finding: Finding) -> Finding:
        """Return the finding; no error where running bookies may have gone on from a copy of the store."""
        beside_a_copy = self.cluster.asks_bookies and not self.cluster.live
        if (
            not beside_a_copy
            or finding.severity is not Severity.ERROR
            or finding.code not in _SEEN_ON_BOOKIES
        ):
            return finding
        message = f"{finding.message}; undecided: the store is a copy, and its bookies run"
        return replace(finding, severity=Severity.WARNING, message=message)

    def _values(self) -> Iterator[Finding]:
        """Check what /admin and /schemas have."""
        for record in chain.from_iterable(map(self.store.scan, self.scope.value_prefixes)):
            self.advance(1)
            self._note_partitions(record)
            self._namespaces.note(record.path, record.value)
            schema = record.path.startswith("/schemas/")
            self.checked["schemas"] += schema
            if schema:
                self._note_named(record)
            found = list(value_findings(record, self.cluster))
            if found and self._still(record):
                yield from found
            yield from schema_ledgers(record, self.store, self.cluster, self.listing)

    def _note_partitions(self, record: Versioned) -> None:
        """Keep how many partitions a topic has, so that each of them need not ask; 0 where that is broken."""
        if record.path.startswith(PARTITIONED) and record.value:
            count = None
            with suppress(DecodeError):
                count = read_json_object(record.value).get("partitions")
            if count != 0:
                self._counts[record.path] = count if type(count) is int else 0

    def _still(self, record: Versioned) -> bool:
        """Return whether a record is as it was, and no parent that only looks like a record."""
        with suppress(NotFoundError):
            again = self.store.read(record.path)
            return again.value == record.value and (
                again.value != b"" or not self.store.children(record.path)
            )
        return False

    def _managed_ledgers(self) -> Iterator[Finding]:
        waiting: list[_CursorRecord] = []
        waiting_for = ""
        for record in chain.from_iterable(map(self.store.scan, self.scope.topic_prefixes)):
            self.advance(1)
            place = managed_place(record.path, record.value)
            if place is None or not self.scope.holds(*place):
                continue
            name, cursor = place
            topic_path = record.path.rpartition("/")[0]
            if waiting and (topic_path != waiting_for or len(waiting) == CURSORS_AT_ONCE):
                yield from self._even_without_entries(partial(self._cursors, waiting))
                waiting = []
            if cursor is None:
                self.checked["topics"] += 1
                self._namespaces.others.setdefault(name.namespace_name, record.path)
                yield from self._even_without_entries(partial(self._topic, record, name))
            else:
                self.checked["cursors"] += 1
                waiting_for = topic_path
                waiting.append(_CursorRecord(record, name, cursor))
        if waiting:
            yield from self._even_without_entries(partial(self._cursors, waiting))

    def _topic(self, record: Versioned, name: TopicName) -> Iterator[Finding]:
        """Look at what one record and the listing say of a topic."""
        if name.domain == "segment":
            self._segments.append(name)
        self._topics.append(mark_of("data", str(name)))
        seen = self._sight(name, record)
        self._named.extend(ledger.ledger_id for ledger in seen.ledgers)
        _keep(self._at_hand, record.path, seen)
        return self._judged(seen)

    def _cursors(self, records: Sequence[_CursorRecord]) -> Iterator[Finding]:
        """Look at some cursors of one topic."""
        source, name = self.cluster.source, records[0].topic
        seen = [cursor_sight(one.record, one.cursor, source) for one in records]
        for cursor in seen:
            if cursor.info is not None:
                self._without_activity += not cursor.info.lastActive and not is_internal(cursor.name)
                named = named_by_cursor(
                    cursor.path, "", cursor.name, cursor.info, source, lambda path, why: None
                )
                self._named.extend(owner.ledger_id for owner in named)
        topic = self._topic_of(name, records[0].record.path.rpartition("/")[0])
        return self._judged(replace(topic, cluster=self.cluster, cursors=tuple(seen)))

    def _even_without_entries(self, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
        """Return what a look finds; where bookies do not answer, what the store alone says.

        UnreachableError from the store.
        """
        cluster = self.cluster
        try:
            return list(look())
        except UnreachableError as error:
            if cluster.source is None:
                raise
            self.unreachable = self.unreachable or error
            self._without_answer += 1
            self.cluster = replace(cluster, source=None)
            return list(look())
        finally:
            self.cluster = cluster

    def _sight(self, name: TopicName, record: Versioned | None) -> Sight:
        created, partitions = Created.of(name, self.listing), self._partitions_of(name)
        sight = topic_sight(name, record, self.cluster, self.listing.facts, (), created, partitions)
        self._unread_topics += sight.fault is not None
        for ledger in sight.ledgers if self.cluster.has_offload else ():
            if ledger.offload is not None:
                self._offloaded.append(offload_mark(ledger.ledger_id, ledger.offload.uuid))
        if not self.cluster.has_offload and any(ledger.offload is not None for ledger in sight.ledgers):
            self.not_checked["offloaded ledgers"] = "no --entries offload:"
        return sight

    def _partitions_of(self, name: TopicName) -> int | None:
        base = name.partitioned
        if base is None or self.scope.everything:
            return None if base is None else self._counts.get(base.partitioned_path)
        if base.path not in self._partitions:
            _keep(self._partitions, base.path, self.reader.partitions(name))
        return self._partitions[base.path]

    def _topic_of(self, name: TopicName, path: str) -> Sight:
        if path not in self._at_hand:
            found: Versioned | None = None
            with suppress(NotFoundError):
                found = self.store.read(path)
            _keep(self._at_hand, path, self._sight(name, found))
        return self._at_hand[path]

    def _judged(self, seen: Sight) -> Iterator[Finding]:
        """Yield what a second look at a topic finds, where the first one has found something."""
        if self._reported and seen.path in self._reported:
            return
        if any(next(check(seen), None) for check in self._checks(seen)):
            yield from self._report(seen.name)

    def _report(self, name: TopicName) -> Iterator[Finding]:
        sight = self.reader.whole(name)
        found: dict[tuple[object, ...], Finding] = {}
        for finding in chain.from_iterable(check(sight) for check in self._checks(sight)):
            place = (finding.code, finding.topic, finding.cursor, finding.ledger_id, finding.path)
            found.setdefault(place, finding)
            if finding.code == UNDECODABLE.name and finding.ledger_id is not None:
                self._attributed.add(finding.ledger_id)
            if finding.code in (LOST.name, WRONG_KIND.name):
                # Nobody names them, and it is known why.
                self._told.update((*sight.owned, *sight.compacted))
        self._reported.add(name.path)
        lasting = list(self._lasting(sight, found.values()))
        yield from lasting
        yield from blocked(sight, lasting, self.store)

    def _lasting(self, sight: Sight, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings but those about entries of ledgers that the topic let go of meanwhile.

        Entries were looked for after its record was read, and a broker that trims writes the record first.
        """
        ours = {ledger.ledger_id for ledger in sight.ledgers}
        for finding in found:
            ledger_id = finding.ledger_id
            may_be_gone = ledger_id in ours and finding.code in _OF_ENTRIES
            if ledger_id is None or not may_be_gone or self.reader.lists(str(sight.name), ledger_id):
                yield finding

    def _checks(self, sight: Sight) -> Sequence[Check]:
        """Return all checks but those of entries that nobody wants: what one finds explains what others do.

        Those that do not look at cursors were made when the topic's record came by.
        """
        all_of_them = sight.whole or not sight.cursors
        if all_of_them not in self._chosen:
            reads = not self.wanted.isdisjoint(_OF_ENTRIES)
            groups = [group for name, group in GROUPS.items() if reads or name != ENTRIES]
            self._chosen[all_of_them] = [
                check for group in groups if all_of_them or group.of_cursors for check in group.checks
            ]
        return self._chosen[all_of_them]

    def _note_named(self, record: Versioned) -> None:
        with suppress(DecodeError):
            for owner in named_by(record, self.cluster.source, lambda path, why: None):
                self._named.append(owner.ledger_id)

    def _without_record(self) -> Iterator[Finding]:
        """Look at the topics that ledgers say they are of, and of which no record came by."""
        for ledger_id in self._strangers():
            owner = read_facts(self.store, [ledger_id])[ledger_id].owner
            if owner is None or owner.role != "data" or "://" not in owner.name:
                continue
            name = TopicName.parse(owner.name)
            if name.path not in self._reported and self.scope.holds(name, None):
                yield from self._even_without_entries(partial(self._report, name))
        for name in self.scope.named:
            if name.path not in self._reported and mark_of("data", str(name)) not in self._topics:
                yield from self._even_without_entries(partial(self._report, name))

    def _of_segments(self) -> Iterator[Finding]:
        if any(code.name in self.wanted for code in GROUPS["segments"].codes):
            yield from segment_findings(self.store, self.scope, self._segments)

    def _strangers(self) -> list[int]:
        """Return a ledger of each owner of data that no topic with a record is."""
        import numpy as np

        rows: NDArray[np.void] = self.listing.rows
        data = rows[rows["role"] == _DATA]
        marks, first = np.unique(data["mark"], return_index=True)
        seen = np.unique(np.frombuffer(self._topics, np.uint64)) if len(self._topics) else marks[:0]
        return [int(one) for one in data["id"][first[~np.isin(marks, seen)]]]

    def _of_everything(self) -> Iterator[Finding]:
        """What only all topics together can say: ledgers that nobody names, bookies, the generator of ids."""
        import numpy as np

        if not self.scope.everything:
            self.not_checked["orphans, bookies"] = "only some topics were asked for"
            return
        yield from self._namespaces.findings(self.store)
        yield from self._orphan_objects()
        if not self.cluster.bookkeeper:
            return
        yield from cookies(self.disks, self.listing)
        yield from bookie_findings(self.store, self.cluster, self.listing)
        orphans = Orphans(self.store, self.cluster, self.listing)
        yield from orphans.findings(np.unique(np.frombuffer(self._named, np.int64)), self._told)
        self.not_checked |= orphans.not_checked
        yield from generator(self.store, self.listing)

    def _orphan_objects(self) -> Iterator[Finding]:
        source = self.cluster.source
        if source is None or not self.cluster.has_offload or OBJECT_ORPHAN.name not in self.wanted:
            return
        if self._unread_topics:
            why = f"{self._unread_topics} records of topics cannot be read, and may name any"
            self.not_checked["objects in tiered storage that nobody names"] = why
            return
        yield from orphan_objects(source, frozenset(self._offloaded))

    def _broken_ledgers(self) -> Iterator[Finding]:
        """Metadata that cannot be decoded, of ledgers that no topic and no cursor names."""
        for ledger_id, error in self.listing.broken.items():
            if self.scope.everything and ledger_id not in self._attributed:
                yield UNDECODABLE.found(
                    f"{error.message}; no topic and no cursor names this ledger",
                    ledger_id=ledger_id,
                    path=ledger_path(ledger_id),
                )


def checkup(
    store: Store,
    source: EntrySource | None,
    names: Sequence[str],
    options: CheckOptions,
    advance: Callable[[int], None] = lambda count: None,
    *,
    urls: Sequence[str] = (),
) -> Checkup:
    """Return a run over topics and namespaces, over everything without names; `/ledgers` is listed at once.

    `urls` are those that `source` was opened from. UsageError, UnreachableError.
    """
    scope = check_scope(store, names)
    listing = list_ledgers(store, advance)
    releases = options.releases or tuple(one for one in registered_versions(store) if is_release(one))
    limit = store.max_value_size or (DEFAULT_LIMIT if store.url.startswith("zk-files:") else None)
    cluster = Cluster(
        source=source,
        asks_bookies=any(url.startswith(f"{LIVE}:") for url in urls),
        has_offload=any(url.startswith("offload:") for url in urls),
        stored=_stored(source),
        idle=options.idle,
        bookkeeper=not listing.empty,
        live=store.networked,
        now=int(time() * 1000) if store.networked else _time_of(store, listing),
        min_age=options.min_age,
        releases=releases,
        certain=bool(options.releases) or store.networked,
        value_limit=limit,
        cookies=listing.cookies,
        registered=listing.registered,
        shadows=ShadowSources(store, many=scope.everything),
        schemas=SchemaVersions(store).of,
    )
    disks = [one for url in urls if url.startswith(DISK) for one in find_bookies(split_url(url)[0])]
    run = Checkup(store, cluster, listing, scope, options.wanted, advance, disks)
    if listing.empty:
        run.not_checked["ledgers"] = "this store has no ledger's metadata"
    if source is None:
        run.not_checked["entries"] = "no --entries"
    if not store.networked:
        run.not_checked |= _since(cluster.now)
    return run


def _stored(source: EntrySource | None) -> frozenset[int]:
    """Return the ledgers that tiered storage has."""
    parts = () if source is None else source.parts
    return frozenset(one for part in parts if part.url.startswith("offload:") for one in part.ledgers())


def _time_of(store: Store, listing: Listing) -> int | None:
    """Return as of when a copy is: when it was taken, else the newest time in it; None where it has none."""
    with suppress(UsageError, TypeError):
        return parse_time(store.origin["taken"]) if "taken" in store.origin else listing.newest
    return listing.newest


def _since(now: int | None) -> dict[str, str]:
    """Return that what happened after a copy was taken is not known."""
    if now is None:
        return {"what changed since": "this is a copy, and nothing in it says how old"}
    hours = max(0, int(time() * 1000) - now) // 3_600_000
    age = f"{hours // 24} days" if hours >= 48 else f"{hours} hours"
    return {f"what changed since {iso_time(now)}": f"this is a copy, {age} old"}


def _keep(kept: OrderedDict[str, Kept], path: str, value: Kept) -> None:
    kept[path] = value
    if len(kept) > TOPICS_AT_HAND:
        kept.popitem(last=False)
