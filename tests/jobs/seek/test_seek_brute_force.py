"""`seek` against brute force: alone, together, in another order, by both engines, and with kept ranges.

`python -m tests.seek_questions` asks many more questions.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import seek
from tests.made_topics import TOPIC, BruteForce, MadeEntries, ask_about, make_topic
from tests.nightly import mostly_at_night
from tests.seek_questions import LIMITED, LONG, RECIPES, Figures, compare


def is_right(figures: Figures) -> bool:
    """Nothing is wrong, and what differs differs for a reason."""
    return not figures.wrong and not figures.differ.keys() & {"order", "engine"}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("exhaustive", "seed"), mostly_at_night(product((False, True), range(2)), (False, 0), (True, 1))
)
def test_seek_equals_brute_force(name: str, seed: int, *, exhaustive: bool) -> None:
    topic = make_topic(RECIPES[name], seed)
    questions, options = ask_about(topic, 80, seed), SeekOptions(exhaustive=exhaustive)
    figures = compare(topic, questions, options, alone=5, per_read=(1, 8)[seed % 2])
    assert is_right(figures)
    if exhaustive or name not in LIMITED:
        assert figures.statuses["unknown"] == 0


@pytest.mark.parametrize(("ledgers", "asked"), mostly_at_night(((4_000, 300), (LONG.ledgers, 1200))))
def test_no_question_to_a_long_topic_uses_the_patience_of_another(ledgers: int, asked: int) -> None:
    topic = make_topic(replace(LONG, ledgers=ledgers), 7)
    questions = ask_about(topic, asked, 7, times=0.1)
    figures = compare(topic, questions, SeekOptions(), alone=2)
    assert is_right(figures)
    assert figures.statuses["found"] > asked * 2 / 3
    assert set(figures.statuses) <= {"found", "unknown", "after-last"}


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


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["long", *RECIPES])
def test_a_thousand_questions_to_each_kind_of_topic(name: str) -> None:
    topic = make_topic(LONG if name == "long" else RECIPES[name], 100)
    assert is_right(compare(topic, ask_about(topic, 1000, 0), SeekOptions(), alone=5))
