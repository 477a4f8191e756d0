"""One run of `check`: passes over the store, a second look at what they suspect, and what only all say.

Of everything all ledgers are listed, before anything that names them is read. Of some topics only the ledgers
that their records name are read, unless the list is asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.bookie_layout import find_bookies, split_url
from pulsar_meta.jobs.check.again import OF_TWO_MOMENTS, SEEN_ON_BOOKIES, LaterLooks
from pulsar_meta.jobs.check.bookies import bookie_findings
from pulsar_meta.jobs.check.by_need import LedgersByNeed, surroundings
from pulsar_meta.jobs.check.catalogue import GROUPS
from pulsar_meta.jobs.check.cluster import generator
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.cookies import cookies
from pulsar_meta.jobs.check.cursors import IDLE
from pulsar_meta.jobs.check.facts import Ledgers, mark_of, read_facts
from pulsar_meta.jobs.check.known import CheckOptions, is_stream, known_of, not_seen, with_sources
from pulsar_meta.jobs.check.ledgers import WITHOUT_METADATA
from pulsar_meta.jobs.check.listing import Listing, Surroundings, list_ledgers
from pulsar_meta.jobs.check.orphans import Orphans
from pulsar_meta.jobs.check.passes import Here, Known, Passes, passes_over
from pulsar_meta.jobs.check.records import UNDECODABLE
from pulsar_meta.jobs.check.repairs import with_repair
from pulsar_meta.jobs.check.rooms import are_among, in_order
from pulsar_meta.jobs.check.scope import CheckScope, check_scope
from pulsar_meta.jobs.check.seen import Seen
from pulsar_meta.jobs.check.segments import segment_findings
from pulsar_meta.jobs.check.sight import Cluster, Reader
from pulsar_meta.jobs.check.tiered import OBJECT_ORPHAN, orphan_objects
from pulsar_meta.jobs.check.topic_pass import TopicPass
from pulsar_meta.jobs.check.value_pass import Partitions, ValuePass
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.segments import ScalableTopics
from pulsar_meta.stores.base import Store, Versioned

DISK: Final = "bookie-disk:"
# So many topics are looked at before all ledgers are listed, for a first answer.
EARLY: Final = 200
# Partitioned topics that are remembered for the partitions that follow them.
_REMEMBERED: Final = 512
UNSTEADY: Final = "what bookies and store say changes faster than both can be read"
UNLISTED: Final = "ledgers and topics that no record names"


@dataclass(slots=True)
class Checkup:
    """A run over a scope of a store; counts what it looks at, and says what it could not.

    `urls` are those that `source` was opened from; `passes` goes over the whole store. `cluster`, `listing`
    and what was not seen are known once the findings come.
    """

    store: Store
    source: EntrySource | None
    scope: CheckScope
    options: CheckOptions
    passes: Passes
    urls: Sequence[str] = ()
    advance: Callable[[int], None] = lambda count: None
    cluster: Cluster = field(default_factory=Cluster)
    seen: Seen = field(default_factory=Seen)
    not_checked: dict[str, str] = field(default_factory=dict)
    _listing: Listing | None = None
    _by_need: LedgersByNeed | None = None
    _reported: set[int] = field(default_factory=set)
    _early: set[tuple[object, ...]] = field(default_factory=set)
    _moving: dict[TopicName, None] = field(default_factory=dict)
    _latest: list[Finding] = field(default_factory=list)
    _said: set[tuple[object, ...]] = field(default_factory=set)
    _scalable: ScalableTopics = field(init=False)

    def __post_init__(self) -> None:
        self._scalable = ScalableTopics(self.store)

    @property
    def looked_at(self) -> dict[str, int]:
        """How many of what were looked at, by plural nouns; ledgers first."""
        ledgers = 0 if self._listing is None else len(self._listing)
        ledgers += 0 if self._by_need is None else self._by_need.count
        names = ("topics", "cursors", "schemas")
        return {"ledgers": ledgers, **{name: self.seen.checked[name] for name in names}}

    @property
    def listing(self) -> Listing:
        """All ledgers, once everything was looked at."""
        return list_ledgers(()) if self._listing is None else self._listing

    @property
    def unreachable(self) -> UnreachableError | None:
        """The first answer of a bookie that did not come."""
        return self.seen.unreachable

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, as it is found."""
        whole = self.scope.everything
        for finding in chain(self._early_ones(), self._of_all() if whole else self._of_some()):
            self._reported.add(finding.ledger_id or 0)
            if finding.code not in self.options.wanted or self._is_early(finding):
                continue
            if self._is_of_two_moments(finding):
                self._put_aside(finding)
            else:
                self._remember(finding)
                yield self._stated(finding)
        yield from map(self._stated, self._later_looks())
        self._say_what_is_not_known()

    def _stated(self, finding: Finding) -> Finding:
        """Return the finding with what a person needs beside it."""
        return with_repair(self._of_scalable(self._decided(finding)))

    def _is_of_two_moments(self, finding: Finding) -> bool:
        """Return whether a finding may come of entries and metadata that were read as of two moments."""
        if finding.code not in OF_TWO_MOMENTS or finding.topic is None:
            return False
        return self.store.behind or (self.source is not None and self.source.behind)

    def _remember(self, finding: Finding) -> None:
        """Note what is said of a topic: the next of its findings may come after a write."""
        if finding.code in OF_TWO_MOMENTS:
            if self._latest and self._latest[0].topic != finding.topic:
                self._latest.clear()
            self._latest.append(finding)

    def _put_aside(self, finding: Finding) -> None:
        """Have its topic looked at once more; what was said of it before is not said again."""
        self._moving[TopicName.parse(finding.topic or "")] = None
        self._said.update(one.place for one in self._latest if one.topic == finding.topic)

    def _later_looks(self) -> Iterator[Finding]:
        """Look again at the topics about which findings may be of two moments, all of it opened anew."""
        looks = LaterLooks(self.store, self.source, self.urls, self._pass_over)
        try:
            for finding in looks.findings(list(self._moving)):
                if finding.code in self.options.wanted and finding.place not in self._said:
                    yield finding
        except (UnreachableError, NotFoundError, DecodeError) as error:
            self.not_checked[f"entries of {len(self._moving)} topics"] = f"no second look: {error}"
            if isinstance(error, UnreachableError):
                self.seen.unreachable = self.seen.unreachable or error
        if looks.undecided:
            self.not_checked[f"{looks.undecided} suspicions"] = UNSTEADY

    def _pass_over(self, store: Store, source: EntrySource | None) -> TopicPass:
        """Return what looks at topics once more, and notes nothing."""
        ledgers = LedgersByNeed(store) if self._listing is None else self._listing
        return self._topic_pass(ledgers, Seen(), store, source)

    def _early_ones(self) -> Iterator[Finding]:
        """Look at the first topics as if they were named, so that an answer does not wait for the list.

        With entries an answer takes its time anyway.
        """
        waits = not self.scope.everything or self.source is not None or is_stream(self.store)
        if waits or not has_metadata(self.store):
            return
        self._know(surroundings(self.store), bookkeeper=True)
        topics = self._topic_pass(LedgersByNeed(self.store), Seen(), self.store, self.source)
        for finding in topics.findings(self.store.scan(MANAGED_LEDGERS), EARLY):
            yield finding
            self._early.add(finding.place)

    def _of_scalable(self, finding: Finding) -> Finding:
        """Return the finding with the scalable topic that it is about, or of which its topic is a segment."""
        with suppress(UsageError):
            topic = None if finding.topic is None else TopicName.parse(finding.topic)
            if topic is not None:
                found = str(topic) if topic.domain == "topic" else self._scalable.of([topic])[topic]
                return finding if found is None else replace(finding, scalable_topic=found)
        return finding

    def _is_early(self, finding: Finding) -> bool:
        """Return whether a finding was there before all ledgers were listed."""
        return bool(self._early) and finding.place in self._early

    def _of_all(self) -> Iterator[Finding]:
        """Look at everything."""
        partitions = Partitions()
        yield from self.passes.values(self.cluster, partitions, self.seen)
        self._listing = listing = self.passes.ledgers()
        self._know(listing.around, bookkeeper=not listing.empty)
        known = Known(self.cluster, listing, partitions, self.options.wanted)
        yield from self.passes.topics(known, self.seen)
        self.cluster = with_sources(self.cluster, self.store, self.source)
        _, topics = passes_over(self.store, self.source, known, self.seen)
        yield from self._without_record(topics, listing)
        yield from self._of_segments()
        yield from self._broken_ledgers(listing)
        yield from self._of_everything(listing)

    def _of_some(self) -> Iterator[Finding]:
        """Look at some topics and namespaces."""
        ledgers: Ledgers
        if self.options.every_ledger:
            ledgers = self._listing = listing = list_ledgers(self.store.scan(LEDGERS), self.advance)
            self._know(listing.around, bookkeeper=not listing.empty)
        else:
            ledgers = self._by_need = LedgersByNeed(self.store, self.advance)
            self._know(surroundings(self.store), bookkeeper=has_metadata(self.store))
            self.not_checked[UNLISTED] = "no --all"
        self.not_checked["orphans, bookies"] = "only some topics were asked for"
        topics = self._topic_pass(ledgers, self.seen, self.store, self.source)
        values = ValuePass(self.store, topics.cluster, self.seen, topics.ledgers, advance=self.advance)
        yield from values.findings(self._scanned(self.scope.value_prefixes))
        yield from topics.findings(self._scanned(self.scope.topic_prefixes))
        yield from self._without_record(topics, self._listing)
        yield from self._of_segments()

    def _scanned(self, roots: Iterable[str]) -> Iterator[Versioned]:
        return chain.from_iterable(map(self.store.scan, roots))

    def _know(self, around: Surroundings, *, bookkeeper: bool) -> None:
        """Take what the store says beside topics."""
        self.cluster = known_of(self.store, self.urls, self.options, around, bookkeeper=bookkeeper)

    def _topic_pass(
        self, ledgers: Ledgers, seen: Seen, store: Store, source: EntrySource | None
    ) -> TopicPass:
        """Return what goes over topics and asks for all else as it needs it."""
        cluster = with_sources(self.cluster, store, source)
        partitions = _Asked(Reader(store, cluster, ledgers))
        return TopicPass(
            store,
            cluster,
            ledgers,
            self.scope,
            self.options.wanted,
            seen,
            partitions.of,
            self.advance,
        )

    def _decided(self, finding: Finding) -> Finding:
        """Return the finding; no error where running bookies may have gone on from a copy of the store."""
        if finding.severity is not Severity.ERROR or self.cluster.live or not self._is_beside_a_copy(finding):
            return finding
        message = f"{finding.message}; undecided: the store may be a copy, and its bookies run"
        return replace(finding, severity=Severity.WARNING, message=message)

    def _is_beside_a_copy(self, finding: Finding) -> bool:
        """Return whether bookies that run had a say in a finding, beside a store that may be a copy.

        What is written while it is read is none; bookies that are asked are ahead of it all the same.
        """
        if self.cluster.asks_bookies:
            return finding.code in SEEN_ON_BOOKIES
        goes_on = self.source is not None and self.source.behind and not self.store.behind
        return goes_on and finding.code in OF_TWO_MOMENTS - {WITHOUT_METADATA.name}

    def _say_what_is_not_known(self) -> None:
        seen = self.seen
        self.not_checked |= not_seen(self.store, self.cluster, self.source)
        self.not_checked |= seen.not_checked
        if seen.without_activity and IDLE.name in self.options.wanted:
            why = "nobody wrote down when they were last active"
            self.not_checked[f"whether {seen.without_activity} subscriptions are idle"] = why
        if self.cluster.now is None and seen.checked["cursors"] and IDLE.name in self.options.wanted:
            self.not_checked["which subscriptions are idle"] = "nothing says when this copy was made"
        if seen.without_answer:
            why = "their bookies did not answer"
            self.not_checked[f"entries of {seen.without_answer} topics and cursors"] = why

    def _without_record(self, topics: TopicPass, listing: Listing | None) -> Iterator[Finding]:
        """Look at the topics that ledgers say they are of, and of which no record came by."""
        for ledger_id in () if listing is None else self._strangers(listing):
            owner = read_facts(self.store, [ledger_id])[ledger_id].owner
            if owner is None or owner.role != "data" or "://" not in owner.name:
                continue
            name = TopicName.parse(owner.name)
            if mark_of("data", str(name)) not in self.seen.reported and self.scope.holds(name, None):
                yield from topics.report(name)
        for name in self.scope.named:
            mark = mark_of("data", str(name))
            if mark not in self.seen.reported and mark not in self.seen.topics:
                yield from topics.report(name)

    def _strangers(self, listing: Listing) -> list[int]:
        """Return a ledger of each owner of data that no topic with a record is."""
        marks, ledgers = listing.data_owners()
        return sorted(ledgers[~are_among(marks, in_order(self.seen.topics))].tolist())

    def _of_segments(self) -> Iterator[Finding]:
        if any(code.name in self.options.wanted for code in GROUPS["segments"].codes):
            yield from segment_findings(self.store, self.scope, self.seen.segments)

    def _of_everything(self, listing: Listing) -> Iterator[Finding]:
        """What only all topics together can say: ledgers that nobody names, bookies, the generator of ids."""
        yield from self.seen.namespaces.findings(self.store)
        yield from self._orphan_objects()
        if not self.cluster.bookkeeper:
            return
        disks = [one for url in self.urls if url.startswith(DISK) for one in find_bookies(split_url(url)[0])]
        yield from cookies(disks, listing.around)
        yield from bookie_findings(self.store, self.cluster, listing)
        orphans = Orphans(self.store, self.cluster, listing)
        yield from orphans.findings(in_order(self.seen.named), self._reported | self.seen.explained)
        self.not_checked |= orphans.not_checked
        yield from generator(self.store, listing)

    def _orphan_objects(self) -> Iterator[Finding]:
        wanted = OBJECT_ORPHAN.name in self.options.wanted
        if self.source is None or not self.cluster.has_offload or not wanted:
            return
        if self.seen.unread_topics:
            why = f"{self.seen.unread_topics} records of topics cannot be read, and may name any"
            self.not_checked["objects in tiered storage that nobody names"] = why
            return
        yield from orphan_objects(self.source, frozenset(self.seen.offloaded))

    def _broken_ledgers(self, listing: Listing) -> Iterator[Finding]:
        """Metadata that cannot be decoded, of ledgers that no topic and no cursor names."""
        for ledger_id, error in listing.broken.items():
            if ledger_id not in self.seen.attributed:
                yield UNDECODABLE.found(
                    f"{error.message}; no topic and no cursor names this ledger",
                    ledger_id=ledger_id,
                    path=ledger_path(ledger_id),
                )


class _Asked:
    """How many partitions topics have, asked for one by one."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._found: OrderedDict[str, int | None] = OrderedDict()

    def of(self, name: TopicName) -> int | None:
        """Return how many partitions the topic has that `name` is one of; None where there is no record."""
        base = name.partitioned
        if base is None:
            return None
        if base.path not in self._found:
            self._found[base.path] = self._reader.partitions(name)
            if len(self._found) > _REMEMBERED:
                self._found.popitem(last=False)
        return self._found[base.path]


def checkup(
    store: Store,
    source: EntrySource | None,
    names: Iterable[str],
    options: CheckOptions,
    advance: Callable[[int], None] = lambda count: None,
    *,
    urls: Sequence[str] = (),
    passes: Passes | None = None,
) -> Checkup:
    """Return a run over topics and namespaces, over everything without names.

    `urls` are those that `source` was opened from; `passes` goes over a whole store, this process without
    it. UsageError, UnreachableError.
    """
    scope = check_scope(store, tuple(names))
    return Checkup(store, source, scope, options, passes or Here(store, source, advance), urls, advance)
