"""Answers about one topic: planned from its metadata, searched for among its entries.

A plan is plain values, so that it can travel to where the entries are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.entry_readings import EntryReader
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.readable import Given, given_from, standing
from pulsar_meta.jobs.seek.reading_order import LedgerRange, ReadingOrder
from pulsar_meta.jobs.seek.samples import CLOCKS, Measure, Reading, by_index
from pulsar_meta.jobs.seek.search import (
    AFTER_LAST,
    BEFORE_FIRST,
    FOUND,
    UNKNOWN,
    UNREADABLE,
    Outcome,
    Status,
    TopicSearch,
)
from pulsar_meta.jobs.topics.bookkeeper import has_metadata
from pulsar_meta.jobs.topics.cursors import Recovered, Recovery, read_cursor, recovered
from pulsar_meta.jobs.topics.topic import Ledger, Position, names_of, read_topic
from pulsar_meta.jobs.transactions.outcomes import Transactions, readers_transactions
from pulsar_meta.stores.base import Store

NO_TOPIC: Final = "no-topic"
# The metadata does not say how many entries: the source is asked.
OPEN: Final = -1

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the metadata says of a topic, as plain values; `status` where there is nothing to search.

    `snapshot` says why there may be more ledgers (a shadow topic without its source). `transactions` is
    there where only what readers are given counts.
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
    """Read a topic's metadata; a missing or broken record becomes the plan's status."""
    try:
        found = read_topic(store, topic, lambda fault: note(str(fault)))
    except NotFoundError:
        return TopicPlan(str(topic), status=NO_TOPIC)
    except DecodeError as error:
        reason = str(DecodeError(error.message, offset=error.offset))
        return TopicPlan(str(topic), status=UNREADABLE, reason=reason)
    after = options.after
    if options.cursor is not None:
        cursor = _subscription(store, source, topic, options.cursor, found.ledgers)
        if cursor.recovery.believed == "fails":
            return TopicPlan(str(topic), status=UNREADABLE, reason=cursor.recovery.why)
        if cursor.recovery.believed in ("rewind", "unknown"):
            note(_of_cursor(topic, options.cursor, cursor.recovery))
        passed = cursor.recovery.mark_delete or cursor.state.mark_delete
        after = passed if after is None else max(after, passed)
    plan = plan_of_ledgers(found.name, found.ledgers, options.index_property)
    last_index = _number(found.values(INDEX))
    plan = replace(plan, last_index=last_index, after=after, before=options.before, snapshot=found.snapshot)
    if not options.readable:
        return plan
    known = readers_transactions(store, source, found.name, found.ledgers, lambda error: note(str(error)))
    return replace(plan, transactions=known)


def _subscription(
    store: Store, source: EntrySource, topic: TopicName, cursor: str, ledgers: Sequence[Ledger]
) -> Recovered:
    """Return where a subscription stands once a broker has loaded it; raises what `read_cursor` does."""
    return recovered(
        read_cursor(store, topic, cursor), store if has_metadata(store) else None, source, ledgers
    )


def _of_cursor(topic: TopicName, cursor: str, recovery: Recovery) -> str:
    older = "" if recovery.believed == "rewind" else ": its position may be newer than what is taken here"
    return f"{topic}: the cursor {cursor!r}: {recovery.why}{older}"


def plan_of_ledgers(name: str, ledgers: Iterable[Ledger], index_property: str) -> TopicPlan:
    """Return the plan of the topic that has these ledgers, in reading order."""
    return TopicPlan(name, tuple(_span(ledger, index_property) for ledger in ledgers))


def _span(ledger: Ledger, index_property: str) -> LedgerRange:
    return LedgerRange(
        ledger.ledger_id,
        OPEN if ledger.entries is None else ledger.entries,
        first_index=_number(ledger.values(index_property)),
        closed_at=ledger.closed_at,
    )


def _number(values: Sequence[str]) -> int | None:
    """Return a property that is a number, None where it is absent, twice there or something else."""
    if len(values) == 1 and len(values[0]) <= 20:
        with suppress(ValueError):
            return int(values[0])
    return None


def reading_order(plan: TopicPlan, source: EntrySource) -> ReadingOrder:
    """Return a plan's ledgers in order, open ones counted in the source, bounds applied."""
    spans = []
    for span in plan.ledgers:
        if span.entries == OPEN:
            last = source.last_entry(span.ledger_id)
            span = replace(span, entries=0 if last is None else last + 1)
        spans.append(span)
    order = ReadingOrder(spans, plan.last_index)
    if plan.after is None and plan.before is None:
        return order
    start = order.ordinal(Position(plan.after[0], plan.after[1] + 1)) if plan.after else 0
    return order.between(start, order.ordinal(plan.before) if plan.before else order.total)


BEGINNING: Final = -(2**63)


