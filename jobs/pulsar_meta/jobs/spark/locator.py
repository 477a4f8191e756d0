"""The locator finds the entries that hold indexes, by Spark, in two stages over ledgers.

In the first stage each task takes a slice of the ledgers and reads their index ranges. The result has one
row per ledger, and the driver broadcasts it. In the second stage the questions are routed to ledgers, and
each task answers the questions to its own ledgers.

The first indexes alone say where an index belongs, so most questions need one entry of each ledger, or none
if ledgers have the property. Only if an index is not there, both ends of all ledgers are read, and the
question goes to every ledger that may hold it. So no answer rests on a property, and each equals brute force.

A task gets the numbers of its ledgers; everything else is in two broadcasts, the topics and the ranges.
Questions about times are answered topic by topic, because times do not divide a topic as indexes do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import FirstIndexes, IndexRange, Patience, RangeReader, Router
from pulsar_meta.jobs.seek.readings import (
    ABORTED,
    FOUND,
    GAP,
    MARKER,
    OPEN,
    UNKNOWN,
    LedgerRange,
    Status,
    by_index,
    worst,
)
from pulsar_meta.jobs.seek.search import TopicSearch
from pulsar_meta.jobs.seek.seek import SeekAnswer, Seeker, TopicPlan, asked_of
from pulsar_meta.jobs.spark.workers import (
    LEDGER_COST,
    PARTITIONS_PER_CORE,
    Notes,
    Task,
    map_on_workers,
)

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast, SparkContext
    from pyspark.sql import SparkSession

# One in this many first-index properties is compared with the entry.
SAMPLED: Final = 32
# If a ledger has fewer entries per question than this, all of its entries are read in one pass.
ENTRIES_PER_QUESTION: Final = 8
# A ledger of more entries is not read as a whole.
MOST_LOADED: Final = 50_000
# Statuses of an entry that was found, though a consumer may not see it.
_HELD: Final = (FOUND, ABORTED, MARKER, OPEN)
# Questions about times that are about a minute apart are answered by one task.
TIME_SHIFT: Final = 16
# Instead of the number of a ledger: the topic as a whole is asked, or no ledger may hold the index.
TOPIC: Final = -1
NOWHERE: Final = -2

# The rows of a topic, in reading order; None for a ledger that has no entries.
Rows = Sequence[IndexRange | None]


class Numbered(NamedTuple):
    """A question, its number, which is its key in the result, and the number of its topic."""

    key: int
    topic: int
    question: Question


class Routed(NamedTuple):
    """A question and the number of a ledger that may hold its index, TOPIC or NOWHERE."""

    numbered: Numbered
    ledger: int


class Answered(NamedTuple):
    """The answer of one ledger, or of the topic as a whole (TOPIC); None if no ledger may hold the index."""

    numbered: Numbered
    ledger: int
    answer: SeekAnswer | None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a search, and the sources of their entries. Ledgers are numbered across all topics."""

    plans: tuple[TopicPlan, ...]
    sources: tuple[Sources, ...]
    options: SeekOptions
    starts: tuple[int, ...] = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        ends = list(accumulate((len(plan.ledgers) for plan in self.plans), initial=0))
        object.__setattr__(self, "starts", tuple(ends[:-1]))
        object.__setattr__(self, "count", ends[-1])

    def topic_of(self, ledger: int) -> int:
        """Return the number of the topic that has a ledger."""
        return bisect_right(self.starts, ledger) - 1

    def ledger(self, number: int) -> LedgerRange:
        """Return a ledger by its number."""
        topic = self.topic_of(number)
        return self.plans[topic].ledgers[number - self.starts[topic]]

    def numbers(self, topic: int) -> range:
        """Return the numbers of a topic's ledgers."""
        return range(self.starts[topic], self.starts[topic] + len(self.plans[topic].ledgers))

    def plan_of_ledger(self, number: int, row: IndexRange | None, after: IndexRange | None) -> TopicPlan:
        """Return the plan that has one ledger alone; `row` and the ledger `after` it aim the search."""
        plan, span = self.plans[self.topic_of(number)], self.ledger(number)
        last = None
        if row is not None:
            span = replace(span, first_index=row.low)
            last = row.high
        if last is None and after is not None and after.low is not None:
            last = after.low - 1
        return replace(plan, ledgers=(span,), last_index=last)


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of the ledgers of all topics, of about equal cost. Slice n begins with ledger `starts`[n]."""

    starts: tuple[int, ...]

    def of(self, ledger: int) -> int:
        """Return the slice of a ledger."""
        return bisect_right(self.starts, ledger) - 1


def cut(topics: Topics, count: int) -> Slices:
    """Cut the ledgers into at most `count` slices of about equal cost."""
    costs = [LEDGER_COST + max(span.entries, 0) for plan in topics.plans for span in plan.ledgers]
    size, starts, cost = max(1, -(-sum(costs) // count)), [0], 0
    for number, each in enumerate(costs):
        if cost >= size:
            starts.append(number)
            cost = 0
        cost += each
    return Slices(tuple(starts))


class Locator:
    """Answers questions to some topics with a session's workers.

    `kept` has ranges that are known before, by the number of the ledger. Ranges are read of the topics
    `by_index` alone, with `complete` both ends of their ledgers in any case.
    """

    def __init__(
        self,
        session: SparkSession,
        topics: Topics,
        spark: SparkSettings,
        *,
        by_index: Collection[int],
        kept: Mapping[int, IndexRange] = MappingProxyType({}),
        complete: bool = False,
    ) -> None:
        self.session = session
        self.topics = topics
        self.spark = spark
        self.kept = kept
        self.context: SparkContext = session.sparkContext
        self.sent: Broadcast[Topics] = self.context.broadcast(topics)
        self.partitions = self.context.defaultParallelism * PARTITIONS_PER_CORE
        self.slices = cut(topics, self.partitions)
        self.unread = [
            number
            for topic in sorted(by_index)
            for number in topics.numbers(topic)
            if number not in kept and topics.ledger(number).entries != 0
        ]
        self.complete = complete or not self.unread
        self.ranges: Rows | None = None
        # The number of entries that were read for the ranges.
        self.entries_read = 0

    def answers(self, questions: RDD[Numbered]) -> RDD[Result]:
        """Return the answers, one for each question, in any order.

        Instead of an answer there may be notes of a source, or an error, which ended a task.
        """
        if self.complete:
            return self._certain(questions)
        likely = self._asked(questions, to_likeliest, self._rows(read_firsts)).cache()
        unsettled = likely.filter(is_unsettled).map(question_of)
        if unsettled.isEmpty():
            return likely
        return likely.filter(is_settled).union(self._certain(unsettled))

    def read_ranges(self) -> Rows:
        """Read both ends of every ledger that is not kept, once."""
        if self.ranges is None:
            self.ranges = self._rows(read_both_ends)
        return self.ranges

    def _certain(self, questions: RDD[Numbered]) -> RDD[Result]:
        """Ask every ledger that may hold an index."""
        asked = self._asked(questions, to_candidates, self.read_ranges())
        by_key = asked.filter(is_answer).keyBy(key_of).groupByKey(self.partitions)
        sent_rows = self.context.broadcast(self.read_ranges())
        joined = by_key.mapPartitions(partial(join_answers, self.sent, sent_rows))
        return asked.filter(is_no_answer).union(joined)

    def _asked(self, questions: RDD[Numbered], route: Route, rows: Rows) -> RDD[Result]:
        """Route the questions to ledgers, and ask these."""
        sent_rows = self.context.broadcast(rows)
        sent_to = questions.mapPartitions(partial(routed, route, self.sent, sent_rows))
        placed = sent_to.keyBy(partial(partition_of, self.slices, self.partitions))
        divided = placed.partitionBy(self.partitions, int).values()
        return divided.mapPartitions(partial(answer_slice, self.sent, sent_rows))

    def _rows(self, read: ReadSlice) -> Rows:
        """Read a row of each ledger that is not kept, and return the rows of all ledgers."""
        rows: list[IndexRange | None] = [self.kept.get(number) for number in range(self.topics.count)]
        size = max(1, -(-len(self.unread) // self.partitions))
        tasks = [
            Task(sources, tuple(runs_of(numbers)), len(numbers))
            for sources, group in groupby(self.unread, key=self._sources_of)
            for numbers in in_parts(list(group), size)
        ]
        work = partial(read, self.sent)
        for part in map_on_workers(self.session, tasks, work, self.spark):
            self.entries_read += part.entries_read
            for number, row in part.rows:
                rows[number] = row
        return rows

    def _sources_of(self, number: int) -> Sources:
        return self.topics.sources[self.topics.topic_of(number)]


def in_parts(numbers: list[int], size: int) -> Iterator[list[int]]:
    """Cut a list into parts of at most `size`."""
    for at in range(0, len(numbers), size):
        yield numbers[at : at + size]


def runs_of(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) for each run of numbers that follow each other."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1] + 1


Runs = Sequence[tuple[int, int]]


@dataclass(slots=True)
class Part:
    """The rows of a slice of ledgers, with the numbers of these, and how many entries were read for them."""

    rows: list[tuple[int, IndexRange | None]] = field(default_factory=list)
    entries_read: int = 0


ReadSlice = Callable[["Broadcast[Topics]", Opened, Runs], Part]


def read_both_ends(sent: Broadcast[Topics], opened: Opened, runs: Runs) -> Part:
    """Read the range of each ledger of a slice."""
    topics, part = sent.value, Part()
    for number in numbers_in(runs):
        seeker = Seeker(topics.plan_of_ledger(number, None, None), opened.entries, topics.options)
        ranges = seeker.read_ranges({})
        part.rows.append((number, ranges[0] if ranges else None))
        part.entries_read += seeker.reads.entries_read
    return part


def read_firsts(sent: Broadcast[Topics], opened: Opened, runs: Runs) -> Part:
    """Return the first index of each ledger of a slice, from its property if it has one.

    A sample of the properties is compared with the entries. If one of them is false, none is used.
    """
    topics, part = sent.value, Part()
    numbers = list(numbers_in(runs))
    claimed = [number for number in numbers if topics.ledger(number).first_index is not None]
    sample = {number: _first_of(topics, opened.entries, number, part) for number in claimed[::SAMPLED]}
    trusted = all(
        row is None or row.low == topics.ledger(number).first_index for number, row in sample.items()
    )
    for number in numbers:
        span = topics.ledger(number)
        if number in sample:
            row = sample[number]
        elif trusted and span.first_index is not None:
            row = IndexRange(span.ledger_id, span.entries, span.first_index, None, is_complete=False)
        else:
            row = _first_of(topics, opened.entries, number, part)
        part.rows.append((number, row))
    return part


def numbers_in(runs: Runs) -> Iterator[int]:
    """Yield the numbers of some runs."""
    for start, stop in runs:
        yield from range(start, stop)


def _first_of(topics: Topics, source: EntrySource, number: int, part: Part) -> IndexRange | None:
    """Read the first index of a ledger. Returns None if it has no entries."""
    seeker = Seeker(topics.plan_of_ledger(number, None, None), source, topics.options)
    if not seeker.order.spans:
        return None
    span = seeker.order.spans[0]
    patience = Patience(unlimited=topics.options.exhaustive)
    read = TopicSearch(seeker.order, by_index, seeker.reads).read
    first = RangeReader(read, source.entries_per_read, patience).first(0, span.entries, set())
    part.entries_read += seeker.reads.entries_read
    return IndexRange(span.ledger_id, span.entries, first[1] if first else None, None, is_complete=False)


class _Routers:
    """The routers of topics, each made when it is first needed."""

    def __init__(self, topics: Topics, rows: Rows) -> None:
        self.topics = topics
        self.rows = rows
        self._certain: dict[int, tuple[Router, list[int]]] = {}
        self._likely: dict[int, FirstIndexes] = {}

    def certain(self, topic: int) -> tuple[Router, list[int]]:
        """Return the router of a topic whose ranges are known, and the numbers of its ledgers."""
        if topic not in self._certain:
            ranges = dict(self._rows_of(topic))
            self._certain[topic] = Router(list(ranges.values())), list(ranges)
        return self._certain[topic]

    def likeliest(self, topic: int, index: int) -> int:
        """Return the ledger in which an index belongs, TOPIC if no ledger of the topic has an index."""
        if topic not in self._likely:
            rows = self._rows_of(topic)
            self._likely[topic] = FirstIndexes((row.low, at) for at, row in rows if row.low is not None)
        ledger = self._likely[topic].ledger_of(index)
        return NOWHERE if ledger is None else ledger

    def _rows_of(self, topic: int) -> Iterator[tuple[int, IndexRange]]:
        """Yield the rows of the topic's ledgers that have entries, by the numbers of the ledgers."""
        for number in self.topics.numbers(topic):
            row = self.rows[number]
            if row is not None:
                yield number, row


