"""Paths in a store: names instead of encoded paths, counters, and what is left out of a copy.

A counter must never give out a number twice. A reused ledger id overwrites entries, and a reused producer
name makes
brokers drop messages as duplicates. Ledger ids are the numbers of nodes below `/ledgers/idgen`; once these
end at
2^31 - 1, an id has the highest `HOB-` number below `/ledgers/idgen-long` in its high 32 bits and the number
of a node
below that one in its low 31.

A copy leaves out what sessions, brokers, bookies and servers create themselves.

Sources: apache/pulsar PulsarLedgerIdGenerator.java, DistributedIdGenerator.java, BrokerService.java,
LoadManager.java, LoadDataStore, ModularLoadManagerImpl (`/loadbalance`), MigrationState.java;
apache/bookkeeper
DiscoveryLayer (`available`), ZkLedgerUnderreplicationManager.java, ZkLedgerAuditorManager.java.
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
            return [child_path(topics, domain) for domain in store.children(topics)] or [policies]
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


IDGEN: Final = f"{LEDGERS}/idgen"
IDGEN_LONG: Final = f"{LEDGERS}/idgen-long"
PRODUCER_NAMES: Final = "/counters/producer-name"

_bucket_re = re.compile(rf"^{IDGEN_LONG}/HOB-(\d+)$")


def read_counters(store: Store, buckets: Iterable[int]) -> dict[str, int]:
    """Return by path which number comes next, for the counters that a store has, or that its copy noted.

    `buckets` are the numbers of its `HOB-` nodes.
    """
    long = [bucket_path(number) for number in buckets]
    found = {path: store.next_sequence(path) for path in (IDGEN, *long, PRODUCER_NAMES)}
    return {path: number for path, number in found.items() if number is not None}


def long_buckets(store: Store) -> list[int]:
    """Return the numbers of the `HOB-` nodes, empty where ledger ids are those of `/ledgers/idgen`."""
    paths = (f"{IDGEN_LONG}/{name}" for name in store.children(IDGEN_LONG))
    return sorted(number for path in paths if (number := bucket_of(path)) is not None)


def bucket_of(path: str) -> int | None:
    """Return the number of the `HOB-` node at `path`, None for any other."""
    match = _bucket_re.match(path)
    return None if match is None else int(match[1])


def bucket_path(number: int) -> str:
    """Return the path of the `HOB-` node of that number."""
    return f"{IDGEN_LONG}/HOB-{number:010d}"


EPHEMERAL: Final = "live as long as the session of a broker or bookie"
# Brokers register their bundles here. A copy may lack the mark of a session.
_OWNER_RE: Final = re.compile(r"^/namespace/.+/0x[0-9a-fA-F]{8}_0x[0-9a-fA-F]{8}$")
NUMBERED: Final = "nodes that only count; the counters are moved forward apart"
# What lies at and below a path, and why it stays out.
LEFT_OUT: Final[dict[str, str]] = {
    "/zookeeper": "ZooKeeper's own nodes",
    "/loadbalance": "load of brokers and bundles, which brokers measure anew",
    IDGEN: NUMBERED,
    PRODUCER_NAMES: NUMBERED,
    f"{LEDGERS}/available": "bookies that run, which register by themselves",
    f"{LEDGERS}/underreplication/locks": "held by replicators at work",
    f"{LEDGERS}/underreplication/auditorelection": "votes of bookies that run",
    "/pulsar/migration-coordinator": "the state of a move of the other store (PIP-454)",
}
# Where BookKeeper's own driver for ZooKeeper expects bookies, and makes no node but theirs.
REGISTRIES: Final = (f"{LEDGERS}/available", f"{LEDGERS}/available/readonly")
# Below these, people keep their settings.
KEPT: Final = ("/loadbalance/resource-quota",)


def why_left_out(held: Versioned) -> str | None:
    """Return why a value is no part of a copy, None where it is."""
    path = held.path
    if held.ephemeral or _OWNER_RE.match(path):
        return EPHEMERAL
    if path == "/":
        return "the root itself"
    if path.startswith(f"{IDGEN_LONG}/") and path.count("/") > IDGEN_LONG.count("/") + 1:
        return NUMBERED
    for place, why in LEFT_OUT.items():
        if is_within(path, place) and not any(is_within(path, kept) for kept in KEPT):
            return why
    return None


def copied(store: Store) -> Iterator[Versioned]:
    """Yield the values of a store that are part of a copy, as the store scans them."""
    return (held for held in store.scan() if why_left_out(held) is None)


def registries(store: Store) -> list[Versioned]:
    """Return the nodes without which no bookie starts in a store that has BookKeeper's metadata.

    Source: apache/bookkeeper ZKRegistrationManager.java (initNewCluster, doRegisterBookie).
    """
    return [Versioned(path, b"", ABSENT) for path in REGISTRIES] if store.needs_parents else []
