"""The scope of a check: the whole store, or some topics and namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
    with_segments,
)
from pulsar_meta.stores.base import Store

_BY_NAMESPACE: Final = ("/admin/policies", "/admin/local-policies", "/admin/partitioned-topics", "/schemas")


@dataclass(frozen=True, slots=True)
class CheckScope:
    """The scopes of topics (none means all), and the paths below which their records and values are.

    `named` are topics that the user named, whether or not they have a record.
    """

    scopes: tuple[Scope, ...] = ()
    topic_prefixes: tuple[str, ...] = (MANAGED_LEDGERS,)
    value_prefixes: tuple[str, ...] = ("/admin", "/schemas")
    named: tuple[TopicName, ...] = ()

    @property
    def everything(self) -> bool:
        """True if the scope is the whole store."""
        return not self.scopes

    def holds(self, topic: TopicName, cursor: str | None) -> bool:
        """Return True if a topic, or one of its cursors, is in the scope."""
        return self.everything or any(scope.holds(topic, cursor) for scope in self.scopes)


@dataclass(slots=True)
class _Places:
    topics: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    named: list[TopicName] = field(default_factory=list)


def check_scope(store: Store, names: Sequence[str]) -> CheckScope:
    """Return the scope of these topics, namespaces and globs of them; without names, of the whole store.

    Three parts without a domain are a V1 namespace if the store has one of that name.
    """
    if not names:
        return CheckScope()
    scopes, places = [], _Places()
    for name in names:
        scope = Scope(namespaces=(name,)) if _is_namespace(store, name) else _of_topics(store, name)
        scopes.append(scope)
        places.topics += _topic_prefixes(store, scope)
        if scope.namespaces and not is_glob(name):
            places.values += [f"{parent}/{name}" for parent in _BY_NAMESPACE]
        elif scope.topics and not is_glob(name):
            _add_topic(store, TopicName.parse(name), places)
    return CheckScope(
        tuple(scopes), _outermost(places.topics), _outermost(places.values), tuple(places.named)
    )


def ensure_not_empty(store: Store, scope: CheckScope, count: int) -> None:
    """Raise NotFoundError if the scope has no values and `count`, of its topics and findings, is 0."""
    if scope.everything:
        check_inhabited(store)
        return
    if count or any(is_there(store, path) for path in scope.value_prefixes):
        return
    if scope.named:
        raise missing(store, scope.named[0].path)
    name = next(iter((*scope.scopes[0].namespaces, *scope.scopes[0].topics)))
    raise NotFoundError(f"nothing matches {name}", source=store.url)


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


def _add_topic(store: Store, name: TopicName, places: _Places) -> None:
    try:
        topics = named_topics(store, name)
    except DecodeError:
        topics = [name]
    places.named += topics
    places.values += list(_values_of(name))


def _values_of(name: TopicName) -> Iterator[str]:
    base = name.partitioned or name
    yield base.partitioned_path
    yield base.schema_path


def _outermost(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that are not below another of them."""
    return tuple(sorted({path for path in paths if not any(path.startswith(f"{other}/") for other in paths)}))
