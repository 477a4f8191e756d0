"""Seek: from questions (a topic, and an index or a time) to answers (a position, or why there is none).

The metadata says where a topic's entries are (`plan_topic`), a `Seeker` searches among them; a plan is
made of plain values only, so that it can travel to where the entries are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.managed_ledger import decode_managed_ledger, ledgers_by_id
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.cursor_position import mark_delete
from pulsar_meta.jobs.entry_readings import answer
from pulsar_meta.jobs.outline import LedgerSpan, Outline, Position
from pulsar_meta.jobs.readings import CLOCKS, Knowledge, Measure, Reading, by_index
from pulsar_meta.jobs.search import CLOSE_TIME_SKEW, FOUND, UNREADABLE, Outcome, Topic, search
from pulsar_meta.jobs.topics import named_topics
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo
from pulsar_meta.stores.base import Store

# Where `build-index` and `seek` keep a ledger's first index. Pulsar reserves no name (PIP-404).
FIRST_INDEX: Final = "first-index"
INDEX: Final = "index"
NO_TOPIC: Final = "no-topic"
BEGINNING: Final = -(2**63)
# How many entries the metadata does not tell: the source is asked.
OPEN: Final = -1

Document = dict[str, Any]
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for in a topic: an index, a time, or what a time to live has expired by a time."""

    topic: str
    kind: str
    target: int
    time_to_live: int | None = None


@dataclass(frozen=True, slots=True)
class SeekOptions:
    """How to look. `skew` is in milliseconds; positions are exclusive bounds."""

    clock: str = "auto"
    skew: int = CLOSE_TIME_SKEW
    after: Position | None = None
    before: Position | None = None
    cursor: str | None = None
    index_property: str = FIRST_INDEX
    exhaustive: bool = False


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the metadata says of a topic, as plain values; `status` where there is nothing to search."""

    topic: str
    ledgers: tuple[LedgerSpan, ...] = ()
    last_index: int | None = None
    after: Position | None = None
    before: Position | None = None
    status: str | None = None
    reason: str | None = None


def plan_topic(
    store: Store, source: EntrySource, topic: TopicName, options: SeekOptions, note: Note
) -> TopicPlan:
    """Read a topic's metadata; a missing or broken record becomes the plan's status."""
    try:
        info = decode_managed_ledger(store.read(topic.path).value)
    except NotFoundError:
        return TopicPlan(str(topic), status=NO_TOPIC)
    except DecodeError as error:
        return TopicPlan(str(topic), status=UNREADABLE, reason=str(error))
    after = options.after
    if options.cursor is not None:
        passed = mark_delete(store, source, topic, options.cursor, note)
        after = passed if after is None else max(after, passed)
    return TopicPlan(
        str(topic),
        tuple(_spans(info, options.index_property)),
        _number(info.properties, INDEX),
        after,
        options.before,
    )


def _spans(info: ManagedLedgerInfo, index_property: str) -> Iterator[LedgerSpan]:
    ledgers = ledgers_by_id(info)
    for at, ledger in enumerate(ledgers):
        entries = ledger.entries if ledger.HasField("entries") else OPEN
        if entries == 0 and not ledger.timestamp:
            entries = OPEN
        if at == len(ledgers) - 1 and info.terminatedPosition.ledgerId == ledger.ledgerId:
            entries = max(info.terminatedPosition.entryId + 1, 0)
        closed = ledger.timestamp if ledger.HasField("timestamp") else None
        yield LedgerSpan(
            ledger.ledgerId,
            max(entries, OPEN),
            first_index=_number(ledger.properties, index_property),
            closed_at=closed or None,
        )


def _number(properties: Iterable[Any], key: str) -> int | None:
    """Return a property that is a number, None where it is absent, twice there or something else."""
    values = [entry.value for entry in properties if entry.key == key]
    if len(values) == 1 and len(values[0]) <= 20:
        with suppress(ValueError):
            return int(values[0])
    return None


def outline_of(plan: TopicPlan, source: EntrySource) -> Outline:
    """Return a plan's outline, open ledgers counted in the source, bounds applied."""
    spans = []
    for span in plan.ledgers:
        if span.entries == OPEN:
            last = source.last_entry(span.ledger_id)
            span = replace(span, entries=0 if last is None else last + 1)
        spans.append(span)
    outline = Outline(spans, plan.last_index)
    if plan.after is None and plan.before is None:
        return outline
    start = outline.ordinal(Position(plan.after[0], plan.after[1] + 1)) if plan.after else 0
    return outline.between(start, outline.ordinal(plan.before) if plan.before else outline.total)


