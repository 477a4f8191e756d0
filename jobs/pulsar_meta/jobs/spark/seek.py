"""Seek by Spark: the questions go out in lots, each worker opens the entries and searches.

Only plain values travel: plans made from the metadata, questions, URLs, answers. What the metadata alone
answers is answered here, and without anything to read Spark is not started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_sources import LIVE, open_entry_sources
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Cluster, expand
from pulsar_meta.jobs.seek.seeker import Note, Seeker, TopicPlan, plan_topic
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.stores.registry import open_store

# How many lots there are for each core, so that one slow lot does not hold up the rest.
LOTS_PER_CORE: Final = 4
Numbered = tuple[int, Question]
Planned = tuple[TopicPlan, tuple[Numbered, ...]]
Answers = dict[int, Document]


@dataclass(frozen=True, slots=True)
class Lot:
    """What one task does in one cluster: numbered questions by topic, each topic with its plan.

    `store` is a URL, opened only where live bookies are found through it.
    """

    store: str
    urls: tuple[str, ...]
    options: SeekOptions
    topics: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What is to be read in a cluster, and what needed no reading."""

    cluster: Cluster
    topics: tuple[Planned, ...]
    answers: Answers
    count: int


def seek_with_spark(
    asked: Sequence[tuple[Cluster, Sequence[Question]]],
    options: SeekOptions,
    note: Note,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Document]:
    """Yield the answers cluster by cluster in the order of the questions.

    Metadata is read here, entries by the workers from the clusters' URLs. Raises what `seek` raises,
    UnreachableError where Spark does not start, PulsarMetaError for a job that fails.
    """
    plans = [plan_cluster(cluster, questions, options, note) for cluster, questions in asked]
    answers = [plan.answers for plan in plans]
    left = sum(len(questions) for plan in plans for _, questions in plan.topics)
    if left:
        with spark_session(master=master, conf=conf, verbose=verbose) as session:
            context = session.sparkContext
            size = -(-left // (context.defaultParallelism * LOTS_PER_CORE))
            lots = [
                (at, Lot(plan.cluster.store.url, plan.cluster.urls, options, share))
                for at, plan in enumerate(plans)
                for share in share_out(plan.topics, size)
            ]
            for at, result in context.parallelize(lots, len(lots)).mapValues(answer_lot).collect():
                if isinstance(result, PulsarMetaError):
                    raise result
                answers[at].update(result)
    for plan in plans:
        for number in range(plan.count):
            yield plan.cluster.named(plan.answers[number])


def plan_cluster(
    cluster: Cluster, questions: Sequence[Question], options: SeekOptions, note: Note
) -> ClusterPlan:
    """Read the metadata of all topics that are asked about, and answer what it alone answers."""
    numbered = sorted(
        enumerate(expand(cluster.store, questions)), key=lambda one: (one[1].topic, one[1].target)
    )
    topics: list[Planned] = []
    answers: Answers = {}
    for name, group in groupby(numbered, key=lambda one: one[1].topic):
        plan = plan_topic(cluster.store, cluster.source, TopicName.parse(name), options, note)
        if plan.ledgers:
            topics.append((plan, tuple(group)))
        else:
            answers.update(_answered(cluster.source, plan, tuple(group), options))
    return ClusterPlan(cluster, tuple(topics), answers, len(numbered))


def share_out(topics: Sequence[Planned], size: int) -> list[tuple[Planned, ...]]:
    """Return shares of `size` questions that lie close together, in topics and within a topic."""
    flat = [(plan, question) for plan, asked in topics for question in asked]
    shares = []
    for start in range(0, len(flat), size):
        by_topic = groupby(flat[start : start + size], key=lambda one: one[0])
        shares.append(tuple((plan, tuple(question for _, question in asked)) for plan, asked in by_topic))
    return shares


def answer_lot(lot: Lot) -> Answers | PulsarMetaError:
    """Answer a lot where the entries can be opened; an error of ours is returned, to be raised at home."""
    try:
        with ExitStack() as stack:
            live = any(url.startswith(f"{LIVE}:") for url in lot.urls)
            store = stack.enter_context(open_store(lot.store)) if live else None
            source = stack.enter_context(open_entry_sources(lot.urls, store))
            answers: Answers = {}
            for plan, asked in lot.topics:
                answers.update(_answered(source, plan, asked, lot.options))
            return answers
    except PulsarMetaError as error:
        return error


def _answered(
    source: EntrySource, plan: TopicPlan, asked: Sequence[Numbered], options: SeekOptions
) -> Answers:
    seeker = Seeker(plan, source, options)
    return {number: seeker.ask(question) for number, question in asked}
