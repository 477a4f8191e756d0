"""Confirm or explain findings that compare states of two different moments.

Disks of running bookies, and the RocksDB of a running broker, are read as they were when they were opened.
Each look opens both again and reads the store before the disks, because BookKeeper's metadata of a closed
ledger counts entries that were written before. A finding that two looks in a row make is certain. A finding
that came only from a ledger being created, trimmed or deleted in between disappears.

A broker that deletes a topic deletes its ledgers first and its record last, and a schema's ledgers before the
schema's record. While brokers may run, a ledger without metadata is therefore reported only if the record
still refers to it after several looks, with pauses.

A snapshot can't be looked at again. If its cluster was running, it has some topics in the middle of their
creation or deletion. A broker that deletes a topic deletes in this order: the schema's ledgers, the schema's
record, the cursors, the topic's ledgers, the topic's record. Snapshots of ZooKeeper and Oxia are also read
over some time: ledgers first, then topics and cursors, then schemas. So such a snapshot can have the ledgers
of a topic that was deleted a moment later, and records that refer to ledgers that were created after the
ledgers were read. A schema without its ledger stays an error, because `snapshot` itself waits a moment and
reads such a record again, and a lost ledger of a schema is common.

Sources: apache/pulsar PersistentTopic (delete), ManagedLedgerImpl (asyncDelete), BookkeeperSchemaStorage
(deleteSchema).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import sleep
from typing import Final

from pulsar_meta.codecs.names import LEDGERS, TopicName, ledger_of_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.codes import Finding, code
from pulsar_meta.jobs.check.foreign_disks import split_disks
from pulsar_meta.jobs.check.scan import TopicScan, reads_entries
from pulsar_meta.jobs.check.schemas import schema_findings
from pulsar_meta.jobs.entries.entry_sources import open_entry_sources
from pulsar_meta.jobs.values.places import IDGEN
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import current_store

# If a topic changes so fast that no two of these looks agree, its findings stay undecided.
LOOKS: Final = 5
_TOPICS_AT_ONCE: Final = 512
# Looks in a row that have to agree: about disks and copies, and in a live store (with pauses in seconds).
_AGREEING: Final = 2
LIVE_LOOKS: Final = 3
PAUSE: Final = 1.0
# Findings that the deletion of a topic causes for a moment.
_DURING_DELETION: Final = frozenset(("ledger-without-metadata", "leftover", "schema-version-missing"))
# Findings that compare two records, or a record with BookKeeper's metadata.
_COMPARING: Final = frozenset(
    (
        "ledger-without-metadata",
        "ledger-counts-zero",
        "ledger-end-high",
        "ledger-not-listed",
        "topic-record-lost",
    )
)
_Place = tuple[object, ...]


def depends_on_bookies(name: str) -> bool:
    """Return True if entries, including those of cursor ledgers, can change findings of a code."""
    each = code(name)
    return not each.one_record and (reads_entries(name) or each.group == "cursors")


def depends_on_timing(name: str) -> bool:
    """Return True if findings of a code can come from comparing states of two moments."""
    return name in _COMPARING or name in _DURING_DELETION or depends_on_bookies(name)


@dataclass(slots=True)
class Recheck:
    """Collects findings that need confirmation, and looks again at their topics.

    `urls` are those of `source`; `scan_of` makes a scan of a store with an entry source. `undecided` counts
    findings that one look made and the next did not, up to the last look.
    """

    store: Store
    source: EntrySource | None
    urls: Sequence[str]
    scan_of: Callable[[Store, EntrySource | None], TopicScan]
    undecided: int = 0
    topics: dict[TopicName, None] = field(default_factory=dict)
    # The paths of schemas with a missing ledger.
    schemas: dict[str, None] = field(default_factory=dict)
    _latest: list[Finding] = field(default_factory=list)
    _reported: set[_Place] = field(default_factory=set)

    def postpones(self, finding: Finding) -> bool:
        """Return True if a finding needs confirmation; its topic is then looked at again."""
        if finding.code == "schema-ledger-missing" and finding.path is not None:
            if not self.store.may_be_live:
                return False
            self.schemas[finding.path] = None
            return True
        if finding.topic is None or not depends_on_timing(finding.code):
            return False
        if not (
            self._may_be_deletion(finding)
            or self.store.is_stale
            or (self.source is not None and self.source.is_stale)
        ):
            # The topic's next finding may need confirmation. This one is then not reported twice.
            if self._latest and self._latest[0].topic != finding.topic:
                self._latest.clear()
            self._latest.append(finding)
            return False
        self.topics[TopicName.parse(finding.topic)] = None
        self._reported.update(each.place for each in self._latest if each.topic == finding.topic)
        return True

    def confirmed(self) -> Iterator[Finding]:
        """Yield the confirmed findings about the collected topics.

        Raises UnreachableError, NotFoundError or DecodeError if the disks can't be opened again.
        """
        for finding in self.findings(list(self.topics)):
            if finding.place not in self._reported:
                yield finding
        yield from self._schema_findings()

    def findings(self, names: Sequence[TopicName]) -> Iterator[Finding]:
        """Yield the confirmed findings about topics; raises as `confirmed`."""
        for at in range(0, len(names), _TOPICS_AT_ONCE):
            yield from self._findings_of(names[at : at + _TOPICS_AT_ONCE])

    def _findings_of(self, names: Sequence[TopicName]) -> Iterator[Finding]:
        suspected = self._look(names)
        agreeing = dict.fromkeys(suspected, 1)
        certain = set[_Place]()
        for _ in range(LOOKS - 1):
            if not suspected:
                return
            if any(map(self._may_be_deletion, suspected.values())):
                sleep(PAUSE)
            current = self._look(_topics(suspected.values()))
            agreeing = {place: agreeing.get(place, 0) + 1 for place in current}
            for place, finding in current.items():
                needed = LIVE_LOOKS if self._may_be_deletion(finding) else _AGREEING
                if place not in certain and agreeing[place] >= needed:
                    certain.add(place)
                    yield self._with_looks(finding)
            suspected = {place: finding for place, finding in current.items() if place not in certain}
        self.undecided += len(suspected)

    def _schema_findings(self) -> Iterator[Finding]:
        """Yield the findings about the collected schemas that each of several looks makes."""
        confirmed: dict[str, list[Finding]] = {path: [] for path in self.schemas}
        for look in range(LIVE_LOOKS if confirmed else 0):
            if look:
                sleep(PAUSE)
                if not self.store.networked and not self.store.is_stale:
                    # No broker writes to this database.
                    break
            with current_store(self.store) as store:
                findings = {path: list(schema_findings(path, store)) for path in confirmed}
            confirmed = {path: found for path, found in findings.items() if found}
        for found in confirmed.values():
            yield from found

    def _may_be_deletion(self, finding: Finding) -> bool:
        return self.store.networked and finding.code in _DURING_DELETION

    def _with_looks(self, finding: Finding) -> Finding:
        if not self._may_be_deletion(finding):
            return finding
        seconds = round((LIVE_LOOKS - 1) * PAUSE)
        text = f"{finding.message}; this was so at {LIVE_LOOKS} looks within {seconds} seconds"
        return replace(finding, message=text)

    def _look(self, names: Iterable[TopicName]) -> dict[_Place, Finding]:
        with ExitStack() as stack:
            store = stack.enter_context(current_store(self.store))
            reader = self.scan_of(store, self.source).reader
            views = [reader.whole(name) for name in names]
            source = stack.enter_context(open_entry_sources(self.urls, store)) if self.urls else None
            scan = self.scan_of(store, split_disks(store, source)[0])
            findings: dict[_Place, Finding] = {}
            for view in views:
                for finding in scan.findings_of(view.with_entries(scan.context)):
                    if depends_on_timing(finding.code):
                        findings.setdefault(finding.place, finding)
            return findings


def _topics(findings: Iterable[Finding]) -> list[TopicName]:
    return [TopicName.parse(name) for name in sorted({each.topic for each in findings if each.topic})]


@dataclass
class SnapshotTiming:
    """Explains findings by the time at which the snapshot `store` was taken. Other copies explain nothing."""

    store: Store

    def explains(self, each: Finding) -> str | None:
        """Return what the broker may have been doing, None if that does not explain the finding."""
        if not self._is_snapshot:
            return None
        if self._may_be_deletion(each):
            return "deleting the topic"
        if not code(each.code).one_record and any(map(self._is_newer, _ledgers_of(each))):
            return "creating the ledger"
        return None

    @cached_property
    def _is_snapshot(self) -> bool:
        return "taken" in self.store.origin and "store" in self.store.origin

    def _may_be_deletion(self, each: Finding) -> bool:
        match each.code:
            case "topic-record-lost":
                return not each.evidence.get("cursors")
            case "ledger-without-metadata":
                return each.topic is not None and not self.store.children(TopicName.parse(each.topic).path)
        return False

    def _is_newer(self, ledger_id: int) -> bool:
        """Return True if a ledger was created after the snapshot's ledgers were read."""
        return self._next_ledger is not None and ledger_id >= max(self._next_ledger, self._last_ledger + 1)

    @cached_property
    def _next_ledger(self) -> int | None:
        """The id that the next ledger would have had when the snapshot began."""
        return self.store.next_sequence(IDGEN)

    @cached_property
    def _last_ledger(self) -> int:
        paths = (record.path for record in self.store.scan(LEDGERS))
        return max((ledger for path in paths if (ledger := ledger_of_path(path)) is not None), default=-1)


def _ledgers_of(each: Finding) -> list[int]:
    """Return the ledger of a finding, and that of the position it is about."""
    position = each.evidence.get("mark_delete") or ()
    return [ledger for ledger in (each.ledger_id, *position[:1]) if isinstance(ledger, int)]
