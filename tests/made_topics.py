"""Topics made from a seed, with everything that topics have, and what brute force says about each question.

The record is in a memory store. The entries are made when a search reads them, so that a topic of 20 000
ledgers costs little.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource, RawEntry
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Question
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from pulsar_meta.stores.base import ABSENT
from pulsar_meta.stores.memory import MemoryStore

TOPIC = "persistent://public/default/made"
READ, MISSING, BROKEN = "read", "missing", "broken"


@dataclass(frozen=True)
class Recipe:
    """What a topic is made of. Numbers below 1 are shares: of entries, or of ledgers if the name says so."""

    ledgers: int
    most_entries: int
    without_index: float = 0.0
    gaps: float = 0.0
    batches: float = 0.5
    missing: float = 0.0
    broken: float = 0.0
    ledgers_stepping_back: float = 0.0
    ledgers_without_index: float = 0.0
    ledgers_missing: float = 0.0
    # Ledgers with a first-index property, and how many of these are false.
    ledgers_with_property: float = 0.0
    properties_false: float = 0.0
    first_index: int = 0


@dataclass(frozen=True)
class MadeEntry:
    """One entry: `first` and `last` are None if it has no broker metadata."""

    ledger_id: int
    entry_id: int
    state: str
    first: int | None
    last: int | None
    time: int

    @property
    def is_indexed(self) -> bool:
        """True if a search can read an index from it."""
        return self.state == READ and self.last is not None


@dataclass
class MadeTopic:
    """A topic's entries in reading order, and the properties of its ledgers."""

    entries: list[MadeEntry] = field(default_factory=list)
    ledgers: dict[int, list[MadeEntry]] = field(default_factory=dict)
    properties: dict[int, int] = field(default_factory=dict)
    steps_back: bool = False

    def store(self) -> MemoryStore:
        """Return a store with the record of the topic."""
        info = ManagedLedgerInfo()
        for ledger_id, entries in self.ledgers.items():
            closed = entries[-1].time if entries else 1
            ledger = info.ledgerInfo.add(ledgerId=ledger_id, entries=len(entries), timestamp=closed)
            if ledger_id in self.properties:
                ledger.properties.add(key="first-index", value=str(self.properties[ledger_id]))
        store = MemoryStore()
        store.put(TopicName.parse(TOPIC).path, info.SerializeToString(), ABSENT)
        return store


def make_topic(recipe: Recipe, seed: int) -> MadeTopic:
    """Return the topic that a recipe and a seed make."""
    dice, made = random.Random(seed), MadeTopic()
    index, time = recipe.first_index, 1_000_000
    for number in range(recipe.ledgers):
        ledger_id = 10 + 3 * number
        if index > recipe.first_index and dice.random() < recipe.ledgers_stepping_back:
            index, made.steps_back = dice.randrange(recipe.first_index, index), True
        if dice.random() < recipe.ledgers_with_property:
            false = dice.random() < recipe.properties_false
            made.properties[ledger_id] = dice.randrange(2 * index + 10) if false else index
        lost = dice.random() < recipe.ledgers_missing
        silent = dice.random() < recipe.ledgers_without_index
        entries = made.ledgers.setdefault(ledger_id, [])
        for entry_id in range(dice.randint(0, recipe.most_entries)):
            time += dice.randrange(4)
            index += dice.randrange(1, 6) if dice.random() < recipe.gaps else 0
            size = dice.randint(2, 9) if dice.random() < recipe.batches else 1
            fate = dice.random()
            state = MISSING if lost or fate < recipe.missing else READ
            state = BROKEN if recipe.missing <= fate < recipe.missing + recipe.broken else state
            if silent or dice.random() < recipe.without_index:
                entries.append(MadeEntry(ledger_id, entry_id, state, None, None, time))
                continue
            entries.append(MadeEntry(ledger_id, entry_id, state, index, index + size - 1, time))
            index += size
        made.entries += entries
    return made


class MadeEntries(EntrySource):
    """The entries of a made topic as a bookie has them; `reads` counts the entries that were read."""

    def __init__(self, topic: MadeTopic, entries_per_read: int = 1) -> None:
        self.url = "made:"
        self.topic = topic
        self.entries_per_read = entries_per_read
        self.reads = 0

    def ledgers(self) -> list[int]:
        return [ledger for ledger in self.topic.ledgers if self.last_entry(ledger) is not None]

    def last_entry(self, ledger_id: int) -> int | None:
        entries = reversed(self.topic.ledgers[ledger_id])
        return next((entry.entry_id for entry in entries if entry.state != MISSING), None)

    def read(self, ledger_id: int, entry_id: int) -> RawEntry:
        entries = self.topic.ledgers[ledger_id]
        if not 0 <= entry_id < len(entries) or entries[entry_id].state == MISSING:
            raise NotFoundError(f"no entry {ledger_id}:{entry_id}", source=self.url)
        self.reads += 1
        return RawEntry(ledger_id, entry_id, encoded(entries[entry_id]))

    def entry_ids(self, ledger_id: int, first: int = 0, last: int | None = None) -> Iterator[int]:
        entries = self.topic.ledgers[ledger_id][first : None if last is None else last + 1]
        return (entry.entry_id for entry in entries if entry.state != MISSING)


