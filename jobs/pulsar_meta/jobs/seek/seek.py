"""Seek: find the entries that hold indexes or times, over topics, namespaces and clusters.

The topic's record says where its entries are (`plan_topic`), and a `Seeker` searches among them. A plan has
only plain values, so that it can travel to the worker that reads the entries.

With `readable`, only entries count that consumers can see: none of an aborted transaction, and none after the
beginning of an open one. Source: Pulsar's TopicTransactionBuffer (maxReadPosition), AbstractBaseDispatcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.questions import INDEX, Note, Question, SeekOptions, expand
from pulsar_meta.jobs.seek.ranges import IndexRange, KeptRanges, ranges_of
from pulsar_meta.jobs.seek.readings import (
    ABORTED,
    AFTER_LAST,
    BEFORE_FIRST,
    CLOCKS,
    FOUND,
    MARKER,
    MISSING,
    NO_TOPIC,
    OPEN,
    UNKNOWN,
    UNREADABLE,
    EntryReader,
    LedgerRange,
    Measure,
    Reading,
    ReadingOrder,
    ReadRequest,
    State,
    Status,
    by_index,
)
from pulsar_meta.jobs.seek.search import Outcome, TopicSearch
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import Recovered, Recovery, read_cursor, recovered
from pulsar_meta.jobs.topics.topic import Ledger, Position, names_of, read_topic
from pulsar_meta.jobs.transactions.outcomes import Transactions, readers_transactions
from pulsar_meta.stores.base import Store

# The record has no number of entries for an open ledger, so the source is asked.
UNCOUNTED: Final = -1
# So many entries are read in one request, to find the next one that consumers can see.
ENTRIES_AT_ONCE: Final = 64
BEGINNING: Final = -(2**63)
_LOST: Final[dict[State, Status]] = {State.MISSING: MISSING, State.UNREADABLE: UNREADABLE}


class FoundEntry(TypedDict, total=False):
    """The entry that was found. By time, `clock` says whose time counted. Times are in milliseconds."""

    ledger_id: int
    entry_id: int
    batch_index: int
    first_index: int
    last_index: int
    broker_timestamp: int
    clock: Literal["broker", "publish"]
    publish_time: int | None
    transaction: str


class Asked(TypedDict):
    """The question; `snapshot` says why a topic may have more entries than were searched."""

    topic: str
    scalable_topic: NotRequired[str]
    index: NotRequired[int]
    time: NotRequired[int]
    snapshot: NotRequired[str]


class GivenEntry(FoundEntry):
    """The status, the entry if one was found, and the number of entries that were read."""

    status: Status
    entries_read: int


class SeekAnswer(Asked, GivenEntry):
    """The answer to a question. `batch_index` is -1 if the entry is no batch."""

    cluster: NotRequired[str]
    reason: NotRequired[str]
    oldest_expired: NotRequired[bool]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The ledgers of a topic, and the bounds of the search. `status` is set if there is nothing to search.

    `snapshot` says why there may be more ledgers (a shadow topic without its source). `transactions` is set
    if only entries count that consumers can see.
    """

    topic: str
    ledgers: tuple[LedgerRange, ...] = ()
    last_index: int | None = None
    after: Position | None = None
    before: Position | None = None
    status: Status | None = None
    reason: str | None = None
    snapshot: str | None = None
    transactions: Transactions | None = None


def plan_topic(
    store: Store, source: EntrySource, topic: TopicName, options: SeekOptions, note: Note
) -> TopicPlan:
    """Read a topic's record. If it is missing or broken, the plan has a status.

    Raises NotFoundError if the cursor of the options does not exist.
    """
    try:
        record = read_topic(store, topic, lambda fault: note(str(fault)))
    except NotFoundError:
        return TopicPlan(str(topic), status=NO_TOPIC)
    except DecodeError as error:
        reason = str(DecodeError(error.message, offset=error.offset))
        return TopicPlan(str(topic), status=UNREADABLE, reason=reason)
    after = options.after
    if options.cursor is not None:
        cursor = _recovered_cursor(store, source, topic, options.cursor, record.ledgers)
        if cursor.recovery.believed == "fails":
            return TopicPlan(str(topic), status=UNREADABLE, reason=cursor.recovery.why)
        if cursor.recovery.believed in ("rewind", "unknown"):
            note(_cursor_note(topic, options.cursor, cursor.recovery))
        mark_delete = cursor.recovery.mark_delete or cursor.state.mark_delete
        after = mark_delete if after is None else max(after, mark_delete)
    plan = replace(
        plan_of_ledgers(record.name, record.ledgers, options.index_property),
        last_index=_number(record.values(INDEX)),
        after=after,
        before=options.before,
        snapshot=record.snapshot,
    )
    if not options.readable:
        return plan
    transactions = readers_transactions(
        store, source, record.name, record.ledgers, lambda error: note(str(error))
    )
    return replace(plan, transactions=transactions)