def to_likeliest(routers: _Routers, numbered: Numbered) -> list[int]:
    """Return the ledger in which the index of a question belongs."""
    return [routers.likeliest(numbered.topic, numbered.question.target)]


def to_candidates(routers: _Routers, numbered: Numbered) -> list[int]:
    """Return every ledger that may hold the index of a question."""
    router, places = routers.certain(numbered.topic)
    if not places:
        return [TOPIC]
    return [places[at] for at in router.candidates(numbered.question.target)] or [NOWHERE]


Route = Callable[[_Routers, Numbered], list[int]]


def routed(
    route: Route, sent: Broadcast[Topics], sent_rows: Broadcast[Rows], questions: Iterable[Numbered]
) -> Iterator[Routed]:
    """Send each question to ledgers; a question about a time is answered by its topic."""
    routers = _Routers(sent.value, sent_rows.value)
    for numbered in questions:
        by_index = numbered.question.kind == INDEX
        for ledger in route(routers, numbered) if by_index else [TOPIC]:
            yield Routed(numbered, ledger)


def partition_of(slices: Slices, count: int, question: Routed) -> int:
    """Return the partition whose task answers a question."""
    numbered, ledger = question
    if ledger >= 0:
        return slices.of(ledger)
    if ledger == TOPIC:
        return hash((numbered.topic, numbered.question.target >> TIME_SHIFT)) % count
    return numbered.key % count


