"""Where in a store a thing lies that is called by its name, so that nobody types `%2F`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, SCALABLE_TOPICS, TopicName, ledger_path
from pulsar_meta.jobs.topics.partitions import named_scalable, named_topics, with_cursor
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.stores.base import Store, joined

WORDS = ("topic", "cursor", "ledger", "namespace", "broker")
# What lies at the top of a store.
ROOTS = (
    *("admin", "counters", "ledgers", "loadbalance", "managed-ledgers"),
    *("namespace", "pulsar", "schemas", "topics", "txn"),
)
NOUNS = "a path, `topic NAME`, `cursor TOPIC NAME`, `ledger ID`, `namespace TENANT/NAMESPACE` or `broker ID`"


def path_of(words: Sequence[str]) -> str:
    """Return the path that words such as `topic public/default/orders` mean; UsageError for others."""
    match list(words):
        case [path] if path.startswith("/"):
            return path.rstrip("/") or "/"
        case ["topic", name]:
            return TopicName.parse(name).path
        case ["cursor", topic, name]:
            return TopicName.parse(topic).cursor_path(name)
        case ["ledger", text] if text.isdecimal():
            return ledger_path(int(text))
        case ["namespace", name] if len(name.split("/")) in (2, 3):
            return f"{POLICIES}/{name}"
        case ["broker", name] if "/" not in name:
            return f"/loadbalance/brokers/{name}"
    raise UsageError(f"{' '.join(words)!r}: expected {NOUNS}{_correction(words)}")


def one_path_of(store: Store, words: Sequence[str]) -> str:
    """Return what `path_of` does; UsageError, too, for a scalable topic, which is several."""
    match list(words):
        case ["topic", name] | ["cursor", name, _]:
            scalable = named_scalable(store, TopicName.parse(name))
            if scalable is not None:
                count, path = len(scalable.segments), scalable.name.path
                raise UsageError(f"{name} has {count} segments: name one, or their list {path}")
    return path_of(words)


def _correction(words: Sequence[str]) -> str:
    """Return what was probably meant: a path without its first slash, or a topic's name alone."""
    match list(words):
        case [text] if text.partition("/")[0] in ROOTS:
            return f"; did you mean /{text}?"
        case [text] if text and "//" not in text.partition("://")[2]:
            return f"; did you mean topic {text}?"
        case [word, *rest] if rest and word not in WORDS and (near := get_close_matches(word, WORDS, 1)):
            return f"; did you mean {' '.join([near[0], *rest])}?"
    return ""


def places_below(store: Store, words: Sequence[str]) -> list[str]:
    """Return where to look for what lies below that which words mean, else as `paths_of`.

    Below a namespace lie its topics, by domain; what `get` shows of it are its policies.
    """
    match list(words):
        case ["namespace", _]:
            policies = path_of(words)
            topics = MANAGED_LEDGERS + policies.removeprefix(POLICIES)
            return [joined(topics, domain) for domain in store.children(topics)] or [policies]
    return paths_of(store, words)


def places_listed(store: Store, words: Sequence[str]) -> list[str]:
    """Return what `places_below` does, but for a namespace's segments the records of their topics."""
    match list(words):
        case ["namespace", name]:
            scalable = f"{SCALABLE_TOPICS}/{name}"
            paths = [path for path in places_below(store, words) if not path.endswith("/segment")]
            return [*paths, scalable] if store.children(scalable) else paths
    return places_below(store, words)


def paths_of(store: Store, words: Sequence[str]) -> list[str]:
    """Return what `path_of` does, but of a partitioned or scalable topic the paths of its parts."""
    match list(words):
        case ["topic", name]:
            return [topic.path for topic in named_topics(store, TopicName.parse(name))]
        case ["cursor", name, cursor]:
            return [topic.cursor_path(cursor) for topic in _with_cursor(store, name, cursor)]
    return [path_of(words)]


def _with_cursor(store: Store, name: str, cursor: str) -> list[TopicName]:
    """Return where a cursor should lie; of a scalable topic's segments those that have it, where any has."""
    topics = named_topics(store, TopicName.parse(name))
    if not any(topic.scalable_topic for topic in topics):
        return topics
    return with_cursor(store, topics, cursor) or topics
