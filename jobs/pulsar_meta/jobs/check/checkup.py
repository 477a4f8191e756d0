"""A run of `check`: passes over the store, confirmation of suspicions, and findings about the whole cluster.

A run over the whole store indexes all ledgers before it reads any record that refers to one. A run over some
topics reads only the ledgers that their records refer to, unless all are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import DISK, layouts_of
from pulsar_meta.jobs.check.broker_records import broker_findings
from pulsar_meta.jobs.check.cases import shared_ledgers
from pulsar_meta.jobs.check.cluster import (
    bookie_findings,
    cookie_findings,
    generator,
    older_store,
    record_findings,
    registration_findings,
    unknown_paths,
)
from pulsar_meta.jobs.check.codes import Finding, Severity, code, finding, with_repair
from pulsar_meta.jobs.check.context import (
    CheckOptions,
    Context,
    is_stream,
    not_visible,
    read_context,
    with_sources,
)
from pulsar_meta.jobs.check.copied_records import COPIED_RECORD
from pulsar_meta.jobs.check.disks import header_findings, index_findings, states_missing
from pulsar_meta.jobs.check.foreign_disks import split_disks
from pulsar_meta.jobs.check.ledger_facts import Ledgers, owner_hash, read_facts
from pulsar_meta.jobs.check.ledger_index import (
    BookieRecords,
    LazyLedgers,
    LedgerIndex,
    are_among,
    in_order,
    index_ledgers,
    read_bookie_records,
)
from pulsar_meta.jobs.check.lost_ledgers import every_list, lost_ledgers, unnamed_on_disks
from pulsar_meta.jobs.check.orphans import Orphans, orphan_objects
from pulsar_meta.jobs.check.recheck import Recheck, SnapshotTiming, depends_on_bookies, depends_on_timing
from pulsar_meta.jobs.check.scan import (
    LocalPasses,
    Passes,
    ScanInput,
    TopicScan,
    ValueScan,
    reads_entries,
    scans_of,
)
from pulsar_meta.jobs.check.scope import CheckScope, check_scope, ensure_found
from pulsar_meta.jobs.check.segments import segment_findings
from pulsar_meta.jobs.check.topic_reader import TopicReader
from pulsar_meta.jobs.check.totals import PartitionCounts, ScanTotals
from pulsar_meta.jobs.check.verdicts import Verdicts
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.evidence import EvidenceReader
from pulsar_meta.jobs.topics.other_clusters import OtherClusters
from pulsar_meta.jobs.topics.related import ScalableTopics
from pulsar_meta.jobs.topics.scope import Scope
from pulsar_meta.stores.base import Store, Versioned
from pulsar_meta.stores.registry import current_store

_OF_COMPACTED: Final = ("compaction-ledger-missing", "compaction-ledger-foreign")
# The number of topics that are checked before all ledgers are indexed, for a quick first answer.
EARLY: Final = 200
# The number of partitioned topics whose numbers of partitions are kept for the partitions that follow.
_REMEMBERED: Final = 512
UNSTEADY: Final = "bookies and store change faster than both can be read"
UNLISTED: Final = "ledgers and topics that no record refers to"


@dataclass(slots=True)
class Checkup:
    """A run over a scope of a store.

    `urls` are those that `source` was opened from; `passes` scans the whole store; `stage` gets the name
    of each part of a run as it begins. `others` are stores of other clusters that share the BookKeeper.
    `foreign` are bookies whose disks are not in `source`, because they may belong to other clusters.
    `context`, `index`, `counts` and `not_checked` are complete once all findings were yielded.
    """

    store: Store
    source: EntrySource | None
    scope: CheckScope
    options: CheckOptions
    passes: Passes
    urls: Sequence[str] = ()
    advance: Callable[[int], None] = lambda count: None
    others: Sequence[Store] = ()
    stage: Callable[[str], None] = lambda name: None
    foreign: Mapping[str, str] = field(default_factory=dict)
    context: Context = field(default_factory=Context)
    totals: ScanTotals = field(default_factory=ScanTotals)
    not_checked: dict[str, str] = field(default_factory=dict)
    _index: LedgerIndex | None = None
    _lazy: LazyLedgers | None = None
    _with_finding: set[int] = field(default_factory=set)
    _absent: list[Scope] = field(init=False)
    _early: set[tuple[object, ...]] = field(default_factory=set)
    _reader: EvidenceReader | None = None
    _scalable: ScalableTopics = field(init=False)
    _timing: SnapshotTiming = field(init=False)

    def __post_init__(self) -> None:
        self._scalable, self._timing = ScalableTopics(self.store), SnapshotTiming(self.store)
        self._absent = list(self.scope.absent)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of checked things by plural nouns, ledgers first."""
        ledgers = 0 if self._index is None else len(self._index)
        ledgers += 0 if self._lazy is None else self._lazy.count
        names = ("topics", "cursors", "schemas")
        return {"ledgers": ledgers, **{name: self.totals.checked[name] for name in names}}

    @property
    def index(self) -> LedgerIndex:
        """All ledgers, once everything was scanned."""
        return index_ledgers(()) if self._index is None else self._index

    @property
    def unreachable(self) -> UnreachableError | None:
        """The first error of a bookie that did not answer."""
        return self.totals.unreachable

    def findings(self) -> Iterator[Finding]:
        """Yield the findings as they are made."""
        recheck = Recheck(self.store, self.source, self.urls, self._scan_again)
        verdicts = Verdicts(
            lambda: self._evidence, self.options.consequences, self.options.wants(COPIED_RECORD)
        )
        main = self._of_store() if self.scope.everything else self._of_topics()
        for each in chain(self._of_first_topics(), main):
            self._with_finding.add(each.ledger_id or 0)
            if not self.options.wants(each.code) or (self._early and each.place in self._early):
                continue
            early = self._index is None and self._lazy is None
            if early and verdicts.is_certain_early(each):
                yield self._complete(verdicts.judge_early(each))
            elif not recheck.postpones(each) and not verdicts.takes(each):
                yield self._complete(each)
        self.stage("reading suspicious records again")
        for each in self._confirmed(recheck):
            if not verdicts.takes(each):
                yield self._complete(each)
        self.stage("comparing evidence")
        for each in self._judged(verdicts):
            if self.options.wants(each.code):
                yield self._complete(each)
        self._explain_gaps()

    def ensure_found(self) -> None:
        """Raise NotFoundError if a name has neither a value nor a finding, or if the store is empty."""
        ensure_found(self.store, self.scope, self._absent)

    @property
    def _evidence(self) -> EvidenceReader:
        """The reader of everything that is known about suspected ledgers."""
        if self._reader is None:
            context = with_sources(self.context, self.store, self.source)
            others = OtherClusters(self.store, self.others)
            self._reader = EvidenceReader(
                self.store, context.on_bookies, context.complete, others, context.stored
            )
        return self._reader

    def _judged(self, verdicts: Verdicts) -> Iterator[Finding]:
        """Yield the findings that need all evidence, and those about what only the disks have."""
        evidence = self._evidence
        if evidence.source is not None and self._reads_entries:
            for each in self._on_disks_alone(evidence):
                verdicts.takes(each)
        if evidence.source is not None and self.scope.everything:
            with current_store(self.store) as store:
                yield from older_store(store, evidence.source, self.index)
        yield from verdicts.findings()
        if self.scope.everything:
            yield from shared_ledgers(evidence, self.totals.referenced)
        self.not_checked |= verdicts.not_checked

    def _on_disks_alone(self, evidence: EvidenceReader) -> Iterator[Finding]:
        """Yield the ledgers that only disks have and a topic misses.

        The disks were opened after the store. A running broker may have created ledgers in between, and may
        have trimmed them since. So the topics' lists are read as they are now.
        """
        referenced = in_order(self.totals.referenced)
        index = self._index

        def is_known(ledger_id: int) -> bool:
            at = int(referenced.searchsorted(ledger_id))
            if at < len(referenced) and int(referenced[at]) == ledger_id:
                return True
            if index is not None:
                return index.facts(ledger_id).metadata != "absent"
            return evidence.ledger(ledger_id).metadata != "absent"

        candidates = unnamed_on_disks(evidence, is_known)
        if not candidates:
            return
        with current_store(self.store) as store:
            topics = (
                topic for topic in every_list(store) if self.scope.holds(TopicName.parse(topic.name), None)
            )
            lost = list(lost_ledgers(evidence, topics, candidates))
            facts = read_facts(store, [each.ledger_id or 0 for each in lost])
            yield from (each for each in lost if facts[each.ledger_id or 0].metadata == "absent")

    def _complete(self, each: Finding) -> Finding:
        """Return the finding with its final severity, its scalable topic and the command that repairs it."""
        self._note_topic(each)
        return with_repair(self._with_scalable_topic(self._decided(each)))

    def _note_topic(self, each: Finding) -> None:
        """Note that a name is not absent, because its topic has a finding."""
        if not self._absent or each.topic is None:
            return
        with suppress(UsageError):
            topic = TopicName.parse(each.topic)
            self._absent = [scope for scope in self._absent if not scope.holds(topic, None)]

    def _confirmed(self, recheck: Recheck) -> Iterator[Finding]:
        topics = len(recheck.topics)
        try:
            for each in recheck.confirmed():
                if self.options.wants(each.code):
                    yield each
        except (UnreachableError, NotFoundError, DecodeError) as error:
            self.not_checked[f"entries of {topics} topics"] = f"can't be read a second time: {error}"
            if isinstance(error, UnreachableError):
                self.totals.unreachable = self.totals.unreachable or error
        if recheck.undecided:
            self.not_checked[f"{recheck.undecided} suspicions"] = UNSTEADY

    def _scan_again(self, store: Store, source: EntrySource | None) -> TopicScan:
        """Return a scan for another look at topics, which adds nothing to the totals."""
        ledgers = LazyLedgers(store) if self._index is None else self._index
        return self._topic_scan(ledgers, ScanTotals(), store, source)

    def _of_first_topics(self) -> Iterator[Finding]:
        """Check the first topics like named ones, because indexing all ledgers takes long.

        With entries, checking a topic takes long, too.
        """
        waits = not self.scope.everything or is_stream(self.store)
        if waits or not has_metadata(self.store):
            return
        self._set_context(read_bookie_records(self.store), bookkeeper=True)
        if self.source is not None:
            return
        scan = self._topic_scan(LazyLedgers(self.store), ScanTotals(), self.store, self.source)
        for each in scan.findings(self.store.scan(MANAGED_LEDGERS), EARLY):
            # Only all ledgers show whether another one has compacted data of the topic.
            if each.code not in _OF_COMPACTED:
                yield each
                self._early.add(each.place)

    def _with_scalable_topic(self, each: Finding) -> Finding:
        """Return the finding with its scalable topic, if its topic is one or is a segment of one."""
        with suppress(UsageError):
            topic = None if each.topic is None else TopicName.parse(each.topic)
            if topic is not None:
                scalable = str(topic) if topic.domain == "topic" else self._scalable.of([topic])[topic]
                return each if scalable is None else replace(each, scalable_topic=scalable)
        return each

    def _of_store(self) -> Iterator[Finding]:
        """Check the whole store."""
        partitions = PartitionCounts()
        self.stage("1/3 policies and brokers")
        yield from self.passes.values(self.context, partitions, self.totals)
        self.stage("2/3 ledgers")
        self._index = index = self.passes.ledgers()
        self._set_context(index.around, bookkeeper=not index.empty)
        yield from self._of_cookies(index)
        given = ScanInput(self.context, index, partitions, self._reads_entries)
        self.stage("3/3 schemas, topics and cursors")
        yield from self.passes.topics(given, self.totals)
        self.context = with_sources(self.context, self.store, self.source)
        _, topics = scans_of(self.store, self.source, given, self.totals)
        yield from self._without_record(topics, index)
        yield from self._of_segments()
        yield from self._broken_ledgers(index)
        yield from self._of_cluster(index)

    def _of_cookies(self, index: LedgerIndex) -> Iterator[Finding]:
        """Yield the disks with a wrong cookie. They come first, because they may explain other findings."""
        if self.context.bookkeeper:
            urls = (url for url in self.urls if url.startswith(DISK))
            disks = [disk for url in urls for disk in layouts_of(url)]
            yield from cookie_findings(disks, index.around)

    def _of_topics(self) -> Iterator[Finding]:
        """Check some topics and namespaces."""
        ledgers: Ledgers
        if self.options.every_ledger:
            ledgers = self._index = index = index_ledgers(self.store.scan(LEDGERS), self.advance)
            self._set_context(index.around, bookkeeper=not index.empty)
        else:
            ledgers = self._lazy = LazyLedgers(self.store, self.advance)
            self._set_context(read_bookie_records(self.store), bookkeeper=has_metadata(self.store))
            self.not_checked[UNLISTED] = "no --all"
        self.not_checked["orphans, bookies"] = "you asked for some topics only"
        topics = self._topic_scan(ledgers, self.totals, self.store, self.source)
        values = ValueScan(self.store, topics.context, self.totals, topics.ledgers, advance=self.advance)
        yield from values.findings(self._scanned(self.scope.value_prefixes))
        yield from topics.findings(self._scanned(self.scope.topic_prefixes))
        yield from self._without_record(topics, self._index)
        yield from self._of_segments()

    def _scanned(self, roots: Iterable[str]) -> Iterator[Versioned]:
        return chain.from_iterable(map(self.store.scan, roots))

    def _set_context(self, around: BookieRecords, *, bookkeeper: bool) -> None:
        self.context = read_context(self.store, self.urls, self.options, around, bookkeeper=bookkeeper)

    @property
    def _reads_entries(self) -> bool:
        """True if a wanted code needs entries to be read."""
        return self.options.wanted is None or any(map(reads_entries, self.options.wanted))

    def _topic_scan(
        self, ledgers: Ledgers, totals: ScanTotals, store: Store, source: EntrySource | None
    ) -> TopicScan:
        """Return a scan of topics that reads everything else as it is needed."""
        context = with_sources(self.context, store, source)
        counts = _CachedCounts(TopicReader(store, context, ledgers))
        return TopicScan(
            store, context, ledgers, self.scope, self._reads_entries, totals, counts.of, self.advance
        )

    def _decided(self, each: Finding) -> Finding:
        """Return an error as a warning if it may only come from the time at which a copy was taken."""
        if each.severity is not Severity.ERROR or self.context.live:
            return each
        if self._compares_with_copy(each):
            why = "the store may be a copy and its bookies are running"
        elif (doing := self._timing.explains(each)) is not None:
            why = f"the broker may have been {doing} when this snapshot was taken (check the store again)"
        else:
            return each
        return replace(each, severity=Severity.WARNING, message=f"{each.message}; undecided, because {why}")

    def _compares_with_copy(self, each: Finding) -> bool:
        """Return True if a finding compares running bookies with a store that may be a copy."""
        if self.context.asks_bookies:
            return depends_on_bookies(each.code)
        ahead = self.source is not None and self.source.is_stale and not self.store.is_stale
        return ahead and each.code != "ledger-without-metadata" and depends_on_timing(each.code)

    def _explain_gaps(self) -> None:
        """Add the reasons for everything that was not checked."""
        totals = self.totals
        self.not_checked |= not_visible(self.store, self.context, self.source)
        self.not_checked |= totals.not_checked
        for bookie, why in self.foreign.items():
            self.not_checked[f"the disks of bookie {bookie}"] = why
        if self.foreign and self.source is None:
            self.not_checked["entries"] = "no disks of this cluster were given"
        if self.source is not None and self._reads_entries:
            self.not_checked["the content of entries"] = "verify-entries reads it"
        if totals.without_activity and self.options.wants("cursor-idle"):
            why = "their last activity was not recorded"
            self.not_checked[f"whether {totals.without_activity} subscriptions are idle"] = why
        if self.context.now is None and totals.checked["cursors"] and self.options.wants("cursor-idle"):
            self.not_checked["which subscriptions are idle"] = "this copy has no date"
        if totals.without_answer:
            why = "their bookies did not answer"
            self.not_checked[f"entries of {totals.without_answer} topics and cursors"] = why

    def _without_record(self, topics: TopicScan, index: LedgerIndex | None) -> Iterator[Finding]:
        """Check topics that own ledgers, or that were named, and whose record was not scanned."""
        for ledger_id in () if index is None else self._ledgers_without_topic(index):
            owner = read_facts(self.store, [ledger_id])[ledger_id].owner
            if owner is None or owner.role != "data" or "://" not in owner.name:
                continue
            name = TopicName.parse(owner.name)
            if owner_hash("data", str(name)) not in self.totals.reported and self.scope.holds(name, None):
                yield from topics.report(name)
        for name in self.scope.named:
            hashed = owner_hash("data", str(name))
            if hashed not in self.totals.reported and hashed not in self.totals.topics:
                yield from topics.report(name)

    def _ledgers_without_topic(self, index: LedgerIndex) -> list[int]:
        """Return one ledger of each topic that owns data and has no record."""
        owners, ledgers = index.data_owners()
        return sorted(ledgers[~are_among(owners, in_order(self.totals.topics))].tolist())

    def _of_segments(self) -> Iterator[Finding]:
        wanted = self.options.wanted
        if wanted is None or any(code(name).group == "segments" for name in wanted):
            yield from segment_findings(self.store, self.scope, self.totals.segments)

    def _of_cluster(self, index: LedgerIndex) -> Iterator[Finding]:
        """Yield findings that need all topics: unreferenced ledgers, bookies, the generator of ids."""
        yield from self.totals.namespaces.findings(self.store)
        yield from broker_findings(self.store)
        yield from unknown_paths(self.store, index.around)
        more = index.around.unknown_count - len(index.around.unknown)
        if more:
            self.not_checked[f"{more} more records below {LEDGERS}"] = "BookKeeper has no such paths"
        yield from self._orphan_objects()
        if self.source is not None and self._reads_entries:
            yield from index_findings(self.context.complete)
            yield from header_findings(self.source)
            yield from states_missing(self.source, index)
        if not self.context.bookkeeper:
            return
        yield from record_findings(index.around)
        yield from bookie_findings(self.store, self.context, index)
        yield from registration_findings(self.store, index.around)
        orphans = Orphans(self.store, self.context, index)
        stated = self._with_finding | self.totals.explained
        yield from orphans.findings(in_order(self.totals.referenced), stated)
        self.not_checked |= orphans.not_checked
        yield from generator(self.store, index)

    def _orphan_objects(self) -> Iterator[Finding]:
        wanted = self.options.wants("offload-object-orphan")
        if self.source is None or not self.context.has_offload or not wanted:
            return
        if self.totals.unread_topics:
            why = f"{self.totals.unread_topics} records of topics can't be read, and may refer to any"
            self.not_checked["unreferenced objects in tiered storage"] = why
            return
        yield from orphan_objects(self.source, frozenset(self.totals.offloaded))

    def _broken_ledgers(self, index: LedgerIndex) -> Iterator[Finding]:
        """Yield metadata that can't be decoded, of ledgers that no topic and no cursor refers to."""
        for ledger_id, error in index.broken.items():
            if ledger_id not in self.totals.attributed:
                yield finding(
                    "record-undecodable",
                    f"{error.message}; no topic and no cursor refers to this ledger",
                    ledger_id=ledger_id,
                    path=ledger_path(ledger_id),
                )


