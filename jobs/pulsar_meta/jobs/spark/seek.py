"""Seek by Spark: the questions are divided, each worker opens the entries and searches.

What the metadata alone answers is answered here, and without anything to read Spark is not started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.entries.entry_sources import Opened, Sources
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Cluster, expand, joined
from pulsar_meta.jobs.seek.seeker import Note, SeekAnswer, Seeker, TopicPlan, plan_topic
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.jobs.spark.workers import PARTITIONS_PER_CORE, Task, map_on_workers

Numbered = tuple[int, Question]
Asked = tuple[TopicPlan, tuple[Numbered, ...]]
Answers = dict[int, SeekAnswer]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What is to be read in a cluster, and what needed no reading; answers by the numbers of questions."""

    cluster: Cluster
    topics: tuple[Asked, ...]
    answers: Answers
    questions: tuple[Question, ...]


def seek_with_spark(
    asked: Sequence[tuple[Cluster, Sequence[Question]]],
    options: SeekOptions,
    note: Note,
    spark: SparkSettings,
) -> Iterator[SeekAnswer]:
    """Yield the answers cluster by cluster in the order of the questions.

    Metadata is read here, entries by the workers from the clusters' URLs. Raises what `seek` raises,
    UnreachableError where Spark does not start, PulsarMetaError for a job that fails.
    """
    plans = [plan_cluster(cluster, questions, options, note) for cluster, questions in asked]
    if any(plan.topics for plan in plans):
        _search(plans, options, spark)
    for plan in plans:
        answered = ((question, plan.answers[number]) for number, question in enumerate(plan.questions))
        yield from map(plan.cluster.named, joined(answered))


def plan_cluster(
    cluster: Cluster, questions: Sequence[Question], options: SeekOptions, note: Note
) -> ClusterPlan:
    """Read the metadata of all topics that are asked about, and answer what it alone answers."""
    expanded = tuple(expand(cluster.store, questions, options.cursor, note))
    numbered = sorted(enumerate(expanded), key=lambda one: (one[1].topic, one[1].target))
    topics: list[Asked] = []
    answers: Answers = {}
    for name, group in groupby(numbered, key=lambda one: one[1].topic):
        plan = plan_topic(cluster.store, cluster.source, TopicName.parse(name), options, note)
        if plan.ledgers:
            topics.append((plan, tuple(group)))
        else:
            answers.update(_answered(cluster.source, plan, tuple(group), options))
    return ClusterPlan(cluster, tuple(topics), answers, expanded)


def _search(plans: Sequence[ClusterPlan], options: SeekOptions, spark: SparkSettings) -> None:
    """Answer by Spark what needs reading, into the plans' answers."""
    left = sum(len(questions) for plan in plans for _, questions in plan.topics)
    with spark_session(spark) as session:
        size = -(-left // (session.sparkContext.defaultParallelism * PARTITIONS_PER_CORE))
        pieces = [(plan, piece) for plan in plans for piece in cut(plan.topics, size)]
        tasks = [
            Task(Sources(plan.cluster.store.url, plan.cluster.urls), piece, len(piece[1]))
            for plan, piece in pieces
        ]
        found = map_on_workers(session, tasks, partial(answer, options), spark)
        for (plan, _), answers in zip(pieces, found, strict=True):
            plan.answers.update(answers)


def cut(topics: Sequence[Asked], size: int) -> Iterator[Asked]:
    """Yield the topics with at most `size` questions each, those that lie close in a topic together."""
    for plan, questions in topics:
        for start in range(0, len(questions), size):
            yield plan, questions[start : start + size]


def answer(options: SeekOptions, opened: Opened, asked: Asked) -> Answers:
    """Answer the questions about one topic, by their numbers."""
    return _answered(opened.entries, *asked, options)


def _answered(
    source: EntrySource, plan: TopicPlan, asked: Sequence[Numbered], options: SeekOptions
) -> Answers:
    seeker = Seeker(plan, source, options)
    return {number: seeker.ask(question) for number, question in asked}
