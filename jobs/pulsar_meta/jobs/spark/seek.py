"""Seek by Spark: answers the questions of a command or of a user's DataFrame, for all clusters in one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pulsar_meta.codecs.errors import PulsarMetaError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Sources, open_entry_sources
from pulsar_meta.jobs.seek.questions import INDEX, TIME, Kind, Note, Question, SeekOptions, expand
from pulsar_meta.jobs.seek.ranges import IndexRange, KeptRanges, read_kept_ranges
from pulsar_meta.jobs.seek.seek import Cluster, SeekAnswer, Seeker, TopicPlan, joined, plan_topic
from pulsar_meta.jobs.spark.locator import Answered, Locator, Numbered, Result, Topics
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import News, Notes
from pulsar_meta.stores.registry import open_store

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, Row, SparkSession


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The questions to a cluster, one for each topic and partition, and the plans of the topics."""

    cluster: Cluster
    questions: tuple[Question, ...]
    plans: Mapping[str, TopicPlan]


def plan_cluster(
    cluster: Cluster, questions: Iterable[Question], options: SeekOptions, note: Note
) -> ClusterPlan:
    """Read the records of the topics that are asked."""
    expanded = tuple(expand(cluster.store, questions, options.cursor, note))
    plans = {
        name: plan_topic(cluster.store, cluster.source, TopicName.parse(name), options, note)
        for name in sorted({question.topic for question in expanded})
    }
    return ClusterPlan(cluster, expanded, plans)


def seek_with_spark(
    asked: Sequence[tuple[Cluster, Sequence[Question]]],
    options: SeekOptions,
    note: Note,
    spark: SparkSettings,
    kept: KeptRanges | None = None,
) -> Iterator[SeekAnswer]:
    """Yield the answers cluster by cluster, in the order of the questions.

    The metadata is read here, and the entries by the workers from the clusters' URLs. Spark is not started if
    the metadata answers everything. Raises the errors of `seek_clusters` as well.
    """
    plans = [plan_cluster(cluster, questions, options, note) for cluster, questions in asked]
    search = Search(plans, options)
    answers = search.without_ledgers()
    if search.numbered:
        with spark_session(spark) as session:
            answers |= search.with_workers(session, spark, kept)
    key = 0
    for plan in plans:
        given = [answers[number] for number in range(key, key + len(plan.questions))]
        key += len(plan.questions)
        for answer in joined(zip(plan.questions, given, strict=True)):
            yield plan.cluster.named(answer)


class Search:
    """The questions to all clusters, numbered through, and those that entries have to answer."""

    def __init__(self, plans: Sequence[ClusterPlan], options: SeekOptions) -> None:
        self.options = options
        self.places = [(plan.cluster, topic) for plan in plans for topic in plan.plans.values()]
        self.topics = Topics(
            tuple(topic for _, topic in self.places),
            tuple(Sources(cluster.store.url, cluster.urls) for cluster, _ in self.places),
            options,
        )
        numbers = {(id(cluster), topic.topic): at for at, (cluster, topic) in enumerate(self.places)}
        questions = [(plan.cluster, question) for plan in plans for question in plan.questions]
        everything = [
            Numbered(key, numbers[id(cluster), question.topic], question)
            for key, (cluster, question) in enumerate(questions)
        ]
        self.numbered = [each for each in everything if self.topics.plans[each.topic].ledgers]
        self._others = [each for each in everything if not self.topics.plans[each.topic].ledgers]

    def without_ledgers(self) -> dict[int, SeekAnswer]:
        """Answer the questions to topics that have no ledgers."""
        answers = {}
        for key, topic, question in self._others:
            cluster, plan = self.places[topic]
            answers[key] = Seeker(plan, cluster.source, self.options).ask(question)
        return answers

    def with_workers(
        self, session: SparkSession, spark: SparkSettings, kept: KeptRanges | None
    ) -> dict[int, SeekAnswer]:
        """Answer the questions to topics that have ledgers. Ranges that are read are added to `kept`."""
        by_index = {each.topic for each in self.numbered if each.question.kind == INDEX}
        known = {} if kept is None else kept_numbers(self.topics, self._kept(kept))
        locator = Locator(
            session, self.topics, spark, by_index=by_index, kept=known, complete=kept is not None
        )
        # Questions that are close to each other are answered by the same task.
        ordered = sorted(self.numbered, key=_place)
        sent = session.sparkContext.broadcast(ordered)
        numbers = session.sparkContext.parallelize(range(len(ordered)), locator.partitions)
        results = locator.answers(numbers.mapPartitions(partial(_questions, sent))).collect()
        if kept is not None:
            self._keep(kept, locator, by_index)
        answers = dict(answers_in(results, spark))
        # As in one process, the cost of the ranges counts for the first question.
        answers[min(answers)]["entries_read"] += locator.entries_read
        return answers

    def _kept(self, kept: KeptRanges) -> list[Mapping[int, IndexRange]]:
        return [kept.of(cluster.name, topic.topic) for cluster, topic in self.places]

    def _keep(self, kept: KeptRanges, locator: Locator, topics: Iterable[int]) -> None:
        rows = locator.read_ranges()
        for topic in topics:
            cluster, plan = self.places[topic]
            ranges = (rows[number] for number in self.topics.numbers(topic))
            kept.keep(cluster.name, plan.topic, (row for row in ranges if row is not None))


def _place(numbered: Numbered) -> tuple[int, int]:
    return numbered.topic, numbered.question.target


def _questions(sent: Broadcast[list[Numbered]], numbers: Iterable[int]) -> Iterator[Numbered]:
    questions = sent.value
    return (questions[number] for number in numbers)


