"""Turn indexes and times into limits on the entries of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Limits, Place
from pulsar_meta.jobs.seek.questions import FIRST_INDEX, INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.seek import Seeker, plan_of_ledgers
from pulsar_meta.jobs.seek.statuses import FOUND, MISSING, UNKNOWN, UNREADABLE
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

    Reports an index or time that no entry has (for a scalable topic, none of its segments). Raises
    UsageError for ledgers named by number, because only a topic has an order.
    """
    missed: dict[Question, NotFoundError] = {}
    somewhere: set[Question] = set()
    for choice in choices:
        if not choice.is_topic:
            raise UsageError(f"{choice.name}: an index and a time are looked for in topics")
        seeker = Seeker(plan_of_ledgers(choice.name, choice.ledgers, FIRST_INDEX), source, SeekOptions())
        named = choice.scalable_topic or choice.name
        questions = [Question(named, INDEX, index) for index in indexes]
        if time is not None:
            questions.append(Question(named, TIME, time))
        # The topic is counted once.
        once = choice
        for question in questions:
            answer = seeker.ask(question)
            if answer["status"] != FOUND:
                what = f"{question.kind} {question.target}"
                error = NotFoundError(f"no entry for {what}: {answer['status']}", source=choice.name)
                if choice.scalable_topic is None or answer["status"] in (MISSING, UNKNOWN, UNREADABLE):
                    report(error)
                else:
                    missed[question] = error
                continue
            somewhere.add(question)
            found = Bound(answer["entry_id"], answer["ledger_id"])
            yield once, replace(limits, first=found, last=found if question.kind == INDEX else limits.last)
            once = replace(choice, is_topic=False)
    for question, error in missed.items():
        if question not in somewhere:
            report(error)