def _recovered_cursor(
    store: Store, source: EntrySource, topic: TopicName, cursor: str, ledgers: Sequence[Ledger]
) -> Recovered:
    """Return the cursor as it is after a broker has loaded it. Raises NotFoundError and DecodeError."""
    bookkeeper = store if has_metadata(store) else None
    return recovered(read_cursor(store, topic, cursor), bookkeeper, source, ledgers)


def _cursor_note(topic: TopicName, cursor: str, recovery: Recovery) -> str:
    older = "" if recovery.believed == "rewind" else ": its real position may be newer than the one used here"
    return f"{topic}: the cursor {cursor!r}: {recovery.why}{older}"


def plan_of_ledgers(name: str, ledgers: Iterable[Ledger], index_property: str) -> TopicPlan:
    """Return the plan of a topic that has these ledgers, in reading order."""
    return TopicPlan(name, tuple(_ledger_range(ledger, index_property) for ledger in ledgers))


def _ledger_range(ledger: Ledger, index_property: str) -> LedgerRange:
    return LedgerRange(
        ledger.ledger_id,
        UNCOUNTED if ledger.entries is None else ledger.entries,
        first_index=_number(ledger.values(index_property)),
        closed_at=ledger.closed_at,
    )


def _number(values: Sequence[str]) -> int | None:
    """Return the number in a property, None if the property is absent, duplicate or no number."""
    if len(values) == 1 and len(values[0]) <= 20:
        with suppress(ValueError):
            return int(values[0])
    return None


def asked_of(plan: TopicPlan, question: Question) -> Asked:
    """Return the fields of an answer that repeat the question."""
    head: Asked = {**names_of(plan.topic, question.scalable_topic)}
    head[question.kind] = question.target
    if plan.snapshot is not None:
        head["snapshot"] = plan.snapshot
    return head


def reading_order(plan: TopicPlan, source: EntrySource) -> ReadingOrder:
    """Return the reading order of a plan: open ledgers counted in the source, and the bounds applied."""
    spans = []
    for span in plan.ledgers:
        if span.entries == UNCOUNTED:
            last = source.last_entry(span.ledger_id)
            span = replace(span, entries=0 if last is None else last + 1)
        spans.append(span)
    order = ReadingOrder(spans, plan.last_index)
    if plan.after is None and plan.before is None:
        return order
    start = order.ordinal(Position(plan.after[0], plan.after[1] + 1)) if plan.after else 0
    return order.between(start, order.ordinal(plan.before) if plan.before else order.total)


class ReadableEntry(NamedTuple):
    """An entry that consumers can see, or the status that says why there is none."""

    status: Status
    reading: Reading | None
    entries_read: int = 0


def readable_status(reading: Reading, transactions: Transactions) -> Status:
    """Return `found` if consumers can see an entry, else `aborted`, `marker`, `open` or `unknown`.

    `open`: the entry's transaction is open, or one that began before the entry.
    """
    position = Position(reading.ledger_id, reading.entry_id)
    readable = transactions.readable(position, reading.txn, marker=reading.marker)
    if readable is None:
        return UNKNOWN
    if readable:
        return FOUND
    if reading.marker:
        return MARKER
    is_aborted = reading.txn is not None and transactions.outcome(reading.txn) == "aborted"
    return ABORTED if is_aborted else OPEN


def first_readable(
    reading: Reading, order: ReadingOrder, reads: EntryReader, transactions: Transactions
) -> ReadableEntry:
    """Return the first entry from `reading` on that consumers can see. Raises UnreachableError."""
    at = order.ordinal(Position(reading.ledger_id, reading.entry_id))
    readings, entries_read = [reading], 0
    while True:
        for entry in readings:
            status = _LOST.get(entry.state) or readable_status(entry, transactions)
            if status not in (ABORTED, MARKER):
                return ReadableEntry(status, entry if status == FOUND else None, entries_read)
        at += len(readings)
        if at >= order.total:
            return ReadableEntry(AFTER_LAST, None, entries_read)
        first, stop = order.position(at), order.ledger_bounds(at)[1]
        last = first.entry_id + min(ENTRIES_AT_ONCE, stop - at) - 1
        readings = reads.read(ReadRequest(first.ledger_id, first.entry_id, last))
        entries_read += len(readings)


