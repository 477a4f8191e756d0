"""Seek by Spark: answers the questions of a command, for all clusters in one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Sources
from pulsar_meta.jobs.seek.questions import INDEX, Note, Question, SeekOptions, expand
from pulsar_meta.jobs.seek.ranges import IndexRange, KeptRanges
from pulsar_meta.jobs.seek.seek import Cluster, SeekAnswer, Seeker, TopicPlan, joined, plan_topic
from pulsar_meta.jobs.spark.locator import Locator, Numbered, Result, Topics
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import News, Notes

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import SparkSession


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
