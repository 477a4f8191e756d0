"""`seek` against brute force: alone, together, in another order, by both engines, and with kept ranges."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.seek.kept_ranges import KeptRanges
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Cluster, seek, seek_clusters
from pulsar_meta.jobs.spark.seek import Search, plan_cluster
from tests.local_spark import LocalSession
from tests.made_topics import TOPIC, BruteForce, MadeEntries, MadeTopic, Recipe, ask_about, make_topic

# The topic of which 48 of 4000 questions about an index that is there were answered `no-index`.
LONG = Recipe(20_000, 7, without_index=0.15, gaps=0.1)
RECIPES = {
    "healthy": Recipe(40, 12),
    "trimmed": Recipe(40, 12, gaps=0.2, first_index=5000),
    "some entries without an index": Recipe(60, 9, without_index=0.15, gaps=0.1),
    "some ledgers without an index": Recipe(60, 9, ledgers_without_index=0.5, gaps=0.1),
    "hardly an index": Recipe(60, 9, without_index=0.95, gaps=0.3),
    "steps back": Recipe(60, 9, ledgers_stepping_back=0.2, gaps=0.3),
    "one step back in many ledgers": Recipe(900, 3, ledgers_stepping_back=0.002, gaps=0.3),
    "too many ledgers that step back": Recipe(1500, 3, ledgers_stepping_back=0.003, gaps=0.3),
    "missing and broken": Recipe(60, 9, missing=0.05, broken=0.05, ledgers_missing=0.1, gaps=0.2),
    "everything": Recipe(
        120, 9, without_index=0.15, gaps=0.2, missing=0.03, broken=0.03, ledgers_stepping_back=0.05,
        ledgers_without_index=0.1, ledgers_missing=0.05, ledgers_with_property=0.5, properties_false=0.2,
    ),
    "few long ledgers": Recipe(4, 3000, without_index=0.3, gaps=0.2, ledgers_without_index=0.3),
    "nothing": Recipe(0, 1),
}  # fmt: skip

# Topics that are beyond a limit of a search that is not exhaustive.
LIMITED = {"too many ledgers that step back", "few long ledgers"}


def ask(
    topic: MadeTopic, questions: Sequence[Question], options: SeekOptions, per_read: int
) -> list[Document]:
    return list(seek(topic.store(), MadeEntries(topic, per_read), questions, options, print))


@dataclass(frozen=True)
class MadeSources:
    """Opens the entries of a made topic, as the sources of a task do."""

    topic: MadeTopic

    @contextmanager
    def opened(self) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(entries=MadeEntries(self.topic))


def by_workers(
    topic: MadeTopic,
    questions: Sequence[Question],
    options: SeekOptions,
    kept: KeptRanges | None = None,
) -> list[Document]:
    """The answers of Spark's job, whose tasks run in this process."""
    cluster = Cluster(topic.store(), MadeEntries(topic), ())
    search = Search([plan_cluster(cluster, questions, options, print)], options)
    sources: Any = (MadeSources(topic),) * len(search.topics.plans)
    search.topics = replace(search.topics, sources=sources)
    session: Any = LocalSession()
    answers = search.without_ledgers()
    if search.numbered:
        answers |= search.with_workers(session, SparkSettings(), kept)
    return [{**answers[number]} for number in range(len(questions))]


def same(brute: BruteForce, question: Question, left: Document, right: Document) -> bool:
    """Two engines agree if they have the same answer, or only one of them reached a limit.

    If several entries hold the index, each of them is right.
    """
    holders = brute.holders.get(question.target, []) if question.kind == INDEX else []
    statuses = {left["status"], right["status"]}
    several = len(holders) > 1 and statuses == {"found"}
    absent = brute.topic.steps_back and not holders and question.kind == INDEX
    return left == right or several or absent or "unknown" in statuses


