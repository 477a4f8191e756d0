"""Choose topics and cursors: by name, by glob, by namespace, or all; with partitions and segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import (
    LEDGERS,
    MANAGED_LEDGERS,
    TopicName,
    encode_name,
    split_managed_ledger_path,
)
from pulsar_meta.jobs.topics.nearest import did_you_mean, nearest_name
from pulsar_meta.jobs.topics.once import Once
from pulsar_meta.jobs.topics.segments import GLOB, read_scalable, scalable_topics
from pulsar_meta.stores.base import ABSENT, Store, Versioned

# From so many on, what there is gets listed instead of each of them being asked for.
MANY: Final = 1000
# Pulsar itself refuses fewer by default; more is a mistake, or meant to keep somebody busy.
MOST: Final = 1_000_000


def named_topics(store: Store, name: TopicName) -> list[TopicName]:
    """Return the topic itself, its partitions or its segments in order, whether or not they have a record.

    Of very many partitions those that have one, and the first that has none. DecodeError where the metadata
    of a partitioned topic (PartitionedTopicMetadata, JSON) or of a scalable one makes no sense, UsageError
    where a name without its domain is that of two topics.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments]
    count = partition_count(store, name)
    if count > MANY:
        found = partitions_with_record(store, name, count)
        missing = next(
            (number for number, topic in enumerate(found) if topic.partition != number), len(found)
        )
        return [*found, *([name.with_partition(missing)] if missing < count else [])]
    return _each(name, count)


def _each(name: TopicName, count: int) -> list[TopicName]:
    return [name.with_partition(number) for number in range(count)] if count else [name]


def named_scalable(store: Store, name: TopicName) -> ScalableTopic | None:
    """Return the scalable topic that a name stands for, None where it is another topic's.

    UsageError where it says no domain, and a persistent topic that was not migrated has it too.
    """
    if name.domain != "topic" and not name.short:
        return None
    scalable = read_scalable(store, name)
    if scalable is None or name.domain == "topic":
        return scalable
    migrated = {segment.topic for segment in scalable.segments if segment.is_migrated}
    count = partition_count(store, name)
    olds = {name.with_partition(number) for number in range(count)} or {name}
    if not olds <= migrated and (count or _is_there(store, name)):
        raise UsageError(f"two topics have this name: say {name} or {scalable.name}", source=store.url)
    return scalable


def with_cursor(store: Store, topics: Sequence[TopicName], cursor: str) -> list[TopicName]:
    """Return those of some topics that have a subscription of this name."""
    cursors = store.children_many([topic.path for topic in topics])
    return [topic for topic, names in zip(topics, cursors, strict=True) if encode_name(cursor) in names]


def _is_there(store: Store, topic: TopicName) -> bool:
    return store.read_many([topic.path])[0] is not None


def partition_count(store: Store, name: TopicName) -> int:
    """Return the number of partitions, 0 for a topic that has none."""
    path = name.partitioned_path
    try:
        value = store.read(path).value
    except NotFoundError:
        return 0
    count = read_json_object(value, source=path).get("partitions")
    if type(count) is not int or not 0 <= count <= MOST:
        raise DecodeError(f"expected a number of partitions, found {shown(count)}", source=path)
    return count


