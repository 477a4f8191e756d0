"""A copy of a captured cluster that is wounded, and what the doctor has to find of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from pulsar_meta.codecs.metadata.cursor import decode_cursor
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata, encode_ledger_metadata
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from pulsar_meta.codecs.names import TopicName, ledger_path, split_managed_ledger_path
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.check.catalogue import CODES
from pulsar_meta.jobs.check.codes import Finding, Severity
from pulsar_meta.jobs.check.known import CheckOptions
from pulsar_meta.jobs.check.run import checkup
from pulsar_meta.jobs.topics.bookkeeper import BookkeeperLedger, read_bookkeeper_ledger
from pulsar_meta.jobs.topics.cursors import CursorState, state_of
from pulsar_meta.jobs.topics.shadow import ShadowSources
from pulsar_meta.jobs.topics.topic import Topic, read_topic
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from pulsar_meta.stores.base import Versioned
from pulsar_meta.stores.memory import MemoryStore
from pulsar_meta.stores.registry import open_store
from tests.wounds.disks import TIERED, Damage

GARBAGE = b"\xff\xfe\xfd garbage \x00\x01"
NOWHERE = 987_654


class NotHereError(Exception):
    """The capture has nothing that could be wounded so."""


class Expected(NamedTuple):
    """A finding: its code, its topic (or the path where it is no topic's), its ledger, how bad it is."""

    code: str
    where: str
    ledger_id: int | None
    severity: Severity


class Disks(NamedTuple):
    """The disks of a cluster that was stopped, and the URLs that they were opened from."""

    source: EntrySource
    urls: tuple[str, ...]


class Copy(MemoryStore):
    """A store whose generator of ids can be wounded; `following` is the next one, None for unknown."""

    following: int | None = None

    def next_sequence(self, parent: str) -> int | None:
        return self.following


@dataclass
class Patient:
    """A copy of a store that is wounded, with the topics that can be; `disks` where entries are looked at.

    `undecided` are codes that nobody can decide about after what was done.
    """

    store: MemoryStore
    rng: Random
    expected: set[Expected] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    disks: Disks | None = None
    damage: Damage = field(default_factory=Damage)
    undecided: set[str] = field(default_factory=set)

    @property
    def entries(self) -> EntrySource | None:
        """What is left of the entries."""
        return None if self.disks is None else self.damage.done_to(self.disks.source)

    def need_entries(self) -> EntrySource:
        """Return what is left of the entries; NotHereError where none were given."""
        if self.entries is None:
            raise NotHereError
        return self.entries

    def topics(self) -> list[Topic]:
        """Return the topics that nothing was done to yet."""
        places = [split_managed_ledger_path(path) for path in self.store.values]
        names = [place[0] for place in places if place and place[1] is None]
        return [read_topic(self.store, name) for name in names if str(name) not in self.touched]

    def choose(self, fitting: Callable[[Topic], bool]) -> Topic:
        """Return one of the topics that fit, which no other wound will touch.

        What is done to a topic with shadows, to a shadow or to a segment shows at other topics, too: these
        have wounds of their own.
        """
        sources = ShadowSources(self.store)
        found = {one.name: sources.of(TopicName.parse(one.name), one.properties) for one in self.topics()}
        shadows = {name: str(TopicName.parse(source)) for name, source in found.items() if source is not None}
        shared = {*shadows, *shadows.values()}
        alone = [
            topic
            for topic in self.topics()
            if topic.name not in shared and not topic.name.startswith("segment:")
        ]
        possible = [topic for topic in alone if fitting(topic)]
        if not possible:
            raise NotHereError
        chosen = self.rng.choice(possible)
        self.touched.add(chosen.name)
        return chosen

    def once(self, name: str) -> None:
        """Have no other wound do the same, where there is one of its kind in a cluster."""
        if name in self.touched:
            raise NotHereError
        self.touched.add(name)

    def put(self, path: str, value: bytes) -> None:
        """Write a value whatever was there."""
        held = self.store.values.get(path)
        created, modified = (None, None) if held is None else (held.created, held.modified)
        self.store.values[path] = Versioned(path, value, 1, created, modified)

    def remove(self, path: str) -> None:
        """Remove a value."""
        del self.store.values[path]

    def expect(
        self, code: str, topic: Topic | str, ledger_id: int | None = None, severity: Severity | None = None
    ) -> None:
        """Note what the doctor has to find; as bad as the code can be unless `severity` says otherwise."""
        where = topic if isinstance(topic, str) else topic.name
        self.expected.add(Expected(code, where, ledger_id, severity or CODES[code].severity))

    def info(self, topic: Topic) -> ManagedLedgerInfo:
        """Return the message of a topic's record."""
        return decode_managed_ledger(self.store.values[topic.path].value)

    def metadata(self, ledger_id: int, change: Callable[[LedgerMetadataFormat], None]) -> None:
        """Change what BookKeeper says of a ledger."""
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
        """Return the states of a topic's cursors, as far as they are known."""
        return [state_of(info, self.entries) for _, info in self.records(topic)]

    def if_read(self, topic: Topic, ledger_id: int) -> Severity:
        """Return how bad it is to lose a ledger: a note where every subscription is past it."""
        entries = next(one.counted for one in topic.ledgers if one.ledger_id == ledger_id)
        states = self.states(topic)
        past = [one.state is not None and one.mark_delete >= (ledger_id, entries - 1) for one in states]
        return Severity.NOTE if past and all(past) else Severity.ERROR

    def bookkeeper(self, ledger_id: int) -> BookkeeperLedger:
        """Return what BookKeeper says of a ledger."""
        return read_bookkeeper_ledger(self.store, ledger_id)


Wound = Callable[[Patient], None]


def by_name(*wounds: Wound) -> dict[str, Wound]:
    """Return wounds by the names of their functions."""
    return {wound.__name__: wound for wound in wounds}


def counted(topic: Topic) -> list[int]:
    """Return the ids of the ledgers of which the list has a count."""
    return [ledger.ledger_id for ledger in topic.ledgers if ledger.counted]


def ordinary(topic: Topic) -> bool:
    """Return whether a topic is no system topic and not terminated."""
    return "__" not in topic.name and topic.terminated is None


def has_data(topic: Topic) -> bool:
    """Return whether a topic has closed ledgers with entries before its last one."""
    return ordinary(topic) and bool(counted(topic)) and topic.ledgers[-1].counted == 0


def has_many(topic: Topic) -> bool:
    """Return whether a topic has at least three such ledgers."""
    return has_data(topic) and len(counted(topic)) >= 3


def healthy(folder: Path) -> MemoryStore:
    """Return a copy of a capture's store."""
    store = MemoryStore()
    with open_store(f"snapshot:{folder / 'metadata.ndjson'}") as snapshot:
        store.values = {record.path: record for record in snapshot.scan()}
    return store


def wounded(store: MemoryStore, rng: Random, wounds: Sequence[Wound], disks: Disks | None = None) -> Patient:
    """Return a copy of a store with wounds."""
    copy = Copy()
    copy.values = dict(store.values)
    patient = Patient(copy, rng, disks=disks)
    for wound in wounds:
        wound(patient)
    return patient


def examined(
    store: MemoryStore,
    source: EntrySource | None = None,
    *names: str,
    urls: Sequence[str] = (),
    every_ledger: bool = False,
) -> list[Finding]:
    """Return what the doctor finds."""
    options = CheckOptions(min_age=0, every_ledger=every_ledger)
    return list(checkup(store, source, names, options, urls=urls).findings())


def examined_whole(patient: Patient) -> list[Finding]:
    """Return what the doctor finds with all that a patient has: disks, and tiered storage."""
    urls = () if patient.disks is None else (*patient.disks.urls, TIERED)
    return examined(patient.store, patient.entries, urls=urls)


def place_of(finding: Finding) -> Expected:
    """Return a finding as it is expected."""
    return Expected(finding.code, finding.topic or finding.path or "", finding.ledger_id, finding.severity)