def with_ranges(
    topic: MadeTopic, questions: Sequence[Question], options: SeekOptions, kept: KeptRanges
) -> list[Document]:
    """The answers of this process if the ranges of ledgers are kept."""
    cluster = Cluster(topic.store(), MadeEntries(topic), ())
    return [{**answer} for answer in seek_clusters([(cluster, questions)], options, print, kept)]


def answers_only(answers: Sequence[Document]) -> list[Document]:
    """Leave out what an answer cost: that depends on what was read before."""
    return [{key: value for key, value in answer.items() if key != "entries_read"} for answer in answers]


def check(
    topic: MadeTopic, questions: Sequence[Question], options: SeekOptions, *, alone: int, per_read: int = 1
) -> Counter[str]:
    """Compare all ways to ask with each other and with brute force; return how often each status came."""
    brute, shuffled = BruteForce(topic), list(questions)
    random.Random(1).shuffle(shuffled)
    together = answers_only(ask(topic, questions, options, per_read))
    wrong = [brute.wrong(*pair) for pair in zip(questions, together, strict=True)]
    assert [one for one in wrong if one] == []
    in_another_order = answers_only(ask(topic, shuffled, options, per_read))
    assert [together[questions.index(one)] for one in shuffled[:300]] == in_another_order[:300]
    for question, expected in list(zip(questions, together, strict=True))[:alone]:
        assert answers_only(ask(topic, [question], options, per_read)) == [expected]
    kept = KeptRanges()
    for by_spark in (
        by_workers(topic, questions, options),
        by_workers(topic, questions, options, kept),
        by_workers(topic, questions, options, kept),
        with_ranges(topic, questions, options, kept),
    ):
        differ = []
        for question, ours, theirs in zip(questions, together, answers_only(by_spark), strict=True):
            assert brute.wrong(question, theirs) is None
            if not same(brute, question, ours, theirs):
                differ.append((question, ours, theirs))
        assert differ == []
    return Counter(one["status"] for one in together)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("exhaustive", [False, True])
def test_seek_equals_brute_force(name: str, *, exhaustive: bool) -> None:
    for seed in range(2):
        topic = make_topic(RECIPES[name], seed)
        statuses = check(
            topic,
            ask_about(topic, 80, seed),
            SeekOptions(exhaustive=exhaustive),
            alone=5,
            per_read=(1, 8)[seed % 2],
        )
        if exhaustive or name not in LIMITED:
            assert statuses["unknown"] == 0


def test_no_question_to_a_long_topic_uses_the_patience_of_another() -> None:
    topic = make_topic(LONG, 7)
    questions = ask_about(topic, 1200, 7, times=0.1)
    statuses = check(topic, questions, SeekOptions(), alone=2)
    assert statuses["found"] > 800
    assert set(statuses) <= {"found", "unknown", "after-last"}


def test_an_absent_index_reads_little_and_says_which_limit_it_reached() -> None:
    topic = make_topic(LONG, 7)
    brute, source = BruteForce(topic), MadeEntries(topic)
    absent = next(index for index in range(50_000, 90_000) if index not in brute.holders)
    question = Question(TOPIC, INDEX, absent)
    (found,) = seek(topic.store(), source, [question], SeekOptions(), print)
    assert found["status"] == "unknown"
    assert "--exhaustive looks into all of them" in found["reason"]
    assert source.reads < 100
    (found,) = seek(topic.store(), source, [question], SeekOptions(exhaustive=True), print)
    assert brute.wrong(question, found) is None
    assert found["status"] != "unknown"


@pytest.mark.chaos
@pytest.mark.parametrize("name", ["long", *RECIPES])
def test_a_hundred_thousand_questions(name: str) -> None:
    recipe = LONG if name == "long" else RECIPES[name]
    for seed in range(10):
        topic = make_topic(recipe, 100 + seed)
        check(topic, ask_about(topic, 1000, seed), SeekOptions(), alone=50, per_read=(1, 8)[seed % 2])