class Seeker:
    """Answers questions about one topic. An entry that one question read is not read again for the next."""

    def __init__(self, plan: TopicPlan, source: EntrySource, options: SeekOptions) -> None:
        self.plan = plan
        self.options = options
        self.reads = EntryReader(source)
        self.order = reading_order(plan, source) if plan.status is None else ReadingOrder([])
        self.searches: dict[Measure, TopicSearch] = {}
        self.ranges: dict[int, IndexRange] = {}

    def read_ranges(self, kept: Mapping[int, IndexRange]) -> list[IndexRange]:
        """Read the index ranges of the ledgers that are not kept, for later questions, and return all."""
        search = TopicSearch(self.order, by_index, self.reads)
        exhaustive, per_read = self.options.exhaustive, self.reads.entries_per_read
        ranges = ranges_of(self.order, search.read, per_read, exhaustive=exhaustive, kept=kept)
        self.ranges = {ledger.ledger_id: ledger for ledger in ranges}
        return ranges

    def ask(self, question: Question) -> SeekAnswer:
        """Return the answer as a document (docs/contract.md). Raises UnreachableError."""
        head = asked_of(self.plan, question)
        if self.plan.status is not None:
            nothing: SeekAnswer = {**head, "status": self.plan.status, "entries_read": 0}
            return nothing | ({"reason": self.plan.reason} if self.plan.reason else {})
        if question.time_to_live is not None:
            return self._expired(head, question)
        outcome = self._search(by_index if question.kind == INDEX else self._clock, question.target)
        if outcome.reading is not None and self.plan.transactions is not None:
            return {**head, **self._readable(outcome, self.plan.transactions, question)}
        entry = self._entry(outcome.reading, question)
        answer: SeekAnswer = {
            **head, "status": outcome.status, **entry, "entries_read": outcome.entries_read
        }  # fmt: skip
        return answer | ({"reason": outcome.limit} if outcome.limit else {})

    def _readable(self, outcome: Outcome, transactions: Transactions, question: Question) -> GivenEntry:
        """Return the entry that has the index, or the first one from the time on, if consumers can see it."""
        reading = outcome.reading
        assert reading is not None
        if question.kind == INDEX:
            status = readable_status(reading, transactions)
            readable = ReadableEntry(status, reading if status == FOUND else None)
        else:
            readable = first_readable(reading, self.order, self.reads, transactions)
        entry = self._entry(readable.reading, question)
        if question.kind == INDEX and reading.txn is not None:
            entry["transaction"] = str(reading.txn)
        entries_read = outcome.entries_read + readable.entries_read
        return {"status": readable.status, **entry, "entries_read": entries_read}

    @property
    def _clock(self) -> Measure:
        return CLOCKS[self.options.clock]

    def _search(self, measure: Measure, target: int) -> Outcome:
        if measure not in self.searches:
            exhaustive = self.options.exhaustive
            self.searches[measure] = TopicSearch(
                self.order, measure, self.reads, exhaustive=exhaustive, kept=self.ranges
            )
        return self.searches[measure].find(target, skew=self.options.skew)

    def _entry(self, reading: Reading | None, question: Question) -> FoundEntry:
        """Return the fields of the answer that describe an entry, none without an entry."""
        if reading is None:
            return {}
        batch_index = 0
        if question.kind == INDEX and reading.first_index is not None:
            batch_index = question.target - reading.first_index
        entry: FoundEntry = {
            "ledger_id": reading.ledger_id,
            "entry_id": reading.entry_id,
            "batch_index": batch_index if reading.batched else -1,
        }
        if reading.first_index is not None:
            entry["first_index"] = reading.first_index
        if reading.last_index is not None:
            entry["last_index"] = reading.last_index
        if reading.broker_timestamp is not None:
            entry["broker_timestamp"] = reading.broker_timestamp
        if question.kind != INDEX:
            by_broker = self.options.clock != "publish" and reading.broker_timestamp is not None
            entry["clock"] = "broker" if by_broker else "publish"
            if not by_broker:
                entry["publish_time"] = reading.publish_time
        return entry

    def _expired(self, head: Asked, question: Question) -> SeekAnswer:
        """Return the newest expired entry, and if the oldest entry is overdue, as brokers decide both.

        Sources: PersistentMessageExpiryMonitor (expired: older than the time to live) and
        PersistentTopic.isOldestMessageExpired (older than 1.5 times that, MESSAGE_EXPIRY_THRESHOLD).
        """
        ttl = question.time_to_live or 0
        oldest = self._search(self._clock, BEGINNING)
        newest = self._search(self._clock, question.target)
        overdue = question.target + ttl * 1000 - int(ttl * 1.5) * 1000
        value = self._clock(oldest.reading) if oldest.reading else None
        limit = newest.limit or oldest.limit
        status, entry = UNKNOWN if limit else newest.status, FoundEntry()
        if status in (FOUND, AFTER_LAST):
            status = FOUND if newest.before else AFTER_LAST if newest.reading is None else BEFORE_FIRST
            entry = self._entry(newest.before, question)
        answer: SeekAnswer = {
            **head,
            "status": status,
            **entry,
            "oldest_expired": value is not None and value[0] < overdue,
            "entries_read": oldest.entries_read + newest.entries_read,
        }
        return answer | ({"reason": limit} if limit else {})