def encoded(entry: MadeEntry) -> bytes:
    """Return a bookie's entry with the header that brokers write; a broken one has a wrong digest."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=entry.time)
    broker = None
    if entry.first is not None and entry.last is not None:
        broker = BrokerEntryMetadata(broker_timestamp=entry.time, index=entry.last)
        if entry.last > entry.first:
            metadata.num_messages_in_batch = entry.last - entry.first + 1
    frame = encode_frame(metadata, b"", broker_metadata=broker)
    data = encode_bookie_entry(entry.ledger_id, entry.entry_id, entry.entry_id - 1, len(frame), frame)
    return data if entry.state != BROKEN else data[:-1] + bytes([data[-1] ^ 1])


class BruteForce:
    """What every entry of a topic says about a question."""

    def __init__(self, topic: MadeTopic) -> None:
        self.topic = topic
        self.indexed = [
            at for at, one in enumerate(topic.entries) if one.state == READ and one.last is not None
        ]
        self.holders: dict[int, list[MadeEntry]] = {}
        for at in self.indexed:
            entry = topic.entries[at]
            for index in range(entry.first or 0, (entry.last or 0) + 1):
                self.holders.setdefault(index, []).append(entry)
        self.lasts = [topic.entries[at].last or 0 for at in self.indexed]
        self.readable = [at for at, one in enumerate(topic.entries) if one.state == READ]
        self.times = [topic.entries[at].time for at in self.readable]

    def wrong(self, question: Question, answer: Document) -> str | None:
        """Return what is wrong with an answer, None if it is right. `unknown` is right if it says why."""
        if answer["status"] == "unknown":
            return None if "--exhaustive" in answer.get("reason", "") else f"no reason: {answer}"
        entries, statuses = self.expected(question)
        place = (answer.get("ledger_id"), answer.get("entry_id"))
        if entries and answer["status"] == "found" and place in [(e.ledger_id, e.entry_id) for e in entries]:
            return None
        if not entries and answer["status"] in statuses and place == (None, None):
            return None
        return f"{question.kind} {question.target}: {answer}, expected {entries or statuses}"

    def expected(self, question: Question) -> tuple[list[MadeEntry], set[str]]:
        """Return the entries that are right answers, and if there are none the statuses that are."""
        if question.kind == TIME:
            return self._by_time(question.target)
        if question.target in self.holders:
            return self.holders[question.target], set()
        if self.topic.steps_back:
            return [], self._somewhere(question.target)
        at = bisect_left(self.lasts, question.target)
        start = self.indexed[at - 1] + 1 if at else 0
        stop = self.indexed[at] if at < len(self.indexed) else len(self.topic.entries)
        obstacle = obstacle_of(self.topic.entries[start:stop])
        nowhere = "after-last" if at == len(self.indexed) else "gap" if at else "before-first"
        return [], {obstacle or nowhere}

    def _somewhere(self, index: int) -> set[str]:
        """Return the statuses of an absent index if indexes step back: it may belong to several places."""
        firsts = [self.topic.entries[at].first or 0 for at in self.indexed]
        above, below = index > max(self.lasts, default=-1), index < min(firsts, default=index + 1)
        places = [
            obstacle_of([entry]) for entry in self.topic.entries if entry.state != READ or entry.last is None
        ]
        return {"after-last" if above else "before-first" if below else "gap"} | {str(one) for one in places}

    def _by_time(self, time: int) -> tuple[list[MadeEntry], set[str]]:
        at = bisect_left(self.times, time)
        start = self.readable[at - 1] + 1 if at else 0
        stop = self.readable[at] if at < len(self.readable) else len(self.topic.entries)
        obstacle = obstacle_of(self.topic.entries[start:stop])
        if obstacle is not None or at == len(self.readable):
            return [], {obstacle or "after-last"}
        return [self.topic.entries[self.readable[at]]], set()


def obstacle_of(entries: list[MadeEntry]) -> str | None:
    """Return the status that entries between two samples give an absent index or time."""
    if any(entry.state == MISSING for entry in entries):
        return "missing-ledger"
    if any(entry.state == BROKEN for entry in entries):
        return "unreadable"
    return "no-index" if entries else None


def ask_about(topic: MadeTopic, count: int, seed: int, *, times: float = 0.2) -> list[Question]:
    """Return questions about indexes and times that the topic has, and that it lacks, each at most once."""
    dice = random.Random(seed)
    highest = max((entry.last for entry in topic.entries if entry.last is not None), default=10)
    latest = topic.entries[-1].time if topic.entries else 1_000_010
    questions = {}
    for _ in range(count):
        by_time = dice.random() < times
        target = dice.randrange(999_990, latest + 10) if by_time else dice.randrange(highest + 20)
        questions[by_time, target] = Question(TOPIC, TIME if by_time else INDEX, target)
    return list(questions.values())
