"""Seek by Spark: the questions go out in lots, each worker opens the entries and searches.

Only plain values travel: plans made from the metadata, questions, URLs, answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pulsar_meta.codecs.errors import PulsarMetaError
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entry_sources import LIVE, open_entry_sources
from pulsar_meta.jobs.seek import (
    Document,
    Note,
    Question,
    SeekOptions,
    TopicPlan,
    expand,
    plan_topic,
    seek_planned,
)
from pulsar_meta.jobs.spark.session import spark_session
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.registry import open_store

# How many lots there are for each core, so that one slow lot does not hold up the rest.
LOTS_PER_CORE: Final = 4
Numbered = tuple[int, Question]
Planned = tuple[TopicPlan, tuple[Numbered, ...]]


@dataclass(frozen=True, slots=True)
class Lot:
    """What one task does: numbered questions by topic, each topic with its plan.

    `store` is a URL, opened only where live bookies are found through it.
    """

    store: str
    urls: tuple[str, ...]
    options: SeekOptions
    topics: tuple[Planned, ...]


def seek_with_spark(
    store: Store,
    source: EntrySource,
    urls: Sequence[str],
    questions: Sequence[Question],
    options: SeekOptions,
    note: Note,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Document]:
    """Yield the answers in the order of the questions.

    Metadata is read here, entries by the workers from `urls`. Raises what `seek` raises, UnreachableError
    where Spark does not start, PulsarMetaError for a job that fails.
    """
    numbered = sorted(enumerate(expand(store, questions)), key=lambda one: (one[1].topic, one[1].target))
    plans = {
        name: plan_topic(store, source, TopicName.parse(name), options, note)
        for name in {question.topic for _, question in numbered}
    }
    with spark_session(master=master, conf=conf, verbose=verbose) as session:
        context = session.sparkContext
        count = context.defaultParallelism * LOTS_PER_CORE
        lots = [Lot(store.url, tuple(urls), options, topics) for topics in share_out(numbered, plans, count)]
        results = context.parallelize(lots, max(len(lots), 1)).map(answer_lot).collect()
    answers: dict[int, Document] = {}
    for result in results:
        if isinstance(result, PulsarMetaError):
            raise result
        answers.update(result)
    for number in range(len(numbered)):
        yield answers[number]


def share_out(
    numbered: Sequence[Numbered], plans: Mapping[str, TopicPlan], count: int
) -> list[tuple[Planned, ...]]:
    """Return at most `count` shares of questions that lie close together, in topics and within a topic."""
    size = -(-len(numbered) // max(count, 1)) or 1
    shares = []
    for start in range(0, len(numbered), size):
        by_topic = groupby(numbered[start : start + size], key=lambda one: one[1].topic)
        shares.append(tuple((plans[name], tuple(asked)) for name, asked in by_topic))
    return shares


def answer_lot(lot: Lot) -> list[tuple[int, Document]] | PulsarMetaError:
    """Answer a lot where the entries can be opened; an error of ours is returned, to be raised at home."""
    try:
        with ExitStack() as stack:
            live = any(url.startswith(f"{LIVE}:") for url in lot.urls)
            store = stack.enter_context(open_store(lot.store)) if live else None
            source = stack.enter_context(open_entry_sources(lot.urls, store))
            return [answered for plan, asked in lot.topics for answered in _topic(source, plan, asked, lot)]
    except PulsarMetaError as error:
        return error


def _topic(
    source: EntrySource, plan: TopicPlan, asked: Sequence[Numbered], lot: Lot
) -> Iterator[tuple[int, Document]]:
    answers = seek_planned(source, plan, [question for _, question in asked], lot.options)
    yield from zip((number for number, _ in asked), answers, strict=True)
