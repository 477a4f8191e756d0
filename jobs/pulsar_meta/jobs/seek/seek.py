"""Seek: from questions (a topic, and an index or a time) to answers (a position, or why there is none).

The metadata says where a topic's entries are (`topic_plan`), a `Seeker` searches among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pulsar_meta.codecs.errors import NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import TopicName, encode_name
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.jobs.seek.questions import Question, SeekOptions
from pulsar_meta.jobs.seek.seeker import Note, Seeker, plan_topic
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.jobs.topics.scope import chosen_topics
from pulsar_meta.stores.base import Store


@dataclass(frozen=True, slots=True)
class Cluster:
    """A store and the entries behind it; `name` is what answers call it, None where it goes unnamed."""

    store: Store
    source: EntrySource
    urls: tuple[str, ...]
    name: str | None = None

    def named(self, answer: Document) -> Document:
        """Return an answer that names its cluster."""
        return answer if self.name is None else {"cluster": self.name, **answer}


def expand(store: Store, questions: Iterable[Question]) -> Iterator[Question]:
    """Yield the questions with the full names of topics, one for each partition of a partitioned topic."""
    names: dict[str, list[str]] = {}
    for question in questions:
        if question.topic not in names:
            parsed = TopicName.parse(question.topic)
            names[question.topic] = [str(topic) for topic in named_topics(store, parsed)]
        for name in names[question.topic]:
            yield replace(question, topic=name)


def seek(
    store: Store, source: EntrySource, questions: Iterable[Question], options: SeekOptions, note: Note
) -> Iterator[Document]:
    """Yield the answers in the order of the questions; `note` gets what a person should know.

    UsageError for a name that is no topic's, NotFoundError for a cursor that does not exist,
    UnreachableError where store or source do not answer.
    """
    seekers: dict[str, Seeker] = {}
    for question in expand(store, questions):
        if question.topic not in seekers:
            plan = plan_topic(store, source, TopicName.parse(question.topic), options, note)
            seekers[question.topic] = Seeker(plan, source, options)
        yield seekers[question.topic].ask(question)


def seek_clusters(
    asked: Iterable[tuple[Cluster, Sequence[Question]]], options: SeekOptions, note: Note
) -> Iterator[Document]:
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
    found = (TopicName.from_path(record.path) for record in chosen_topics(store, [namespace]))
    topics = [topic for topic in found if topic is not None]
    if cursor is not None:
        cursors = store.children_many([topic.path for topic in topics])
        topics = [topic for topic, names in zip(topics, cursors, strict=True) if encode_name(cursor) in names]
        if not topics:
            raise NotFoundError(f"no topic of {namespace} has a cursor {cursor!r}", source=store.url)
    return sorted(str(topic) for topic in topics)
