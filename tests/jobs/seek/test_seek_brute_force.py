"""`seek` against brute force: alone, together, in another order, by the local engine and by Spark's task."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Cluster, seek
from pulsar_meta.jobs.spark.commands import answer, cut, plan_cluster
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


def by_task(topic: MadeTopic, questions: Sequence[Question], options: SeekOptions) -> list[Document]:
    """The answers of the function that Spark's workers run, questions cut as for four cores."""
    store, source = topic.store(), MadeEntries(topic)
    plan = plan_cluster(Cluster(store, source, ()), questions, options, print)
    answers = dict(plan.answers)
    opened: Any = SimpleNamespace(entries=MadeEntries(topic))
    for piece in cut(plan.topics, -(-len(questions) // 16)):
        answers |= answer(options, opened, piece)
    return [answers[number] for number in range(len(questions))]


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
    if per_read == 1:
        assert answers_only(by_task(topic, questions, options)) == together
    return Counter(one["status"] for one in together)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("exhaustive", [False, True])
def test_seek_equals_brute_force(name: str, *, exhaustive: bool) -> None:
    for seed in range(4):
        topic = make_topic(RECIPES[name], seed)
        statuses = check(
            topic,
            ask_about(topic, 120, seed),
            SeekOptions(exhaustive=exhaustive),
            alone=15,
            per_read=(1, 8)[seed % 2],
        )
        if exhaustive or name not in LIMITED:
            assert statuses["unknown"] == 0


def test_no_question_to_a_long_topic_uses_the_patience_of_another() -> None:
    topic = make_topic(LONG, 7)
    questions = ask_about(topic, 1500, 7, times=0.1)
    statuses = check(topic, questions, SeekOptions(), alone=5)
    assert statuses["found"] > 1000
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