Result = Answered | Notes | PulsarMetaError


def answer_slice(
    sent: Broadcast[Topics], sent_rows: Broadcast[Rows], questions: Iterable[Routed]
) -> Iterator[Result]:
    """Answer the questions to the ledgers of one task. Each source is opened once."""
    topics, rows = sent.value, sent_rows.value
    ordered = sorted(questions, key=_by_ledger)
    try:
        for sources, of_sources in groupby(
            ordered, key=lambda question: topics.sources[question.numbered.topic]
        ):
            with sources.opened() as opened:
                for (topic, ledger), group in groupby(of_sources, key=_place):
                    if ledger == NOWHERE:
                        yield from (Answered(each.numbered, NOWHERE, None) for each in group)
                    else:
                        yield from _answers(topics, rows, opened.entries, topic, ledger, list(group))
                yield Notes(tuple(opened.entries.notes), tuple(opened.entries.faults))
    except PulsarMetaError as error:
        yield error


def _place(question: Routed) -> tuple[int, int]:
    return question.numbered.topic, question.ledger


def _by_ledger(question: Routed) -> tuple[int, int, int]:
    return *_place(question), question.numbered.question.target


def _answers(
    topics: Topics, rows: Rows, source: EntrySource, topic: int, ledger: int, questions: Sequence[Routed]
) -> Iterator[Answered]:
    """Answer the questions to one ledger, or to a topic as a whole."""
    if ledger == TOPIC:
        seeker = Seeker(topics.plans[topic], source, topics.options)
    else:
        row = rows[ledger]
        after = rows[ledger + 1] if ledger + 1 in topics.numbers(topic) else None
        seeker = Seeker(topics.plan_of_ledger(ledger, row, after), source, topics.options)
        if row is not None and row.is_complete:
            seeker.ranges = {row.ledger_id: row}
        total = seeker.order.total
        if 0 < total <= MOST_LOADED and total < len(questions) * ENTRIES_PER_QUESTION:
            span = seeker.order.spans[0]
            seeker.reads.load(span.ledger_id, span.first_entry, span.first_entry + span.entries - 1)
    loaded = seeker.reads.entries_read
    for numbered, _ in questions:
        answer = seeker.ask(numbered.question)
        yield Answered(numbered, ledger, {**answer, "entries_read": answer["entries_read"] + loaded})
        loaded = 0


