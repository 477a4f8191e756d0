"""Where in a store a thing lies that is called by its name, so that nobody types `%2F`."""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import TopicName, ledger_path
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.stores.base import Store

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
            return f"/admin/policies/{name}"
        case ["broker", name] if "/" not in name:
            return f"/loadbalance/brokers/{name}"
    raise UsageError(f"{' '.join(words)!r}: expected {NOUNS}")


def paths_of(store: Store, words: Sequence[str]) -> list[str]:
    """Return what `path_of` does, but for the name of a partitioned topic the path of each partition."""
    match list(words):
        case ["topic", name]:
            return [topic.path for topic in named_topics(store, TopicName.parse(name))]
        case ["cursor", name, cursor]:
            return [topic.cursor_path(cursor) for topic in named_topics(store, TopicName.parse(name))]
    return [path_of(words)]