def held_partitions(store: Store, name: TopicName) -> tuple[list[TopicName], int]:
    """Return the partitions to ask for, in order, and how many more have no record.

    Of few all are returned, so that each that is missing can be named. Without partitions the topic itself,
    of a scalable topic its segments. Raises what `named_topics` does.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments], 0
    count = partition_count(store, name)
    if count <= MANY:
        return _each(name, count), 0
    found = partitions_with_record(store, name, count)
    return found, count - len(found)


def partitions_with_record(store: Store, name: TopicName, count: int) -> list[TopicName]:
    """Return the partitions below that number that have a record, in order, by one listing."""
    parent, _, first = name.with_partition(0).path.rpartition("/")
    prefix = first.removesuffix("0")
    ends = (child.removeprefix(prefix) for child in store.children(parent) if child.startswith(prefix))
    numbers = sorted(int(end) for end in ends if end.isdecimal() and str(int(end)) == end)
    return [name.with_partition(number) for number in numbers if number < count]


# The two kinds of records that a topic has.
Kind = Literal["cursor", "ledger"]
POLICIES = "/admin/policies"
# Of what Pulsar and BookKeeper keep.
_ROOTS = (MANAGED_LEDGERS, "/admin", LEDGERS, "/schemas", "/topics")


@dataclass(frozen=True, slots=True)
class Scope:
    """Tenants, namespaces (`tenant/namespace`), topics and cursors, each by name or glob; empty: all.

    A partitioned topic's name stands for its partitions too, a scalable topic's for its segments.
    """

    tenants: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    cursors: tuple[str, ...] = ()

    def holds(self, topic: TopicName, cursor: str | None) -> bool:
        """Return whether a topic, or one of its cursors, is meant."""
        return (
            _matches(topic.tenant, self.tenants)
            and _matches(topic.namespace_name, self.namespaces)
            and (not self.topics or any(_is_topic(topic, pattern) for pattern in self.topics))
            and (cursor is None or _matches(cursor, self.cursors))
        )

    def prefixes(self, store: Store) -> list[str]:
        """Return where in the store to look, none below another, in the order in which it is named."""
        found = [path for pattern in self.topics for path in _topic_prefixes(store, pattern)]
        found = found or [_below(pattern) for pattern in self.namespaces or self.tenants]
        found = list(dict.fromkeys(found or [MANAGED_LEDGERS]))
        whole = set(found)
        return [one for one in found if not any(parent in whole for parent in _parents(one))]


def select(store: Store, scope: Scope, kind: Kind) -> Iterator[Versioned]:
    """Yield the cursors or the ledger records of a scope, as the store scans them.

    Raises what `named_scalable` does.
    """
    scope = with_segments(store, scope)
    for prefix in scope.prefixes(store):
        yield from _of_scope(store.scan(prefix), scope, kind)


def with_segments(store: Store, scope: Scope) -> Scope:
    """Return a scope that names the segments of the scalable topics that it means."""
    names = (name for pattern in scope.topics for name in _segment_names(store, pattern))
    return replace(scope, topics=tuple(dict.fromkeys(names)))


def _segment_names(store: Store, pattern: str) -> list[str]:
    """Return the names of the segments that a name or glob means, and itself where it means others, too."""
    if not is_pattern(store, pattern):
        scalable = named_scalable(store, TopicName.parse(pattern))
        return [pattern] if scalable is None else [str(segment.topic) for segment in scalable.segments]
    meant = "" if "://" in pattern and not pattern.startswith("topic://") else _full(pattern, "topic")
    found = scalable_topics(store, lambda error: None, meant) if meant else ()
    names = [str(segment.topic) for scalable in found for segment in scalable.segments]
    return names if names and pattern.startswith("topic://") else [pattern, *names]


def chosen_topics(store: Store, names: Sequence[str], *, everything: bool = False) -> Iterator[Versioned]:
    """Yield the record of each topic, once.

    A name is a topic's, or with one slash (`tenant/namespace`) a namespace's; globs are taken. UsageError
    for no name, NotFoundError for one that no topic has.
    """
    if everything == bool(names):
        raise UsageError("which topics? Name topics or namespaces (tenant/namespace), or give --all")
    if everything:
        return select(store, Scope(), "ledger")
    return each_once([_found(store, name) for name in names])


def _found(store: Store, name: str) -> Iterator[Versioned]:
    """Yield the records of topics that a name means; NotFoundError for none."""
    scope, found = scope_of(name), False
    for record in select(store, scope, "ledger"):
        found = True
        yield record
    if not found:
        raise NotFoundError(f"no topic {name}{_suggestion(store, scope)}", source=store.url)


def each_once(several: Sequence[Iterable[Versioned]]) -> Iterator[Versioned]:
    """Yield what several selections select, each value once; one alone has each once as it is."""
    if len(several) == 1:
        yield from several[0]
        return
    taken = Once()
    for values in several:
        yield from (value for value in values if taken.is_new(value.path))


def select_listed(store: Store, lines: Iterable[str], scope: Scope, kind: Kind) -> Iterator[Versioned]:
    """Yield the same for topics (by name or glob), or paths of single values, listed a line each.

    Each value comes once. What is listed and not there comes as an absent one.
    """
    taken = Once()
    for name in filter(None, map(str.strip, lines)):
        for value in _listed(store, name, kind):
            if taken.is_new(value.path):
                yield from [value] if value.version == ABSENT else _of_scope([value], scope, kind)


def is_namespace(name: str) -> bool:
    """Return whether a name is `tenant/namespace`: no topic's name has one slash alone."""
    return "://" not in name and name.count("/") == 1


def scope_of(name: str) -> Scope:
    """Return what a topic's name, a namespace's (`tenant/namespace`) or a glob of either stands for."""
    return Scope(namespaces=(name,)) if is_namespace(name) else Scope(topics=(name,))


def check_named(store: Store, scope: Scope) -> None:
    """Raise NotFoundError where a topic, namespace, tenant or cursor that is named (no glob) is not there.

    UsageError for a namespace without its tenant.
    """
    for name in scope.namespaces:
        if "/" not in name and not is_glob(name):
            raise UsageError(f"{name!r}: a namespace is tenant/namespace")
    topics = [TopicName.parse(name) for name in scope.topics if not is_glob(name)]
    names = [(f"topic {topic}", _places(topic)) for topic in topics]
    for kind, others in (("namespace", scope.namespaces), ("tenant", scope.tenants)):
        plain = [name for name in others if not is_glob(name)]
        names += [(f"{kind} {name}", (_below(name), f"{POLICIES}/{name}")) for name in plain]
    for name, paths in names:
        if not any(is_there(store, path) for path in paths):
            raise NotFoundError(f"no {name}{did_you_mean(store, paths[0])}", source=store.url)
    _check_cursors(store, scope)


