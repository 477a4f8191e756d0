"""Where in a store a thing lies that is called by its name, so that nobody types `%2F`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName, ledger_path
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.jobs.topics.scope import POLICIES
from pulsar_meta.stores.base import Store, joined

WORDS = ("topic", "cursor", "ledger", "namespace", "broker")
# What lies at the top of a store.
ROOTS = ("admin", "counters", "ledgers", "loadbalance", "managed-ledgers", "namespace", "pulsar", "schemas")
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


def paths_of(store: Store, words: Sequence[str]) -> list[str]:
    """Return what `path_of` does, but for the name of a partitioned topic the path of each partition."""
    match list(words):
        case ["topic", name]:
            return [topic.path for topic in named_topics(store, TopicName.parse(name))]
        case ["cursor", name, cursor]:
            return [topic.cursor_path(cursor) for topic in named_topics(store, TopicName.parse(name))]
    return [path_of(words)]
