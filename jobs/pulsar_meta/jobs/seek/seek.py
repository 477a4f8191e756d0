"""Seek: from questions (a topic, and an index or a time) to answers (a position, or why there is none).

The metadata says where a topic's entries are (`plan_topic`), a `Seeker` searches among them. The segments
of a scalable topic are asked one by one: each counts its own indexes, so that each has an answer, but a time
is one for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import TopicName
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.questions import TIME, Question, SeekOptions
from pulsar_meta.jobs.seek.readable import OPEN
from pulsar_meta.jobs.seek.search import FOUND, MISSING, UNKNOWN, UNREADABLE
from pulsar_meta.jobs.seek.seeker import NO_TOPIC, Note, SeekAnswer, Seeker, plan_topic
from pulsar_meta.jobs.topics.scope import chosen_topics, named_topics, with_cursor
from pulsar_meta.jobs.topics.segments import ScalableTopics
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class Cluster:
    """A store and the entries behind it; `name` is what answers call it, None where it goes unnamed."""

    store: Store
    source: EntrySource
    urls: tuple[str, ...]
    name: str | None = None

    def named(self, answer: SeekAnswer) -> SeekAnswer:
        """Return an answer that names its cluster."""
        return answer if self.name is None else {"cluster": self.name, **answer}


def expand(store: Store, questions: Iterable[Question], cursor: str | None, note: Note) -> Iterator[Question]:
    """Yield the questions with the full names of topics, one for each partition or segment of a topic.

    Of a scalable topic, with a cursor, those segments are asked that have it: `note` is given a line about
    the others, unless none has it.
    """
    scalable_topics = ScalableTopics(store)
    named: dict[str, list[TopicName]] = {}
    for question in questions:
        name = TopicName.parse(question.topic)
        if question.topic not in named:
            topics = named_topics(store, name)
            named[question.topic] = topics if cursor is None else _asked(store, topics, cursor, note)
        topics = named[question.topic]
        # A segment that was named by itself is asked alone.
        whole = name.domain == "topic" or name.short
        over_all = whole and question.kind == TIME and question.time_to_live is None
        scalable_of = scalable_topics.of(topics)
        for topic in topics:
            scalable = scalable_of[topic]
            count = len(topics) if over_all and scalable else 1
            yield replace(question, topic=str(topic), scalable_topic=scalable, segments=count)


def _asked(store: Store, topics: list[TopicName], cursor: str, note: Note) -> list[TopicName]:
    if len(topics) < 2 or topics[0].scalable_topic is None:
        return topics
    kept = with_cursor(store, topics, cursor)
    if kept and len(kept) < len(topics):
        name, without = topics[0].scalable_topic, len(topics) - len(kept)
        note(f"{name}: {without} of its segments have no cursor {cursor!r} and are left out")
    return kept or topics


def joined(answered: Iterable[tuple[Question, SeekAnswer]]) -> Iterator[SeekAnswer]:
    """Yield the answers, one for a time in all segments of a scalable topic."""
    waiting = iter(answered)
    for question, answer in waiting:
        others = (found for _, found in islice(waiting, question.segments - 1))
        yield _earliest([answer, *others]) if question.segments > 1 else answer


def _earliest(answers: Sequence[SeekAnswer]) -> SeekAnswer:
    """Return the answer with the earliest time; else one not known, since then the earliest is not known.

    Where readers are given nothing, one that says for what they wait goes before one without any entry.
    """
    unsure = [answer for answer in answers if answer["status"] in (MISSING, UNREADABLE, UNKNOWN, NO_TOPIC)]
    found = [answer for answer in answers if answer["status"] == FOUND]
    waiting = [answer for answer in answers if answer["status"] == OPEN]
    chosen = unsure[0] if unsure else min(found, key=_time) if found else [*answers, *waiting][-1]
    return {**chosen, "entries_read": sum(answer["entries_read"] for answer in answers)}


def _time(answer: SeekAnswer) -> int:
    return answer["broker_timestamp"] if answer["clock"] == "broker" else answer["publish_time"] or 0


def seek(
    store: Store, source: EntrySource, questions: Iterable[Question], options: SeekOptions, note: Note
) -> Iterator[SeekAnswer]:
    """Yield the answers in the order of the questions; `note` gets what a person should know.

    UsageError for a name that is no topic's, NotFoundError for a cursor that does not exist,
    UnreachableError where store or source do not answer.
    """
    seekers: dict[str, Seeker] = {}
    asked = expand(store, questions, options.cursor, note)

    def ask(question: Question) -> SeekAnswer:
        if question.topic not in seekers:
            plan = plan_topic(store, source, TopicName.parse(question.topic), options, note)
            seekers[question.topic] = Seeker(plan, source, options)
        return seekers[question.topic].ask(question)

    yield from joined((question, ask(question)) for question in asked)


def seek_clusters(
    asked: Iterable[tuple[Cluster, Sequence[Question]]], options: SeekOptions, note: Note
) -> Iterator[SeekAnswer]:
    """Yield the answers cluster by cluster; raises what `seek` raises."""
    for cluster, questions in asked:
        for answer in seek(cluster.store, cluster.source, questions, options, note):
            yield cluster.named(answer)


def topics_of_namespace(store: Store, namespace: str, cursor: str | None = None) -> list[str]:
    """Return the names of a namespace's topics (those that have `cursor`), each partition by itself, sorted.

    UsageError for what is no `tenant/namespace`, NotFoundError where it has none.
    """
    if "://" in namespace or namespace.count("/") != 1 or not all(namespace.split("/")):
        raise UsageError(f"a namespace is tenant/namespace, not {namespace!r}")
    found = (managed_place(record.path, record.value) for record in chosen_topics(store, [namespace]))
    topics = [place[0] for place in found if place is not None]
    if cursor is not None:
        topics = with_cursor(store, topics, cursor)
        if not topics:
            raise NotFoundError(f"no topic of {namespace} has a cursor {cursor!r}", source=store.url)
    return sorted(str(topic) for topic in topics)
