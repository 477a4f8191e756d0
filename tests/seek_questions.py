"""Ask `seek` 100 000 questions about made topics, and compare the answers with brute force.

    python -m tests.seek_questions [--questions 100000] [--seed 100]
    PYTHONPATH=. python -m tests.seek_questions --questions 2000 --spark     # needs Java 17

Each question is asked together with the others, in another order, some of them alone, by Spark's job (whose
tasks run in this process, or with --spark in Spark), and by both engines with kept ranges. An answer may
differ from another one only if several entries hold the index, if an engine reached a limit, or if an absent
index may belong in several places because indexes step back.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from pulsar_meta.codecs.json_text import Document
from pulsar_meta.jobs.engine import SparkSettings
from pulsar_meta.jobs.seek.questions import INDEX, Question, SeekOptions
from pulsar_meta.jobs.seek.ranges import KeptRanges
from pulsar_meta.jobs.seek.seek import Cluster, seek, seek_clusters
from pulsar_meta.jobs.spark.seek import Search, plan_cluster
from pulsar_meta.jobs.spark.session import spark_session
from tests.local_spark import LocalSession
from tests.made_topics import BruteForce, MadeEntries, MadeTopic, Recipe, ask_about, make_topic

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

LOCAL = LocalSession()
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
    session: Any = LOCAL,
) -> list[Document]:
    """The answers of Spark's job, whose tasks run in `session`, by default in this process."""
    cluster = Cluster(topic.store(), MadeEntries(topic), ())
    search = Search([plan_cluster(cluster, questions, options, print)], options)
    sources: Any = (MadeSources(topic),) * len(search.topics.plans)
    search.topics = replace(search.topics, sources=sources)
    answers = search.without_ledgers()
    if search.numbered:
        answers |= search.with_workers(session, SparkSettings(), kept)
    return [{**answers[number]} for number in range(len(questions))]


def with_ranges(
    topic: MadeTopic, questions: Sequence[Question], options: SeekOptions, kept: KeptRanges
) -> list[Document]:
    """The answers of this process if the ranges of ledgers are kept."""
    cluster = Cluster(topic.store(), MadeEntries(topic), ())
    return [{**answer} for answer in seek_clusters([(cluster, questions)], options, print, kept)]


def answers_only(answers: Sequence[Document]) -> list[Document]:
    """Leave out what an answer cost: that depends on what was read before."""
    return [{key: value for key, value in answer.items() if key != "entries_read"} for answer in answers]


@dataclass
class Figures:
    """What a comparison found. `wrong` has a line for each answer that brute force contradicts.

    `differ` counts the answers that differ from that of the first way. `order`: asked alone, or in another
    order. The others are by engine: `several` entries hold the index, one engine reached a `limit`, `steps
    back` (no entry holds the index, and it may belong in several places), or there is no reason (`engine`).
    """

    questions: int = 0
    answers: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    differ: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Add the figures of another topic."""
        self.questions += other.questions
        self.answers += other.answers
        self.statuses += other.statuses
        self.differ += other.differ
        self.wrong += other.wrong


def compare(
    topic: MadeTopic,
    questions: Sequence[Question],
    options: SeekOptions,
    *,
    alone: int,
    per_read: int = 1,
    session: Any = LOCAL,
) -> Figures:
    """Ask the questions in all ways, and compare the answers with each other and with brute force."""
    figures, brute, shuffled = Figures(len(questions)), BruteForce(topic), list(questions)
    random.Random(1).shuffle(shuffled)
    together = answers_only(ask(topic, questions, options, per_read))
    figures.statuses.update(answer["status"] for answer in together)
    kept = KeptRanges()
    ways = [
        ("together", questions, together),
        ("order", shuffled, answers_only(ask(topic, shuffled, options, per_read))),
        *(("order", [one], answers_only(ask(topic, [one], options, per_read))) for one in questions[:alone]),
        ("engine", questions, answers_only(by_workers(topic, questions, options, None, session))),
        ("engine", questions, answers_only(by_workers(topic, questions, options, kept, session))),
        ("engine", questions, answers_only(with_ranges(topic, questions, options, kept))),
    ]
    expected = dict(zip(questions, together, strict=True))
    for way, asked, answers in ways:
        figures.answers += len(answers)
        for question, answer in zip(asked, answers, strict=True):
            wrong = brute.wrong(question, answer)
            if wrong:
                figures.wrong.append(f"{way}: {wrong}")
            if answer != expected[question]:
                figures.differ[
                    way if way == "order" else why(brute, question, answer, expected[question])
                ] += 1
    return figures


def why(brute: BruteForce, question: Question, left: Document, right: Document) -> str:
    """Say why two engines may give other answers, `engine` if there is no reason."""
    holders = brute.holders.get(question.target, []) if question.kind == INDEX else []
    if "unknown" in (left["status"], right["status"]):
        return "limit"
    if len(holders) > 1 and left["status"] == right["status"] == "found":
        return "several"
    return "steps back" if brute.topic.steps_back and not holders and question.kind == INDEX else "engine"


def main() -> None:
    """Ask the questions, print a row for each kind of topic, and exit with 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--spark", action="store_true", help="run Spark's job in Spark")
    arguments = parser.parse_args()
    with spark_session(SparkSettings("local[2]")) if arguments.spark else nullcontext(LOCAL) as session:
        total = ask_everything(arguments.questions, arguments.seed, session)
    show("all", total)
    raise SystemExit(bool(total.wrong or total.differ["order"] or total.differ["engine"]))


def ask_everything(count: int, seed: int, session: Any) -> Figures:
    """Ask about `count` questions, equally many of each kind of topic, and print a row for each kind."""
    total = Figures()
    recipes = {"long": LONG, **RECIPES}
    for name, recipe in recipes.items():
        of_kind, topics, most = Figures(), 0, 0
        while of_kind.questions < count / len(recipes) and topics < 100:
            topic = make_topic(recipe, seed + topics)
            questions = ask_about(topic, 2000 if name == "long" else 1200, topics)
            most = max(most, len(topic.ledgers))
            per_read = (1, 8)[topics % 2]
            of_kind.add(compare(topic, questions, SeekOptions(), alone=5, per_read=per_read, session=session))
            topics += 1
        total.add(of_kind)
        show(f"{name}: {topics} topics of {most} ledgers", of_kind)
    return total


def show(name: str, figures: Figures) -> None:
    """Print the figures of one kind of topic."""
    differ = ", ".join(f"{reason} {count}" for reason, count in sorted(figures.differ.items())) or "nothing"
    print(
        f"{name}: {figures.questions} questions, {figures.answers} answers, {len(figures.wrong)} wrong",
        flush=True,
    )
    print(f"    statuses {dict(figures.statuses.most_common())}; differ by {differ}", flush=True)
    for line in figures.wrong[:5]:
        print(f"    {line}")


if __name__ == "__main__":
    # Spark's workers can't import `__main__`.
    from tests import seek_questions

    seek_questions.main()
