"""Find the entries of topics with given indexes, and those from a time on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Limits, Place
from pulsar_meta.jobs.seek.questions import FIRST_INDEX, INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.readings import FOUND, MISSING, UNKNOWN, UNREADABLE
from pulsar_meta.jobs.seek.seek import Seeker, plan_of_ledgers
from pulsar_meta.jobs.topics.topic import Report


def places(
    choices: Iterable[Choice],
    indexes: Sequence[int],
    time: int | None,
    limits: Limits,
    source: EntrySource,
    report: Report,
) -> Iterator[Place]:
    """Yield each topic with limits: one entry per index, and all entries from `time` on.

    Ledgers that were given without a topic are searched in the order of their ids. If no entry has an index
    or time (for a scalable topic, in none of its segments), that is reported.
    """
    missed: dict[Question, NotFoundError] = {}
    answered: set[Question] = set()
    for choice in choices:
        seeker = Seeker(plan_of_ledgers(choice.name, choice.ledgers, FIRST_INDEX), source, SeekOptions())
        # Only the first place is a topic, so that the topic is counted once.
        counted = choice
        for question in _questions(choice, indexes, time):
            answer = seeker.ask(question)
            if answer["status"] == FOUND:
                answered.add(question)
                place = Bound(answer["entry_id"], answer["ledger_id"])
                last = place if question.kind == INDEX else limits.last
                yield counted, replace(limits, first=place, last=last)
                counted = replace(choice, is_topic=False)
                continue
            why = f"no entry for {question.kind} {question.target}: {answer['status']}"
            error = NotFoundError(why, source=choice.name)
            if choice.scalable_topic is None or answer["status"] in (MISSING, UNKNOWN, UNREADABLE):
                report(error)
            else:
                missed[question] = error
    for question, error in missed.items():
        if question not in answered:
            report(error)


def _questions(choice: Choice, indexes: Sequence[int], time: int | None) -> list[Question]:
    name = choice.scalable_topic or choice.name
    questions = [Question(name, INDEX, index) for index in indexes]
    return questions if time is None else [*questions, Question(name, TIME, time)]