def kept_numbers(topics: Topics, kept: Sequence[Mapping[int, IndexRange]]) -> dict[int, IndexRange]:
    """Return the kept ranges that are still right, by the number of the ledger."""
    known = {}
    for topic, ranges in enumerate(kept):
        plan = topics.plans[topic]
        for number in topics.numbers(topic) if ranges else ():
            span = topics.ledger(number)
            row = ranges.get(span.ledger_id)
            after = plan.after is None or span.ledger_id > plan.after.ledger_id
            before = plan.before is None or span.ledger_id < plan.before.ledger_id
            # In a ledger that a bound cuts, other indexes are the first and the last.
            if row is not None and row.entries == span.entries and after and before:
                known[number] = row
    return known


def answers_in(results: Iterable[Result], spark: SparkSettings) -> Iterator[tuple[int, SeekAnswer]]:
    """Yield (key, answer). Passes notes on, and raises the error that ended a task."""
    news = News(spark)
    for result in results:
        if isinstance(result, PulsarMetaError):
            raise result
        if isinstance(result, Notes):
            news.pass_on(result)
        elif result.answer is not None:
            yield result.numbered.key, result.answer


ANSWER: Final = (
    "asked string, topic string, scalable_topic string, index long, time long, status string, reason string,"
    " ledger_id long, entry_id long, batch_index int, first_index long, last_index long,"
    " broker_timestamp long, clock string, publish_time long, entries_read long"
)
_FIELDS: Final = tuple(column.split()[0] for column in ANSWER.split(", "))[1:]
# A partition of a DataFrame has fewer questions.
_QUESTIONS_PER_PARTITION: Final = 2**40

# The number of each topic that a name means, and the scalable topic of which it is a segment.
Names = Mapping[str, Sequence[tuple[int, str | None]]]


def locate(
    spark: SparkSession,
    questions: DataFrame,
    *,
    store: str,
    entries: str | Sequence[str],
    ranges: str | None = None,
    exhaustive: bool = False,
) -> DataFrame:
    """Find the entry that holds an index, or the first entry at or after a time, for each row of `questions`.

    `questions` has the columns `topic` and `index` or `time` (milliseconds); a row fills one of the two.
    `store` and `entries` are URLs that every worker can open, `ranges` is a file of `seek --save-ranges`. The
    answers have the fields of `seek -o json` as columns, and `asked`, the topic as `questions` has it. A
    partitioned topic, and a scalable one, has an answer for each of its parts. Ranges are read now, the other
    entries when the answers are used. The driver does not hold questions or answers.

    Raises UsageError for wrong columns, names and URLs, and UnreachableError if the store does not answer.
    """
    kinds = [kind for kind in (INDEX, TIME) if kind in questions.columns]
    if "topic" not in questions.columns or not kinds:
        raise UsageError("questions need the columns topic and index or time")
    urls = (entries,) if isinstance(entries, str) else tuple(entries)
    names = [row[0] for row in questions.select("topic").distinct().collect()]
    topics, parts = _topics(names, store, urls, SeekOptions(exhaustive=exhaustive))
    known: Mapping[int, IndexRange] = {}
    if ranges is not None:
        kept = read_kept_ranges(Path(ranges))
        known = kept_numbers(topics, [kept.of(None, plan.topic) for plan in topics.plans])
    by_index = range(len(topics.plans)) if INDEX in kinds else ()
    locator = Locator(spark, topics, SparkSettings(), by_index=by_index, kept=known)
    sent = spark.sparkContext.broadcast(parts)
    asked = questions.select("topic", *kinds).rdd.mapPartitionsWithIndex(partial(_from_rows, sent))
    return spark.createDataFrame(locator.answers(asked).flatMap(_to_row), ANSWER)


def _topics(
    names: Sequence[str], store: str, urls: tuple[str, ...], options: SeekOptions
) -> tuple[Topics, Names]:
    """Read the records of the topics that are named, and of their partitions or segments."""
    note = SparkSettings().note
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        cluster = Cluster(opened, stack.enter_context(open_entry_sources(urls, opened)), urls)
        asked = {name: list(expand(opened, [Question(name, INDEX, 0)], None, note)) for name in names}
        questions = [question for parts in asked.values() for question in parts]
        plans = plan_cluster(cluster, questions, options, note).plans
    numbers = {topic: number for number, topic in enumerate(plans)}
    parts = {
        name: [(numbers[question.topic], question.scalable_topic) for question in of_name]
        for name, of_name in asked.items()
    }
    return Topics(tuple(plans.values()), (Sources(store, urls),) * len(plans), options), parts


def _from_rows(sent: Broadcast[Names], partition: int, rows: Iterable[Row]) -> Iterator[Numbered]:
    key = partition * _QUESTIONS_PER_PARTITION
    for row in rows:
        fields = row.asDict()
        targets: list[tuple[Kind, int]] = [
            (kind, fields[kind]) for kind in (INDEX, TIME) if fields.get(kind) is not None
        ]
        if len(targets) != 1:
            raise UsageError(f"a question about {row['topic']} needs an index or a time")
        for topic, scalable in sent.value[row["topic"]]:
            yield Numbered(key, topic, Question(row["topic"], *targets[0], scalable_topic=scalable))
            key += 1


def _to_row(result: Result) -> Iterator[tuple[Any, ...]]:
    if isinstance(result, PulsarMetaError):
        raise result
    if isinstance(result, Answered) and result.answer is not None:
        answer: Document = {**result.answer}
        yield (result.numbered.question.topic, *(answer.get(name) for name in _FIELDS))
