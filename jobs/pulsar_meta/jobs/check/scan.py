"""Scans of records: each is checked by rules as it comes, and a suspected topic is then read completely.

During a scan, a view of a topic has the record, the cursors that follow it, and the indexed facts about its
ledgers. If a rule finds anything there, the topic is read again, completely, and the same rules decide.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, Protocol

from pulsar_meta.codecs.errors import DecodeError, LimitError, NotFoundError, UnreachableError
from pulsar_meta.codecs.metadata.envelope import ManagedPlaces
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check import coordinators, cursors, entries, ledgers, records, schemas
from pulsar_meta.jobs.check.cluster import blocked
from pulsar_meta.jobs.check.codes import Finding, code
from pulsar_meta.jobs.check.context import ADMIN, Context, with_sources
from pulsar_meta.jobs.check.ledger_facts import Ledgers, owner_hash
from pulsar_meta.jobs.check.ledger_index import LedgerIndex, index_ledgers
from pulsar_meta.jobs.check.namespaces import POLICIES
from pulsar_meta.jobs.check.orphans import offload_hash
from pulsar_meta.jobs.check.plain_topics import PlainTopics
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.check.topic_reader import TopicReader
from pulsar_meta.jobs.check.topic_view import (
    CursorView,
    Rule,
    TopicView,
    is_internal,
    view_cursor,
    view_topic,
)
from pulsar_meta.jobs.check.totals import PartitionCounts, ScanTotals
from pulsar_meta.jobs.topics.owners import SCHEMAS, named_by, named_by_cursor, names_any
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.stores.base import Store, Versioned

# The number of topics whose views are kept for cursors that don't follow their topic's record.
_VIEWS_KEPT: Final = 512
# The number of cursors of one topic that are checked together.
_CURSORS_AT_ONCE: Final = 256


def reads_entries(name: str) -> bool:
    """Return True if findings of a code need entries to be read."""
    return name in ("schema-version-missing", "system-topic-unreadable") or code(name).group == "entries"


def rules(*, with_entries: bool, cursors_only: bool) -> Sequence[Rule]:
    """Return the rules for a view of a topic.

    `cursors_only` selects those that check cursors; the others ran when the topic's record was scanned.
    """
    if cursors_only:
        return records.RULES + cursors.RULES
    entry_rules = entries.RULES + schemas.RULES if with_entries else ()
    others = cursors.RULES + ledgers.OFFLOAD_RULES + coordinators.RULES
    return records.RULES + ledgers.RULES + entry_rules + others


@dataclass(slots=True)
class ValueScan:
    """A scan of records below /admin and of schemas; without `ledgers`, schemas are not checked."""

    store: Store
    context: Context
    totals: ScanTotals
    ledgers: Ledgers | None = None
    partitions: PartitionCounts = field(default_factory=PartitionCounts)
    advance: Callable[[int], None] = lambda count: None

    def findings(self, values: Iterable[Versioned]) -> Iterator[Finding]:
        """Yield the findings about some values."""
        plain = PlainTopics(self.store, self.context)
        for record in values:
            self.advance(1)
            self.totals.namespaces.add_record(record.path, record.value)
            self.partitions.add_record(record)
            findings = list(records.value_findings(record, self.context))
            if findings and self._is_unchanged(record):
                yield from findings
            if record.path.startswith(f"{SCHEMAS}/") and self.ledgers is not None:
                yield from self._schema(record, self.ledgers)
            yield from plain.add_record(record)
        yield from plain.finish()

    def _schema(self, record: Versioned, ledgers: Ledgers) -> Iterator[Finding]:
        self.totals.checked["schemas"] += 1
        owners = []
        with suppress(DecodeError):
            owners = list(named_by(record, None, lambda path, why: None))
        self.totals.referenced.extend(owner.ledger_id for owner in owners)
        if self.context.bookkeeper:
            facts = ledgers.lookup([owner.ledger_id for owner in owners])
            yield from schemas.schema_ledgers(record, self.store, facts)

    def _is_unchanged(self, record: Versioned) -> bool:
        """Return True if a record still has its value, and is not just the empty parent of other records."""
        with suppress(NotFoundError):
            current = self.store.read(record.path)
            return current.value == record.value and (
                current.value != b""
                or (not self.store.children(record.path) and self._is_in_use(record.path))
            )
        return False

    def _is_in_use(self, path: str) -> bool:
        """Return False for an empty node below a tenant without topics: V1 has some for clusters."""
        name = path.removeprefix(POLICIES)
        if not path.startswith(POLICIES) or "/" not in name:
            return True
        return bool(self.store.children(f"{MANAGED_LEDGERS}/{name}"))


def _is_misplaced(path: str, name: TopicName, cursor: str | None) -> bool:
    """Return True if a topic's record is not where brokers look for it."""
    return cursor is None and name.path != path