def join_answers(
    sent: Broadcast[Topics],
    sent_rows: Broadcast[Rows],
    answered: Iterable[tuple[int, Iterable[Answered]]],
) -> Iterator[Answered]:
    """Make one answer of those that several ledgers gave to a question."""
    topics = sent.value
    routers = _Routers(topics, sent_rows.value)
    for _, answers in answered:
        yield joined_answer(topics, routers, sorted(answers, key=lambda answer: answer.ledger))


def joined_answer(topics: Topics, routers: _Routers, answers: Sequence[Answered]) -> Answered:
    """Return the entry that was found first in reading order, or why no ledger has the index."""
    numbered = answers[0].numbered
    question, plan = numbered.question, topics.plans[numbered.topic]
    held = [answer for answer in answers if is_settled(answer)]
    given = [answer.answer for answer in answers if answer.answer is not None]
    entries_read = sum(answer["entries_read"] for answer in given)
    unsure = [answer for answer in given if answer["status"] == UNKNOWN]
    if held and held[0].answer is not None:
        chosen: SeekAnswer = {**held[0].answer, "entries_read": entries_read}
    elif unsure:
        chosen = {**unsure[0], "entries_read": entries_read}
    else:
        in_ledgers = [
            answer.answer["status"]
            for answer in answers
            if answer.answer is not None and _is_complete(routers.rows[answer.ledger])
        ]
        router, _ = routers.certain(numbered.topic)
        status: Status = (worst(in_ledgers) or GAP) if in_ledgers else router.absent(question.target)
        chosen = {**asked_of(plan, question), "status": status, "entries_read": entries_read}
    return Answered(numbered, TOPIC, chosen)


def _is_complete(row: IndexRange | None) -> bool:
    return row is not None and row.is_complete


def is_answer(result: Result) -> bool:
    """True if a result is no note and no error."""
    return isinstance(result, Answered)


def is_settled(result: Result) -> bool:
    """True if an answer needs no other ledger: an entry has the index, or the whole topic was asked."""
    if not isinstance(result, Answered):
        return True
    if result.answer is None:
        return False
    status = result.answer["status"]
    # If there is no reason, the entry was found, but it is not known if consumers can see it.
    is_held = status in _HELD or (status == UNKNOWN and "reason" not in result.answer)
    return is_held or result.ledger == TOPIC


def is_unsettled(result: Result) -> bool:
    """True if an answer needs other ledgers."""
    return not is_settled(result)


def is_no_answer(result: Result) -> bool:
    """True if a result is a note or an error."""
    return not is_answer(result)


def question_of(result: Result) -> Numbered:
    """Return the question of an answer."""
    assert isinstance(result, Answered)
    return result.numbered


def key_of(result: Result) -> int:
    """Return the key of an answer's question."""
    return question_of(result).key
