"""A copy of a captured cluster that tests damage, and the findings that `check` must then report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_managed_ledger
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.checkup import checkup
from pulsar_meta.jobs.check.codes import Finding, Severity, all_codes
from pulsar_meta.jobs.check.context import CheckOptions
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.jobs.topics.related import ShadowSources
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.damage.damaged_disks import TIERED, EntryDamage

GARBAGE = b"\xff\xfe\xfd garbage \x00\x01"
NOWHERE = 987_654


class NotApplicableError(Exception):
    """The capture has nothing that can be damaged in this way."""


class Expected(NamedTuple):
    """An expected finding. `where` is the topic's name, or the path if the finding is about no topic."""

    code: str
    where: str
    ledger_id: int | None
    severity: Severity


class Disks(NamedTuple):
    """The disks of a stopped cluster, and the URLs that they were opened from."""

    source: EntrySource
    urls: tuple[str, ...]


class StoreWithIdGenerator(MemoryStore):
    """A store with a ledger id generator; `next_id` is the next id, or None if it is unknown."""

    next_id: int | None = None

    def next_sequence(self, parent: str) -> int | None:
        return self.next_id


@dataclass
class Patient:
    """A copy of a store to be damaged, and the findings expected of the damage so far.

    `touched` names the topics that are already damaged, so that no second damage hides the first. `disks` are
    set if entries are checked, and `damage` is what happened to them. Findings with a code in `undecided` are
    ignored, because the damage makes both results right.
    """

    store: MemoryStore
    rng: Random
    expected: set[Expected] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    disks: Disks | None = None
    damage: EntryDamage = field(default_factory=EntryDamage)
    undecided: set[str] = field(default_factory=set)

    @property
    def entries(self) -> EntrySource | None:
        """The entries that are left."""
        return None if self.disks is None else self.damage.apply_to(self.disks.source)

    def need_entries(self) -> EntrySource:
        """Return the entries that are left.

        Raises NotApplicableError if the trial has no disks.
        """
        if self.entries is None:
            raise NotApplicableError
        return self.entries

    def topics(self) -> list[Topic]:
        """Return the topics that are not damaged yet."""
        places = [split_managed_ledger_path(path) for path in self.store.values]
        names = [place[0] for place in places if place and place[1] is None]
        return [read_topic(self.store, name) for name in names if str(name) not in self.touched]

    def choose(self, fitting: Callable[[Topic], bool]) -> Topic:
        """Choose a fitting topic that is not damaged yet, and reserve it.

        Shadow topics, their sources and segments are left out, because damage to one of them shows at other
        topics too. They have damage functions of their own.
        """
        sources = ShadowSources(self.store)
        source_names = {
            topic.name: sources.of(TopicName.parse(topic.name), topic.properties) for topic in self.topics()
        }
        shadows = {
            name: str(TopicName.parse(source)) for name, source in source_names.items() if source is not None
        }
        shared = {*shadows, *shadows.values()}
        alone = [
            topic
            for topic in self.topics()
            if topic.name not in shared and not topic.name.startswith("segment:")
        ]
        possible = [topic for topic in alone if fitting(topic)]
        if not possible:
            raise NotApplicableError
        chosen = self.rng.choice(possible)
        self.touched.add(chosen.name)
        return chosen

    def claim(self, name: str) -> None:
        """Reserve a part of the cluster for this damage.

        Raises NotApplicableError if other damage has reserved it.
        """
        if name in self.touched:
            raise NotApplicableError
        self.touched.add(name)

    def put(self, path: str, value: bytes) -> None:
        """Write a value, with or without an earlier one."""
        earlier = self.store.values.get(path)
        created, modified = (None, None) if earlier is None else (earlier.created, earlier.modified)
        self.store.values[path] = Versioned(path, value, 1, created, modified)

    def remove(self, path: str) -> None:
        del self.store.values[path]

    def expect(
        self, code: str, topic: Topic | str, ledger_id: int | None = None, severity: Severity | None = None
    ) -> None:
        """Expect a finding; its severity is the code's own unless `severity` is given."""
        where = topic if isinstance(topic, str) else topic.name
        self.expected.add(Expected(code, where, ledger_id, severity or all_codes()[code].severity))

    def info(self, topic: Topic) -> ManagedLedgerInfo:
        """Decode a topic's record."""
        return decode_managed_ledger(self.store.values[topic.path].value)

    def change_metadata(self, ledger_id: int, change: Callable[[LedgerMetadataFormat], None]) -> None:
        """Apply `change` to a ledger's metadata in BookKeeper."""
        path = ledger_path(ledger_id)
        decoded = decode_ledger_metadata(self.store.values[path].value)
        change(decoded.metadata)
        self.put(path, encode_ledger_metadata(decoded))

    def records(self, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
        """Return the paths and records of a topic's cursors."""
        paths = [path for path in self.store.values if path.startswith(f"{topic.path}/")]
        return [(path, decode_cursor(self.store.values[path].value)) for path in paths]

    def cursors(self, topic: Topic) -> list[tuple[str, ManagedCursorInfo]]:
        """Return the paths and records of a topic's cursors whose state is in the record."""
        return [(path, info) for path, info in self.records(topic) if state_of(info, None).state is not None]

    def states(self, topic: Topic) -> list[CursorState]:
        """Return the known states of a topic's cursors."""
        return [state_of(info, self.entries) for _, info in self.records(topic)]

    def severity_of_loss(self, topic: Topic, ledger_id: int) -> Severity:
        """Return a note if every subscription has passed the ledger, else an error."""
        entries = next(ledger.counted for ledger in topic.ledgers if ledger.ledger_id == ledger_id)
        states = self.states(topic)
        past = [state.state is not None and state.mark_delete >= (ledger_id, entries - 1) for state in states]
        return Severity.NOTE if past and all(past) else Severity.ERROR

    def bookkeeper(self, ledger_id: int) -> BookkeeperLedger:
        """Read a ledger's metadata from BookKeeper."""
        return read_bookkeeper_ledger(self.store, ledger_id)


DamageFunction = Callable[[Patient], None]


def by_name(*kinds: DamageFunction) -> dict[str, DamageFunction]:
    """Map damage functions by their names."""
    return {damage.__name__: damage for damage in kinds}


def counted(topic: Topic) -> list[int]:
    """Return the ids of the ledgers that have a count in the list."""
    return [ledger.ledger_id for ledger in topic.ledgers if ledger.counted]


def ordinary(topic: Topic) -> bool:
    """Return True if a topic is neither a system topic nor terminated."""
    return "__" not in topic.name and topic.terminated is None


def has_data(topic: Topic) -> bool:
    """Return True if a topic has closed ledgers with entries before its last, empty one."""
    return ordinary(topic) and bool(counted(topic)) and topic.ledgers[-1].counted == 0


def has_many(topic: Topic) -> bool:
    """Return True if a topic has at least three closed ledgers with entries."""
    return has_data(topic) and len(counted(topic)) >= 3


def healthy_store(folder: Path) -> MemoryStore:
    """Load the store of an unpacked capture into memory."""
    store = MemoryStore()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        store.values = {record.path: record for record in snapshot.scan()}
    return store


def damaged(
    store: MemoryStore, rng: Random, kinds: Sequence[DamageFunction], disks: Disks | None = None
) -> Patient:
    """Return a damaged copy of a store."""
    copy = StoreWithIdGenerator()
    copy.values = dict(store.values)
    patient = Patient(copy, rng, disks=disks)
    for damage in kinds:
        damage(patient)
    return patient


def check_findings(
    store: MemoryStore,
    source: EntrySource | None = None,
    *names: str,
    urls: Sequence[str] = (),
    every_ledger: bool = False,
) -> list[Finding]:
    """Run `check` and return its findings."""
    options = CheckOptions(min_age=0, every_ledger=every_ledger)
    return list(checkup(store, source, names, options, urls=urls).findings())


def all_findings(patient: Patient) -> list[Finding]:
    """Run `check` on the store, the disks and the tiered storage of a patient."""
    urls = () if patient.disks is None else (*patient.disks.urls, TIERED)
    return check_findings(patient.store, patient.entries, urls=urls)


def as_expected(finding: Finding) -> Expected:
    """Reduce a finding to the fields that tests compare."""
    return Expected(finding.code, finding.topic or finding.path or "", finding.ledger_id, finding.severity)
