"""What a check is about: everything, or some topics and namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.names import MANAGED_LEDGERS, TopicName
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.partitions import named_topics
from pulsar_meta.jobs.topics.scope import (
    Scope,
    check_inhabited,
    is_glob,
    is_namespace,
    is_there,
    with_segments,
)
from pulsar_meta.stores.base import Store

_BY_NAMESPACE: Final = ("/admin/policies", "/admin/local-policies", "/admin/partitioned-topics", "/schemas")


@dataclass(frozen=True, slots=True)
class CheckScope:
    """Topics by their scopes, none for all; where to look for them and for the values that go with them.

    `named` are topics that were asked for by name, whether or not they have a record.
    """

    scopes: tuple[Scope, ...] = ()
    topic_prefixes: tuple[str, ...] = (MANAGED_LEDGERS,)
    value_prefixes: tuple[str, ...] = ("/admin", "/schemas")
    named: tuple[TopicName, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether all that the store has is meant."""
        return not self.scopes

    def holds(self, topic: TopicName, cursor: str | None) -> bool:
        """Return whether a topic, or one of its cursors, is meant."""
        return self.everything or any(scope.holds(topic, cursor) for scope in self.scopes)


@dataclass(slots=True)
class _Places:
    topics: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    named: list[TopicName] = field(default_factory=list)


def check_scope(store: Store, names: Sequence[str]) -> CheckScope:
    """Return what these names stand for: topics, namespaces, globs of them; no names: everything.

    Three parts without a domain are a V1 namespace where the store has one of that name.
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


def check_there(store: Store, scope: CheckScope, found: int) -> None:
    """Raise NotFoundError where a scope has nothing: no topic, no ledger of one, no value."""
    if scope.everything:
        check_inhabited(store)
        return
    if found or any(is_there(store, path) for path in scope.value_prefixes):
        return
    if scope.named:
        raise missing(store, scope.named[0].path)
    name = next(iter((*scope.scopes[0].namespaces, *scope.scopes[0].topics)))
    raise NotFoundError(f"nothing named {name}", source=store.url)


def _of_topics(store: Store, name: str) -> Scope:
    scope = Scope(topics=(name,))
    try:
        return with_segments(store, scope)
    except DecodeError:
        # Which segments a scalable topic has cannot be read.
        return scope


def _topic_prefixes(store: Store, scope: Scope) -> list[str]:
    try:
        return scope.prefixes(store)
    except DecodeError:
        # How many partitions there are cannot be read: whatever has such a name is looked at.
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
    """Return the paths without those below another of them."""
    return tuple(sorted({one for one in paths if not any(one.startswith(f"{other}/") for other in paths)}))