def check_selected(store: Store, scope: Scope, kind: Kind) -> None:
    """Raise what `check_named` does, and NotFoundError where a pattern fits nothing, or there is no topic."""
    check_named(store, scope)
    if _has_any(store, scope, kind) or (not scope.cursors and _has_any(store, scope, "ledger")):
        return
    names = (*scope.topics, *scope.namespaces, *scope.tenants, *scope.cursors)
    raise NotFoundError(f"nothing named {', '.join(names)}" if names else "no topics here", source=store.url)


def _has_any(store: Store, scope: Scope, kind: Kind) -> bool:
    return next(iter(select(store, scope, kind)), None) is not None


def _places(topic: TopicName) -> tuple[str, ...]:
    """Return the paths of which one is there where a topic of this name is."""
    scalable = (topic.as_scalable.path,) if topic.short else ()
    return (topic.path, topic.partitioned_path, *scalable)


def _suggestion(store: Store, scope: Scope) -> str:
    paths = scope.prefixes(store)
    return did_you_mean(store, paths[0]) if paths else ""


def _check_cursors(store: Store, scope: Scope) -> None:
    """Raise NotFoundError where a cursor that is named (no glob) is one of no topic of the scope."""
    wanted = {name for name in scope.cursors if GLOB.isdisjoint(name)}
    seen: set[str] = set()
    values = select(store, replace(scope, cursors=()), "cursor") if wanted else ()
    for held in values:
        place = managed_place(held.path, held.value)
        name = place[1] if place is not None else None
        if name is not None:
            wanted.discard(name)
            seen.add(name)
        if not wanted:
            return
    for name in sorted(wanted):
        raise NotFoundError(f"no topic has a cursor {name}{nearest_name(name, seen)}", source=store.url)


def is_there(store: Store, path: str) -> bool:
    """Return whether a store has any value at or below a path."""
    return next(iter(store.scan(path)), None) is not None


def check_inhabited(store: Store) -> None:
    """Raise NotFoundError for a store without anything of Pulsar or BookKeeper: a wrong path, or chroot."""
    if not any(is_there(store, path) for path in _ROOTS):
        raise NotFoundError("nothing of Pulsar or BookKeeper is here", source=store.url)


def _listed(store: Store, name: str, kind: Kind) -> Iterator[Versioned]:
    if name.startswith("/"):
        yield _one(store, name)
        return
    found, scope = False, Scope(topics=(name,))
    for value in select(store, scope, kind):
        found = True
        yield value
    if found or (is_glob(name) and _has_any(store, scope, "ledger")):
        return
    path = TopicName.parse(name).path
    if is_glob(name) or not is_there(store, path):
        yield Versioned(path, b"", ABSENT)


def _of_scope(values: Iterable[Versioned], scope: Scope, kind: Kind) -> Iterator[Versioned]:
    for value in values:
        place = managed_place(value.path, value.value)
        if place is not None and (place[1] is None) == (kind == "ledger") and scope.holds(*place):
            yield value


def _one(store: Store, path: str) -> Versioned:
    if split_managed_ledger_path(path) is None:
        raise UsageError(f"{path}: not the path of a topic or a cursor")
    try:
        return store.read(path)
    except NotFoundError:
        return Versioned(path, b"", ABSENT)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def is_glob(pattern: str) -> bool:
    """Return whether a name is a pattern for several."""
    return not GLOB.isdisjoint(pattern)


def is_pattern(store: Store, name: str) -> bool:
    """Return whether a name is a pattern, and not the full name of a scalable topic with such signs in it."""
    if not name.startswith("topic://"):
        return is_glob(name)
    return is_glob(name) and read_scalable(store, TopicName.parse(name)) is None


def _is_topic(topic: TopicName, pattern: str) -> bool:
    if is_glob(pattern):
        return fnmatchcase(str(topic), _full(pattern))
    named = TopicName.parse(pattern)
    number = topic.partition
    return topic == named or (number is not None and topic == named.with_partition(number))


def _full(pattern: str, domain: str = "persistent") -> str:
    if "://" in pattern:
        return pattern
    return f"{domain}://{pattern if '/' in pattern else f'public/default/{pattern}'}"


def _topic_prefixes(store: Store, pattern: str) -> list[str]:
    if is_glob(pattern):
        return [_below(_full(pattern).partition("://")[2].rpartition("/")[0])]
    topic = TopicName.parse(pattern)
    count = partition_count(store, topic)
    if count > MANY:
        return [topic.path.rpartition("/")[0]]
    return [topic.path, *(topic.with_partition(number).path for number in range(count))]


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _below(name: str) -> str:
    """Return the path of the leading parts of `name` that are no globs."""
    path = MANAGED_LEDGERS
    for part in name.split("/"):
        if not part or is_glob(part):
            break
        path = f"{path}/{part}"
    return path
