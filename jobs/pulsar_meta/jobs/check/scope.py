"""The scope of a check: the whole store, or some topics and namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.scope import (
    Scope,
    check_inhabited,
    is_glob,
    is_namespace,
    is_there,
    named_topics,
    outermost,
    select,
    with_segments,
)
from pulsar_meta.stores.base import Store

_BY_NAMESPACE: Final = ("/admin/policies", "/admin/local-policies", "/admin/partitioned-topics", "/schemas")


@dataclass(frozen=True, slots=True)
class CheckScope:
    """The scopes of topics (none means all), and the paths below which their records and values are.

    `named` are topics that the user named, whether or not they have a record. `absent` are the scopes of
    names that nothing in the store has.
    """

    scopes: tuple[Scope, ...] = ()
    topic_prefixes: tuple[str, ...] = (MANAGED_LEDGERS,)
    value_prefixes: tuple[str, ...] = ("/admin", "/schemas")
    named: tuple[TopicName, ...] = ()
    absent: tuple[Scope, ...] = ()

    @property
    def everything(self) -> bool:
        """True if the scope is the whole store."""
        return not self.scopes

    def holds(self, topic: TopicName, cursor: str | None) -> bool:
        """Return True if a topic, or one of its cursors, is in the scope."""
        return self.everything or any(scope.holds(topic, cursor) for scope in self.scopes)


def check_scope(store: Store, names: Sequence[str]) -> CheckScope:
    """Return the scope of these topics, namespaces and globs of them; without names, of the whole store.

    Three parts without a domain are a V1 namespace if the store has one of that name.
    """
    scopes: list[Scope] = []
    absent: list[Scope] = []
    named: list[TopicName] = []
    topics: list[str] = []
    values: list[str] = []
    for name in names:
        scope = Scope(namespaces=(name,)) if _is_namespace(store, name) else _of_topics(store, name)
        scopes.append(scope)
        records, others = _topic_prefixes(store, scope), list(_value_prefixes(scope, name))
        topics += records
        values += others
        if scope.topics and not is_glob(name):
            named += _named_topics(store, TopicName.parse(name))
        if not _exists(store, scope, [*records, *others]):
            absent.append(scope)
    if not scopes:
        return CheckScope()
    topics, values = sorted(outermost(topics)), sorted(outermost(values))
    return CheckScope(tuple(scopes), tuple(topics), tuple(values), tuple(named), tuple(absent))


def ensure_found(store: Store, scope: CheckScope, absent: Sequence[Scope]) -> None:
    """Raise NotFoundError if `absent` has the scope of a name, or if the whole store has no metadata."""
    if scope.everything:
        check_inhabited(store)
    for each in absent:
        name = next(iter((*each.namespaces, *each.topics)))
        if each.namespaces or is_glob(name):
            raise NotFoundError(f"nothing matches {name}", source=store.url)
        raise missing(store, TopicName.parse(name).path)


def _exists(store: Store, scope: Scope, paths: Iterable[str]) -> bool:
    """Return True if a glob matches a topic, or if a name has any value at or below one of its paths."""
    if not any(map(is_glob, (*scope.namespaces, *scope.topics))):
        return any(is_there(store, path) for path in paths)
    try:
        return any(True for record in select(store, scope, "ledger"))
    except DecodeError:
        return True


def _value_prefixes(scope: Scope, name: str) -> Iterator[str]:
    """Yield the paths below which the values of a topic or namespace are, besides its records."""
    if is_glob(name):
        return
    if scope.namespaces:
        yield from (f"{parent}/{name}" for parent in _BY_NAMESPACE)
        return
    topic = TopicName.parse(name)
    base = topic.partitioned or topic
    yield base.partitioned_path
    yield base.schema_path


def _of_topics(store: Store, name: str) -> Scope:
    scope = Scope(topics=(name,))
    try:
        return with_segments(store, scope)
    except DecodeError:
        # The scalable topic's segments can't be read.
        return scope


def _topic_prefixes(store: Store, scope: Scope) -> list[str]:
    try:
        return scope.prefixes(store)
    except DecodeError:
        # The number of partitions can't be read, so every topic of that namespace is scanned.
        return [TopicName.parse(name).path.rpartition("/")[0] for name in scope.topics]


def _is_namespace(store: Store, name: str) -> bool:
    if is_namespace(name):
        return True
    if "://" in name or name.count("/") != 2 or is_glob(name):
        return False
    return is_there(store, f"{MANAGED_LEDGERS}/{name}") or is_there(store, f"/admin/policies/{name}")


def _named_topics(store: Store, name: TopicName) -> list[TopicName]:
    try:
        return named_topics(store, name)
    except DecodeError:
        return [name]
