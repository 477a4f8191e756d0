"""Where in topics an index or a time is, as limits upon the entries that are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.entries.entry_choice import Bound, Choice, Limits
from pulsar_meta.jobs.seek.questions import FIRST_INDEX, INDEX, TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.seeker import Seeker, plan_of_ledgers
from pulsar_meta.jobs.topics.topic import Report


def places(
    choices: Iterable[Choice],
    indexes: Sequence[int],
    time: int | None,
    limits: Limits,
    source: EntrySource,
    report: Report,
) -> Iterator[tuple[Choice, Limits]]:
    """Yield each topic with the limits that show what is asked for: one entry an index, all from `time` on.

    What is nowhere is reported. UsageError for ledgers named by number: only a topic has an order.
    """
    for choice in choices:
        if not choice.is_topic:
            raise UsageError(f"{choice.name}: an index and a time are looked for in topics")
        seeker = Seeker(plan_of_ledgers(choice.name, choice.ledgers, FIRST_INDEX), source, SeekOptions())
        questions = [Question(choice.name, INDEX, index) for index in indexes]
        if time is not None:
            questions.append(Question(choice.name, TIME, time))
        # The topic is counted once.
        once = choice
        for question in questions:
            answer = seeker.ask(question)
            if answer["status"] != "found":
                what = f"{question.kind} {question.target}"
                report(NotFoundError(f"no entry for {what}: {answer['status']}", source=choice.name))
                continue
            found = Bound(answer["entry_id"], answer["ledger_id"])
            yield once, replace(limits, first=found, last=found if question.kind == INDEX else limits.last)
            once = replace(choice, is_topic=False)