class FoundEntry(TypedDict, total=False):
    """The entry that was found; by time `clock` says whose time counted. Times are in milliseconds."""

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
    """What was asked; `snapshot` says why a topic may have more than was searched."""

    topic: str
    scalable_topic: NotRequired[str]
    index: NotRequired[int]
    time: NotRequired[int]
    snapshot: NotRequired[str]


class GivenEntry(FoundEntry):
    """What came of it, and how many entries were read for that."""

    status: Status
    entries_read: int


class SeekAnswer(Asked, GivenEntry):
    """The answer to a question; `batch_index` is -1 in an unbatched entry."""

    cluster: NotRequired[str]
    reason: NotRequired[str]
    oldest_expired: NotRequired[bool]


class Seeker:
    """Answers questions about one topic. An entry that one question read is not read again for the next."""

    def __init__(self, plan: TopicPlan, source: EntrySource, options: SeekOptions) -> None:
        self.plan = plan
        self.options = options
        self.reads = EntryReader(source)
        self.order = reading_order(plan, source) if plan.status is None else ReadingOrder([])
        self.searches: dict[Measure, TopicSearch] = {}

    def ask(self, question: Question) -> SeekAnswer:
        """Return the answer as a document (`seek` in commands.md). Raises UnreachableError."""
        head: Asked = {**names_of(self.plan.topic, question.scalable_topic)}
        head[question.kind] = question.target
        if self.plan.snapshot is not None:
            head["snapshot"] = self.plan.snapshot
        if self.plan.status is not None:
            nothing: SeekAnswer = {**head, "status": self.plan.status, "entries_read": 0}
            return nothing | ({"reason": self.plan.reason} if self.plan.reason else {})
        if question.time_to_live is not None:
            return self._expired(head, question)
        outcome = self._search(by_index if question.kind == INDEX else self._clock, question.target)
        if outcome.reading is not None and self.plan.transactions is not None:
            return {**head, **self._given(outcome.reading, question, outcome.entries_read)}
        entry = self._found(outcome.reading, question) if outcome.reading else FoundEntry()
        answer: SeekAnswer = {
            **head, "status": outcome.status, **entry, "entries_read": outcome.entries_read
        }  # fmt: skip
        return answer | ({"reason": outcome.limit} if outcome.limit else {})

    def _given(self, reading: Reading, question: Question, spent: int) -> GivenEntry:
        """Return the answer for what readers are given: for an index that entry, for a time one after it."""
        transactions = self.plan.transactions
        assert transactions is not None
        if question.kind == INDEX:
            status = standing(reading, transactions)
            given = Given(status, reading if status == FOUND else None)
        else:
            given = given_from(reading, self.order, self.reads, transactions)
        found = self._found(given.reading, question) if given.reading else FoundEntry()
        if question.kind == INDEX and reading.txn is not None:
            found["transaction"] = str(reading.txn)
        return {"status": given.status, **found, "entries_read": spent + given.entries_read}

    @property
    def _clock(self) -> Measure:
        return CLOCKS[self.options.clock]

    def _search(self, measure: Measure, target: int) -> Outcome:
        if measure not in self.searches:
            exhaustive = self.options.exhaustive
            self.searches[measure] = TopicSearch(self.order, measure, self.reads, exhaustive=exhaustive)
        return self.searches[measure].find(target, skew=self.options.skew)

    def _found(self, reading: Reading, question: Question) -> FoundEntry:
        place = 0
        if question.kind == INDEX and reading.first_index is not None:
            place = question.target - reading.first_index
        found: FoundEntry = {
            "ledger_id": reading.ledger_id,
            "entry_id": reading.entry_id,
            "batch_index": place if reading.batched else -1,
        }
        if reading.first_index is not None:
            found["first_index"] = reading.first_index
        if reading.last_index is not None:
            found["last_index"] = reading.last_index
        if reading.broker_timestamp is not None:
            found["broker_timestamp"] = reading.broker_timestamp
        if question.kind != INDEX:
            by_broker = self.options.clock != "publish" and reading.broker_timestamp is not None
            found["clock"] = "broker" if by_broker else "publish"
            if not by_broker:
                found["publish_time"] = reading.publish_time
        return found

    def _expired(self, head: Asked, question: Question) -> SeekAnswer:
        """Return the newest expired entry and whether the oldest is overdue, as brokers decide both.

        Sources: PersistentMessageExpiryMonitor (expired: older than the time to live),
        PersistentTopic.isOldestMessageExpired (half as long again, MESSAGE_EXPIRY_THRESHOLD).
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
            entry = self._found(newest.before, question) if newest.before else entry
        answer: SeekAnswer = {
            **head,
            "status": status,
            **entry,
            "oldest_expired": value is not None and value[0] < overdue,
            "entries_read": oldest.entries_read + newest.entries_read,
        }
        return answer | ({"reason": limit} if limit else {})
