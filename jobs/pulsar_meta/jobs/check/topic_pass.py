"""The pass over topics and cursors, and the second look at those that it suspects."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from pulsar_meta.codecs.errors import NotFoundError, UnreachableError
from pulsar_meta.codecs.metadata.managed_place import ManagedPlaces
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.check.catalogue import ENTRIES, GROUPS
from pulsar_meta.jobs.check.cluster import SYSTEM_TOPIC, blocked
from pulsar_meta.jobs.check.codes import Finding
from pulsar_meta.jobs.check.cursors import is_internal
from pulsar_meta.jobs.check.facts import Ledgers, mark_of
from pulsar_meta.jobs.check.records import LOST, UNDECODABLE, WRONG_KIND
from pulsar_meta.jobs.check.schemas import VERSION_MISSING
from pulsar_meta.jobs.check.scope import CheckScope
from pulsar_meta.jobs.check.seen import Seen
from pulsar_meta.jobs.check.sight import Check, Cluster, CursorSight, Reader, Sight, cursor_sight, topic_sight
from pulsar_meta.jobs.check.tiered import offload_mark
from pulsar_meta.jobs.topics.owners import named_by_cursor, names_any
from pulsar_meta.stores.base import Store, Versioned

# Topics that are kept at hand for the cursors that follow them.
TOPICS_AT_HAND: Final = 512
# So many cursors of a topic are looked at together.
CURSORS_AT_ONCE: Final = 256
# Where none of these is wanted no entry has to be looked for.
OF_ENTRIES: Final = frozenset(
    (*(code.name for code in GROUPS[ENTRIES].codes), SYSTEM_TOPIC.name, VERSION_MISSING.name)
)
Kept = TypeVar("Kept")


class _CursorRecord(NamedTuple):
    """A record, and the name of its cursor."""

    record: Versioned
    cursor: str


@dataclass(slots=True)
class TopicPass:
    """A pass over some topics of a store, which notes in `seen` what comes by.

    `partitions` says how many partitions the topic has that a name is one of; `wanted` are names of codes.
    """

    store: Store
    cluster: Cluster
    ledgers: Ledgers
    scope: CheckScope
    wanted: frozenset[str]
    seen: Seen
    partitions: Callable[[TopicName], int | None]
    advance: Callable[[int], None] = lambda count: None
    _at_hand: OrderedDict[str, Sight] = field(default_factory=OrderedDict)
    _chosen: dict[bool, list[Check]] = field(default_factory=dict)

    @property
    def reader(self) -> Reader:
        """What reads topics again."""
        return Reader(self.store, self.cluster, self.ledgers)

    def findings(self, records: Iterable[Versioned], topics: int | None = None) -> Iterator[Finding]:
        """Yield what is wrong with the topics of these records, or with the first `topics` of them."""
        topic: Versioned | None = None
        waiting: list[_CursorRecord] = []
        of: TopicName | None = None
        for record, name, cursor in self._meant(records, topics):
            if of is not None and (cursor is None or name != of or len(waiting) == CURSORS_AT_ONCE):
                yield from self._even_without_entries(partial(self._look, of, topic, waiting))
                topic, waiting = None, []
            of = name
            self.seen.checked["topics" if cursor is None else "cursors"] += 1
            if cursor is None:
                topic = record
            else:
                waiting.append(_CursorRecord(record, cursor))
        if of is not None:
            yield from self._even_without_entries(partial(self._look, of, topic, waiting))

    def report(self, name: TopicName) -> Iterator[Finding]:
        """Yield what a second look at a topic finds; where bookies do not answer, what the store says."""
        yield from self._even_without_entries(partial(self._report, name))

    def _meant(
        self, records: Iterable[Versioned], topics: int | None
    ) -> Iterator[tuple[Versioned, TopicName, str | None]]:
        """Yield the records of topics and cursors, and whose they are, up to the end of so many topics."""
        places, everything = ManagedPlaces(), self.scope.everything
        for record in records:
            self.advance(1)
            place = places.of(record.path, record.value)
            if place is None or not (everything or self.scope.holds(*place)):
                continue
            if place[1] is None and topics is not None:
                if not topics:
                    return
                topics -= 1
            yield record, *place

    def _even_without_entries(self, look: Callable[[], Iterable[Finding]]) -> Iterable[Finding]:
        """Return what a look finds; where bookies do not answer, what the store alone says.

        UnreachableError from the store.
        """
        cluster = self.cluster
        if cluster.source is None:
            return look()
        try:
            return list(look())
        except UnreachableError as error:
            self.seen.unreachable = self.seen.unreachable or error
            self.seen.without_answer += 1
            self.cluster = replace(cluster, source=None)
            return list(look())
        finally:
            self.cluster = cluster

    def _look(
        self, name: TopicName, record: Versioned | None, cursors: Sequence[_CursorRecord]
    ) -> Iterable[Finding]:
        """Look at what a topic's record, some of its cursors and BookKeeper's metadata say.

        Where the cursors do not follow the record, or are many, they come without it.
        """
        sights = tuple(cursor_sight(one.record, one.cursor, self.cluster.source) for one in cursors)
        named = self._named_by(sights)
        if record is not None:
            sight = self._first_sight(name, record)
        else:
            sight = self._topic_of(name, cursors[0].record.path.rpartition("/")[0])
        if sights:
            facts = self.ledgers.several(named) if sight.topic is None else sight.facts
            sight = sight.with_cursors(self.cluster, facts, sights)
        return self._judged(sight, self._checks(cursors_alone=record is None))

    def _first_sight(self, name: TopicName, record: Versioned) -> Sight:
        """Return what one record and BookKeeper's metadata say of a topic."""
        if name.domain == "segment":
            self.seen.segments.append(name)
        self.seen.namespaces.has(name.namespace_name, record.path)
        self.seen.topics.append(mark_of("data", str(name)))
        sight = self._sight(name, record)
        self.seen.named.extend([ledger.ledger_id for ledger in sight.ledgers])
        _keep(self._at_hand, record.path, sight)
        return sight

    def _named_by(self, cursors: Iterable[CursorSight]) -> list[int]:
        """Return the ledgers that cursors name."""
        named: list[int] = []
        for cursor in cursors:
            if cursor.info is None:
                continue
            self.seen.without_activity += not cursor.info.lastActive and not is_internal(cursor.name)
            if names_any(cursor.name, cursor.info):
                owners = named_by_cursor(
                    cursor.path, "", cursor.name, cursor.info, self.cluster.source, lambda path, why: None
                )
                named += [owner.ledger_id for owner in owners]
        self.seen.named.extend(named)
        return named

    def _sight(self, name: TopicName, record: Versioned | None) -> Sight:
        created_for = partial(self.ledgers.created, name)
        partitions = self.partitions(name)
        sight = topic_sight(
            name, record, self.cluster, self.ledgers.several, created_for, partitions=partitions
        )
        self.seen.unread_topics += sight.fault is not None
        for ledger in sight.ledgers:
            if ledger.offload is None:
                continue
            if not self.cluster.has_offload:
                self.seen.not_checked["offloaded ledgers"] = "no --entries offload:"
                break
            self.seen.offloaded.append(offload_mark(ledger.ledger_id, ledger.offload.uuid))
        return sight

    def _topic_of(self, name: TopicName, path: str) -> Sight:
        if path not in self._at_hand:
            found: Versioned | None = None
            with suppress(NotFoundError):
                found = self.store.read(path)
            _keep(self._at_hand, path, self._sight(name, found))
        return self._at_hand[path]

    def _judged(self, sight: Sight, checks: Iterable[Check]) -> Iterable[Finding]:
        """Return what a second look at a topic finds, where the first one has found something."""
        if self.seen.reported and mark_of("data", str(sight.name)) in self.seen.reported:
            return ()
        for check in checks:
            for _ in check(sight):
                return self._report(sight.name)
        return ()

    def _report(self, name: TopicName) -> Iterator[Finding]:
        found = list(self.of_whole(self.reader.whole(name)))
        # Not before: bookies that do not answer are left out of another look.
        self.seen.reported.add(mark_of("data", str(name)))
        yield from found

    def of_whole(self, sight: Sight) -> Iterator[Finding]:
        """Yield what is wrong with a topic that was read whole."""
        found: dict[tuple[object, ...], Finding] = {}
        for finding in chain.from_iterable(check(sight) for check in self._checks()):
            found.setdefault(finding.place, finding)
            if finding.code == UNDECODABLE.name and finding.ledger_id is not None:
                self.seen.attributed.add(finding.ledger_id)
            if finding.code in (LOST.name, WRONG_KIND.name):
                # It may have named objects in tiered storage.
                self.seen.unread_topics += 1
                # Nobody names them, and it is known why.
                self.seen.explained.update((*sight.owned, *sight.compacted))
        lasting = list(self._lasting(sight, found.values()))
        yield from lasting
        yield from blocked(sight, lasting, self.store)

    def _lasting(self, sight: Sight, found: Iterable[Finding]) -> Iterator[Finding]:
        """Yield the findings but those about entries of ledgers that the topic let go of meanwhile.

        Entries were looked for after its record was read, and a broker that trims writes the record first.
        Nor is the record of a topic lost that was deleted while it was read, its ledgers with it.
        """
        ours = {ledger.ledger_id for ledger in sight.ledgers}
        for finding in found:
            if finding.code == LOST.name and not self.reader.keeps(sight):
                continue
            ledger_id = finding.ledger_id
            may_be_gone = ledger_id in ours and finding.code in OF_ENTRIES
            if ledger_id is None or not may_be_gone or self.reader.lists(str(sight.name), ledger_id):
                yield finding

    def _checks(self, *, cursors_alone: bool = False) -> Sequence[Check]:
        """Return all checks but those of entries that nobody wants: what one finds explains what others do.

        For `cursors_alone` those that look at cursors: the others were made when the topic's record came by.
        """
        if cursors_alone not in self._chosen:
            reads = not self.wanted.isdisjoint(OF_ENTRIES)
            groups = [group for name, group in GROUPS.items() if reads or name != ENTRIES]
            self._chosen[cursors_alone] = [
                check for group in groups if group.of_cursors or not cursors_alone for check in group.checks
            ]
        return self._chosen[cursors_alone]


def _keep(kept: OrderedDict[str, Kept], path: str, value: Kept) -> None:
    kept[path] = value
    if len(kept) > TOPICS_AT_HAND:
        kept.popitem(last=False)
