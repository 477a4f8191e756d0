"""Paths in a store: by name, of counters, and those that are left out of a copy.

A counter must never assign a number twice. A reused ledger id overwrites entries, and a reused producer name
makes brokers drop messages as duplicates. Ledger ids are the numbers of nodes below `/ledgers/idgen`. When
these end at 2^31 - 1, the high 32 bits of an id are the highest `HOB-` number below `/ledgers/idgen-long`,
and the low 31 bits are the number of a node below that one.

A copy leaves out values that sessions, brokers, bookies and servers create themselves.

Sources: apache/pulsar PulsarLedgerIdGenerator.java, DistributedIdGenerator.java, BrokerService.java,
LoadManager.java, LoadDataStore, ModularLoadManagerImpl (`/loadbalance`), MigrationState.java;
apache/bookkeeper DiscoveryLayer (`available`), ZkLedgerUnderreplicationManager.java,
ZkLedgerAuditorManager.java.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.names import LEDGERS, MANAGED_LEDGERS, SCALABLE_TOPICS, TopicName, ledger_path
from pulsar_meta.jobs.topics.scope import POLICIES, named_scalable, named_topics, with_cursor
from pulsar_meta.stores.base import ABSENT, Store, Versioned, child_path, is_within

WORDS = ("topic", "cursor", "ledger", "namespace", "broker")
# The top-level nodes of a store.
ROOTS = (
    *("admin", "counters", "ledgers", "loadbalance", "managed-ledgers"),
    *("namespace", "pulsar", "schemas", "topics", "txn"),
)
NOUNS = "a path, `topic NAME`, `cursor TOPIC NAME`, `ledger ID`, `namespace TENANT/NAMESPACE` or `broker ID`"


def path_of(words: Sequence[str]) -> str:
    """The path of words such as `topic public/default/orders`. Raises UsageError for other words."""
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
    """Like `path_of`, but raises UsageError for a scalable topic, because it has several records."""
    match list(words):
        case ["topic", name] | ["cursor", name, _]:
            scalable = named_scalable(store, TopicName.parse(name))
            if scalable is not None:
                count, path = len(scalable.segments), scalable.name.path
                raise UsageError(f"{name} has {count} segments: name one of them, or use their list {path}")
    return path_of(words)


def _correction(words: Sequence[str]) -> str:
    """Suggest a correction for a path without a slash, a topic name, quoted words or a misspelt word."""
    match list(words):
        case [text] if text.partition("/")[0] in ROOTS:
            return f"; did you mean /{text}?"
        case [text] if " " in text and text.split()[0] in WORDS:
            return f"; did you mean {text} without quotes?"
        case [text] if text and "//" not in text.partition("://")[2]:
            return f"; did you mean topic {text}?"
        case [word, *rest] if rest and word not in WORDS and (near := get_close_matches(word, WORDS, 1)):
            return f"; did you mean {' '.join([near[0], *rest])}?"
    return ""


def places_below(store: Store, words: Sequence[str]) -> list[str]:
    """The paths to list for the children of the named thing; otherwise like `paths_of`.

    A namespace contains its topics, by domain. (`get` shows its policies instead.)
    """
    match list(words):
        case ["namespace", _]:
            policies = path_of(words)
            topics = MANAGED_LEDGERS + policies.removeprefix(POLICIES)
            return [child_path(topics, domain) for domain in store.children(topics)] or [policies]
    return paths_of(store, words)


def places_listed(store: Store, words: Sequence[str]) -> list[str]:
    """Like `places_below`, but for segments in a namespace, the records of their scalable topics."""
    match list(words):
        case ["namespace", name]:
            scalable = f"{SCALABLE_TOPICS}/{name}"
            paths = [path for path in places_below(store, words) if not path.endswith("/segment")]
            return [*paths, scalable] if store.children(scalable) else paths
    return places_below(store, words)


def paths_of(store: Store, words: Sequence[str]) -> list[str]:
    """Like `path_of`, but for a partitioned or scalable topic, the paths of all its parts."""
    match list(words):
        case ["topic", name]:
            return [topic.path for topic in named_topics(store, TopicName.parse(name))]
        case ["cursor", name, cursor]:
            return [topic.cursor_path(cursor) for topic in _with_cursor(store, name, cursor)]
    return [path_of(words)]


def _with_cursor(store: Store, name: str, cursor: str) -> list[TopicName]:
    """The topics that may have a cursor.

    Of a scalable topic's segments, those that have it, unless none has it.
    """
    topics = named_topics(store, TopicName.parse(name))
    if not any(topic.scalable_topic for topic in topics):
        return topics
    return with_cursor(store, topics, cursor) or topics


IDGEN: Final = f"{LEDGERS}/idgen"
IDGEN_LONG: Final = f"{LEDGERS}/idgen-long"
PRODUCER_NAMES: Final = "/counters/producer-name"

_bucket_re = re.compile(rf"^{IDGEN_LONG}/HOB-(\d+)$")


def read_counters(store: Store, buckets: Iterable[int]) -> dict[str, int]:
    """Read the next number of each counter that a store has, or that a copy recorded, by path.

    `buckets` are the numbers of its `HOB-` nodes.
    """
    long = [bucket_path(number) for number in buckets]
    counters = {path: store.next_sequence(path) for path in (IDGEN, *long, PRODUCER_NAMES)}
    return {path: number for path, number in counters.items() if number is not None}


def long_buckets(store: Store) -> list[int]:
    """The numbers of the `HOB-` nodes; empty if ledger ids still come from `/ledgers/idgen`."""
    paths = (f"{IDGEN_LONG}/{name}" for name in store.children(IDGEN_LONG))
    return sorted(number for path in paths if (number := bucket_of(path)) is not None)


def bucket_of(path: str) -> int | None:
    """The number of the `HOB-` node at `path`; None for other paths."""
    match = _bucket_re.match(path)
    return None if match is None else int(match[1])


def bucket_path(number: int) -> str:
    """The path of the `HOB-` node with this number."""
    return f"{IDGEN_LONG}/HOB-{number:010d}"


EPHEMERAL: Final = "belong to the session of a broker or bookie"
# Brokers register their bundles here. In some copies, these nodes are not marked as ephemeral.
_OWNER_RE: Final = re.compile(r"^/namespace/.+/0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}$")
NUMBERED: Final = "nodes of counters, which are raised separately"
# Paths that are left out of a copy, with everything below them, and the reasons.
LEFT_OUT: Final[dict[str, str]] = {
    "/zookeeper": "ZooKeeper's own nodes",
    "/loadbalance": "load of brokers and bundles, which brokers measure again",
    IDGEN: NUMBERED,
    PRODUCER_NAMES: NUMBERED,
    f"{LEDGERS}/available": "running bookies, which register themselves",
    f"{LEDGERS}/underreplication/locks": "locks of running replicators",
    f"{LEDGERS}/underreplication/auditorelection": "votes of running bookies",
    "/pulsar/migration-coordinator": "the state of a migration of the other store (PIP-454)",
}
# Nodes in which BookKeeper's ZooKeeper driver registers bookies, but which it does not create.
REGISTRIES: Final = (f"{LEDGERS}/available", f"{LEDGERS}/available/readonly")
# Settings of operators.
KEPT: Final = ("/loadbalance/resource-quota",)


def why_left_out(value: Versioned) -> str | None:
    """The reason why a value does not belong in a copy; None if it does."""
    path = value.path
    if value.ephemeral or _OWNER_RE.match(path):
        return EPHEMERAL
    if path == "/":
        return "the root node"
    if path.startswith(f"{IDGEN_LONG}/") and path.count("/") > IDGEN_LONG.count("/") + 1:
        return NUMBERED
    for place, why in LEFT_OUT.items():
        if is_within(path, place) and not any(is_within(path, kept) for kept in KEPT):
            return why
    return None


def copied(store: Store) -> Iterator[Versioned]:
    """Yield the values of a store that belong in a copy, in the store's order."""
    return (value for value in store.scan() if why_left_out(value) is None)


def registries(store: Store) -> list[Versioned]:
    """The nodes that a store with BookKeeper metadata needs so that bookies can start.

    Source: apache/bookkeeper ZKRegistrationManager.java (initNewCluster, doRegisterBookie).
    """
    return [Versioned(path, b"", ABSENT) for path in REGISTRIES] if store.needs_parents else []