@dataclass(frozen=True, slots=True)
class Cluster:
    """A store and the source of its entries, opened from `urls`. Answers have the `name`, if any."""

    store: Store
    source: EntrySource
    urls: tuple[str, ...]
    name: str | None = None

    def named(self, answer: SeekAnswer) -> SeekAnswer:
        """Return an answer with the cluster's name."""
        return answer if self.name is None else {"cluster": self.name, **answer}


def joined(answered: Iterable[tuple[Question, SeekAnswer]]) -> Iterator[SeekAnswer]:
    """Yield the answers; the answers of all segments of a scalable topic about a time become one."""
    pairs = iter(answered)
    for question, answer in pairs:
        others = [next(pairs)[1] for _ in range(question.segments - 1)]
        yield earliest([answer, *others]) if others else answer


def earliest(answers: Sequence[SeekAnswer]) -> SeekAnswer:
    """Return the answer with the earliest time.

    If one segment has no certain answer, the earliest entry is not known, so that answer is returned. If no
    segment has an entry, an answer that names an open transaction is preferred.
    """
    unsure = [answer for answer in answers if answer["status"] in (MISSING, UNREADABLE, UNKNOWN, NO_TOPIC)]
    found = [answer for answer in answers if answer["status"] == FOUND]
    waiting = [answer for answer in answers if answer["status"] == OPEN]
    chosen = unsure[0] if unsure else min(found, key=_time) if found else [*answers, *waiting][-1]
    return {**chosen, "entries_read": sum(answer["entries_read"] for answer in answers)}


def _time(answer: SeekAnswer) -> int:
    return answer["broker_timestamp"] if answer["clock"] == "broker" else answer["publish_time"] or 0


def seek(
    store: Store, source: EntrySource, questions: Iterable[Question], options: SeekOptions, note: Note
) -> Iterator[SeekAnswer]:
    """Yield the answers of one cluster in the order of the questions. Raises the same as `seek_clusters`."""
    yield from joined(_answers(Cluster(store, source, ()), questions, options, note, None))


def seek_clusters(
    asked: Iterable[tuple[Cluster, Sequence[Question]]],
    options: SeekOptions,
    note: Note,
    kept: KeptRanges | None = None,
) -> Iterator[SeekAnswer]:
    """Yield the answers cluster by cluster. `note` gets lines that a person should read.

    With `kept`, the index ranges of all ledgers are read first, unless they are kept, and added to it.
    Raises UsageError for an invalid topic name, NotFoundError if the cursor does not exist, and
    UnreachableError if the store or the source does not answer.
    """
    for cluster, questions in asked:
        for answer in joined(_answers(cluster, questions, options, note, kept)):
            yield cluster.named(answer)


def _answers(
    cluster: Cluster,
    questions: Iterable[Question],
    options: SeekOptions,
    note: Note,
    kept: KeptRanges | None,
) -> Iterator[tuple[Question, SeekAnswer]]:
    seekers: dict[str, Seeker] = {}
    store, source = cluster.store, cluster.source
    for question in expand(store, questions, options.cursor, note):
        seeker = seekers.get(question.topic)
        if seeker is None:
            plan = plan_topic(store, source, TopicName.parse(question.topic), options, note)
            seeker = seekers[question.topic] = Seeker(plan, source, options)
        before = seeker.reads.entries_read
        if kept is not None and question.kind == INDEX and not seeker.ranges:
            name = cluster.name, question.topic
            kept.keep(*name, seeker.read_ranges(kept.of(*name)))
        shared = seeker.reads.entries_read - before
        answer = seeker.ask(question)
        yield question, {**answer, "entries_read": answer["entries_read"] + shared}