class _CachedCounts:
    """Numbers of partitions, read as they are needed; the last ones are remembered."""

    def __init__(self, reader: TopicReader) -> None:
        self._reader = reader
        self._counts: OrderedDict[str, int | None] = OrderedDict()

    def of(self, name: TopicName) -> int | None:
        """Return the partitions of the topic that `name` is a partition of, None if it has no record."""
        base = name.partitioned
        if base is None:
            return None
        if base.path not in self._counts:
            self._counts[base.path] = self._reader.partitions(name)
            if len(self._counts) > _REMEMBERED:
                self._counts.popitem(last=False)
        return self._counts[base.path]


def checkup(
    store: Store,
    source: EntrySource | None,
    names: Iterable[str],
    options: CheckOptions,
    advance: Callable[[int], None] = lambda count: None,
    *,
    urls: Sequence[str] = (),
    passes: Passes | None = None,
    others: Sequence[Store] = (),
) -> Checkup:
    """Return a run over topics and namespaces, or over the whole store without names.

    `urls` are those that `source` was opened from; `passes` scans a whole store, by default in this process.
    `others` are stores of other clusters that share the BookKeeper.
    Raises UsageError or UnreachableError.
    """
    scope = check_scope(store, tuple(names))
    own, foreign = split_disks(store, source)
    passes = passes or LocalPasses(store, own, advance)
    run = Checkup(store, own, scope, options, passes, urls, advance, others)
    run.foreign = foreign
    return run