class _CursorRecord(NamedTuple):
    record: Versioned
    cursor: str


class _TopicRecords(NamedTuple):
    """The record of a topic, if it was just scanned, and some of its cursors' records."""

    name: TopicName
    record: Versioned | None
    cursors: Sequence[_CursorRecord]


@dataclass(slots=True)
class TopicScan:
    """A scan of topics and cursors, which adds to `totals`.

    `partitions` returns the number of partitions of the topic that a name is a partition of.
    """

    store: Store
    context: Context
    ledgers: Ledgers
    scope: CheckScope
    with_entries: bool
    totals: ScanTotals
    partitions: Callable[[TopicName], int | None]
    advance: Callable[[int], None] = lambda count: None
    _views: OrderedDict[str, TopicView] = field(default_factory=OrderedDict)
    _strays: list[Versioned] = field(default_factory=list)

    @property
    def reader(self) -> TopicReader:
        """Reads complete topics with the scan's entry sources."""
        return TopicReader(self.store, self.context, self.ledgers)

    def findings(self, scanned: Iterable[Versioned], topics: int | None = None) -> Iterator[Finding]:
        """Yield the findings about the topics of these records, or about the first `topics` of them."""
        for group in self._grouped(scanned, topics):
            yield from self._with_fallback(partial(self._check, group))
            yield from self._misnamed()
        yield from self._misnamed()

    def _misnamed(self) -> Iterator[Finding]:
        """Yield the findings about records at other paths than those of topics and cursors."""
        while self._strays:
            record = self._strays.pop()
            found = list(records.misnamed(record))
            if not found:
                self.totals.not_checked["records at paths that no broker reads"] = f"one is {record.path}"
            yield from found

    def report(self, name: TopicName) -> Iterator[Finding]:
        """Yield the findings about a topic that is read completely."""
        yield from self._with_fallback(partial(self._report, name))

    def _grouped(self, scanned: Iterable[Versioned], topics: int | None) -> Iterator[_TopicRecords]:
        """Yield a topic's record together with the cursors that follow it."""
        topic: Versioned | None = None
        waiting: list[_CursorRecord] = []
        of: TopicName | None = None
        for record, name, cursor in self._in_scope(scanned, topics):
            if of is not None and (cursor is None or name != of or len(waiting) == _CURSORS_AT_ONCE):
                yield _TopicRecords(of, topic, waiting)
                topic, waiting = None, []
            of = name
            self.totals.checked["topics" if cursor is None else "cursors"] += 1
            if cursor is None:
                topic = record
            else:
                waiting.append(_CursorRecord(record, cursor))
        if of is not None:
            yield _TopicRecords(of, topic, waiting)

    def _in_scope(
        self, scanned: Iterable[Versioned], topics: int | None
    ) -> Iterator[tuple[Versioned, TopicName, str | None]]:
        """Yield records with the topic and cursor that they belong to, up to the given number of topics."""
        places, everything = ManagedPlaces(), self.scope.everything
        for record in scanned:
            self.advance(1)
            place = places.of(record.path, record.value)
            if (place is None and record.value) or (place is not None and _is_misplaced(record.path, *place)):
                parent = TopicName.from_path(record.path.rpartition("/")[0])
                if everything or (parent is not None and self.scope.holds(parent, None)):
                    self._strays.append(record)
                continue
            if place is None or not (everything or self.scope.holds(*place)):
                continue
            if place[1] is None and topics is not None:
                if not topics:
                    return
                topics -= 1
            yield record, *place

    def _with_fallback(self, look: Callable[[Context], Iterable[Finding]]) -> Iterable[Finding]:
        """Return the findings of `look`; if bookies don't answer, those that need only the store.

        Raises UnreachableError if the store does not answer.
        """
        if self.context.source is None:
            return look(self.context)
        try:
            return list(look(self.context))
        except UnreachableError as error:
            self.totals.unreachable = self.totals.unreachable or error
            self.totals.without_answer += 1
            return list(look(replace(self.context, source=None)))

    def _check(self, group: _TopicRecords, context: Context) -> Iterable[Finding]:
        """Check scanned records; if a rule finds anything, return the findings about the complete topic."""
        totals, name = self.totals, group.name
        views = tuple(view_cursor(each.record, each.cursor, context.source) for each in group.cursors)
        for cursor in views:
            self._note_limit(cursor.fault)
        referenced = self._referenced_by(views, context)
        if group.record is not None:
            view = self._view(name, group.record, context)
        else:
            view = self._known_view(name, group.cursors[0].record.path.rpartition("/")[0], context)
        if views:
            facts = self.ledgers.lookup(referenced) if view.topic is None else view.facts
            view = view.with_cursors(context, facts, views)
        if totals.reported and owner_hash("data", str(name)) in totals.reported:
            return ()
        for rule in rules(with_entries=self.with_entries, cursors_only=group.record is None):
            for _ in rule(view):
                return self._report(name, context)
        return ()

    def _view(self, name: TopicName, record: Versioned, context: Context) -> TopicView:
        """Return the view of a scanned record, and add it to the totals."""
        if name.domain == "segment":
            self.totals.segments.append(name)
        self.totals.namespaces.add(name.namespace_name, record.path)
        self.totals.topics.append(owner_hash("data", str(name)))
        view = self._view_of(name, record, context)
        self.totals.referenced.extend([ledger.ledger_id for ledger in view.ledgers])
        self._keep(record.path, view)
        return view

    def _known_view(self, name: TopicName, path: str, context: Context) -> TopicView:
        """Return the view of a topic whose record was scanned earlier, or was not scanned."""
        if path not in self._views:
            record: Versioned | None = None
            with suppress(NotFoundError):
                record = self.store.read(path)
            self._keep(path, self._view_of(name, record, context))
        return self._views[path]

    def _keep(self, path: str, view: TopicView) -> None:
        self._views[path] = view
        if len(self._views) > _VIEWS_KEPT:
            self._views.popitem(last=False)

    def _referenced_by(self, views: Iterable[CursorView], context: Context) -> list[int]:
        """Return the ledgers that cursors refer to."""
        referenced: list[int] = []
        for cursor in views:
            if cursor.info is None:
                continue
            self.totals.without_activity += not cursor.info.lastActive and not is_internal(cursor.name)
            if names_any(cursor.name, cursor.info):
                owners = named_by_cursor(
                    cursor.path, "", cursor.name, cursor.info, context.source, lambda path, why: None
                )
                referenced += [owner.ledger_id for owner in owners]
        self.totals.referenced.extend(referenced)
        return referenced

    def _view_of(self, name: TopicName, record: Versioned | None, context: Context) -> TopicView:
        owned_by = partial(self.ledgers.owned_by, name)
        partitions = self.partitions(coordinators.counted_as(name))
        view = view_topic(name, record, context, self.ledgers.lookup, owned_by, partitions=partitions)
        self.totals.unread_topics += view.fault is not None
        self._note_limit(view.fault)
        for ledger in view.ledgers:
            if ledger.offload is None:
                continue
            if not context.has_offload:
                self.totals.not_checked["offloaded ledgers"] = "no --entries offload:"
                break
            self.totals.offloaded.append(offload_hash(ledger.ledger_id, ledger.offload.uuid))
        return view

    def _note_limit(self, fault: DecodeError | None) -> None:
        if isinstance(fault, LimitError):
            # The ledgers that it refers to are unknown.
            self.totals.unread_topics += 1
            self.totals.not_checked["records that grow too much when they are unpacked"] = fault.message

    def _report(self, name: TopicName, context: Context) -> Iterator[Finding]:
        reader = TopicReader(self.store, context, self.ledgers)
        findings = list(self.findings_of(reader.whole(name)))
        # Only now, because without an answer from bookies the topic is read again.
        self.totals.reported.add(owner_hash("data", str(name)))
        yield from findings

    def findings_of(self, view: TopicView) -> Iterator[Finding]:
        """Yield the findings about a complete topic."""
        findings: dict[tuple[object, ...], Finding] = {}
        chosen = rules(with_entries=self.with_entries, cursors_only=False)
        for finding in chain.from_iterable(rule(view) for rule in chosen):
            findings.setdefault(finding.place, finding)
            if finding.code == "record-undecodable" and finding.ledger_id is not None:
                self.totals.attributed.add(finding.ledger_id)
            if finding.code in ("topic-record-lost", "record-wrong-kind"):
                # The lost list may have referred to offloaded objects, and to the topic's own ledgers.
                self.totals.unread_topics += 1
                self.totals.explained.update((*view.owned, *view.compacted))
            if finding.code == "compaction-ledger-foreign":
                self.totals.explained.update(view.compacted)
        lasting = list(self._lasting(view, findings.values()))
        yield from lasting
        yield from blocked(view, lasting, self.store)

    def _lasting(self, view: TopicView, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings except those that a trimming or deleting broker explains.

        Entries were read after the record, and a broker that trims updates the record first. A broker that
        deletes a topic removes its record last, so its ledgers are gone by then. A cursor's state in a ledger
        was read after the record, too, and may be in a ledger that the broker has created since.
        """
        listed = {ledger.ledger_id for ledger in view.ledgers}
        for finding in findings:
            if finding.code == "topic-record-lost" and not self.reader.still_owned(view):
                continue
            if finding.code == "cursor-beyond-end" and self.reader.has_grown_to(
                view, finding.evidence["mark_delete"][0]
            ):
                continue
            ledger_id = finding.ledger_id
            may_be_trimmed = ledger_id in listed and reads_entries(finding.code)
            if ledger_id is None or not may_be_trimmed or self.reader.lists(str(view.name), ledger_id):
                yield finding


@dataclass(frozen=True, slots=True)
class ScanInput:
    """The input of a scan of topics: the context without sources, all ledgers, all partitioned topics."""

    context: Context
    index: LedgerIndex
    partitions: PartitionCounts
    with_entries: bool


class Passes(Protocol):
    """The passes over a whole store, which add to `totals`. They raise UnreachableError."""

    def values(self, context: Context, partitions: PartitionCounts, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings below /admin, and add partitioned topics to `partitions`."""
        ...

    def ledgers(self) -> LedgerIndex:
        """Index all ledgers."""
        ...

    def topics(self, given: ScanInput, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings about schemas, topics and cursors."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPasses:
    """The passes in this process, one after the other."""

    store: Store
    source: EntrySource | None
    advance: Callable[[int], None] = lambda count: None

    def values(self, context: Context, partitions: PartitionCounts, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings below /admin, and add partitioned topics to `partitions`."""
        scan = ValueScan(self.store, context, totals, partitions=partitions, advance=self.advance)
        yield from scan.findings(self.store.scan(ADMIN))

    def ledgers(self) -> LedgerIndex:
        """Index all ledgers."""
        return index_ledgers(self.store.scan(LEDGERS), self.advance)

    def topics(self, given: ScanInput, totals: ScanTotals) -> Iterator[Finding]:
        """Yield the findings about schemas, topics and cursors."""
        schema_scan, topic_scan = scans_of(self.store, self.source, given, totals, self.advance)
        yield from schema_scan.findings(self.store.scan(SCHEMAS))
        yield from topic_scan.findings(self.store.scan(MANAGED_LEDGERS))


def scans_of(
    store: Store,
    source: EntrySource | None,
    given: ScanInput,
    totals: ScanTotals,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[ValueScan, TopicScan]:
    """Return the scan of schemas and the scan of topics in a whole store."""
    shadows = ShadowSources(store, known=given.partitions.shadows)
    context, index = with_sources(given.context, store, source, shadows), given.index
    return (
        ValueScan(store, context, totals, index, advance=advance),
        TopicScan(
            store, context, index, CheckScope(), given.with_entries, totals, given.partitions.of, advance
        ),
    )