class Seeker:
    """Answers questions about one topic; what one question read helps the next."""

    def __init__(self, plan: TopicPlan, source: EntrySource, options: SeekOptions) -> None:
        self.plan = plan
        self.source = source
        self.options = options
        self.outline = outline_of(plan, source) if plan.status is None else Outline([])
        self.topics: dict[Measure, Topic] = {}

    def ask(self, question: Question) -> Document:
        """Return the answer as a document (`seek` in commands.md); UnreachableError from the source."""
        head: Document = {"topic": self.plan.topic, question.kind: question.target}
        if self.plan.status is not None:
            reason = {"reason": self.plan.reason} if self.plan.reason else {}
            return {**head, "status": self.plan.status, **reason, "entries_read": 0}
        if question.time_to_live is not None:
            return self._expired(head, question)
        outcome = self._search(by_index if question.kind == INDEX else self._clock, question.target)
        found = self._found(outcome.reading, question) if outcome.reading else {}
        return {**head, "status": outcome.status, **found, "entries_read": outcome.entries_read}

    @property
    def _clock(self) -> Measure:
        return CLOCKS[self.options.clock]

    def _search(self, measure: Measure, target: int) -> Outcome:
        topic = self.topics.get(measure)
        if topic is None:
            reach = getattr(self.source, "entries_per_read", 1)
            topic = Topic(self.outline, Knowledge(measure), reach, self.options.exhaustive)
            self.topics[measure] = topic
        asking = search(topic, target, skew=self.options.skew)
        try:
            request = next(asking)
            while True:
                request = asking.send(answer(self.source, request))
        except StopIteration as done:
            outcome: Outcome = done.value
            return outcome

    def _found(self, reading: Reading, question: Question) -> Document:
        place = 0
        if question.kind == INDEX and reading.first_index is not None:
            place = question.target - reading.first_index
        found: Document = {
            "ledger_id": reading.ledger_id,
            "entry_id": reading.entry_id,
            "batch_index": place if reading.batched else -1,
        }
        for name in ("first_index", "last_index", "broker_timestamp"):
            if getattr(reading, name) is not None:
                found[name] = getattr(reading, name)
        if question.kind != INDEX:
            by_broker = self.options.clock != "publish" and reading.broker_timestamp is not None
            found["clock"] = "broker" if by_broker else "publish"
            if not by_broker:
                found["publish_time"] = reading.publish_time
        return found

    def _expired(self, head: Document, question: Question) -> Document:
        """Return the newest expired entry and whether the oldest is overdue, as brokers decide both.

        Sources: PersistentMessageExpiryMonitor (expired: older than the time to live),
        PersistentTopic.isOldestMessageExpired (half as long again, MESSAGE_EXPIRY_THRESHOLD).
        """
        ttl = question.time_to_live or 0
        oldest = self._search(self._clock, BEGINNING)
        newest = self._search(self._clock, question.target)
        limit = question.target + ttl * 1000 - int(ttl * 1.5) * 1000
        value = self._clock(oldest.reading) if oldest.reading else None
        status, found = newest.status, {}
        if status in (FOUND, "after-last"):
            status = FOUND if newest.before else "after-last" if newest.reading is None else "before-first"
            found = self._found(newest.before, question) if newest.before else {}
        return {
            **head,
            "status": status,
            **found,
            "oldest_expired": value is not None and value[0] < limit,
            "entries_read": oldest.entries_read + newest.entries_read,
        }


def expand(store: Store, questions: Iterable[Question]) -> Iterator[Question]:
    """Yield the questions with the full names of topics, one for each partition of a partitioned topic."""
    names: dict[str, list[str]] = {}
    for question in questions:
        if question.topic not in names:
            parsed = TopicName.parse(question.topic)
            names[question.topic] = [str(topic) for topic in named_topics(store, parsed)]
        for name in names[question.topic]:
            yield replace(question, topic=name)


def seek(
    store: Store, source: EntrySource, questions: Iterable[Question], options: SeekOptions, note: Note
) -> Iterator[Document]:
    """Yield the answers in the order of the questions; `note` is told what a person should know.

    UsageError for a name that is no topic's, NotFoundError for a cursor that does not exist,
    UnreachableError where store or source do not answer.
    """
    seekers: dict[str, Seeker] = {}
    for question in expand(store, questions):
        if question.topic not in seekers:
            plan = plan_topic(store, source, TopicName.parse(question.topic), options, note)
            seekers[question.topic] = Seeker(plan, source, options)
        yield seekers[question.topic].ask(question)


def seek_planned(
    source: EntrySource, plan: TopicPlan, questions: Sequence[Question], options: SeekOptions
) -> list[Document]:
    """Return the answers to questions about one planned topic."""
    seeker = Seeker(plan, source, options)
    return [seeker.ask(question) for question in questions]
