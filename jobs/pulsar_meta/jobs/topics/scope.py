"""Choose topics and cursors by name, glob or namespace, including partitions and segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, Literal

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import read_json_object, shown
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.metadata.scalable_topic import ScalableTopic
from pulsar_meta.codecs.names import (
    LEDGERS,
    MANAGED_LEDGERS,
    TopicName,
    encode_name,
    split_managed_ledger_path,
)
from pulsar_meta.jobs.spill import Dedup
from pulsar_meta.jobs.topics.nearest import did_you_mean, nearest_name
from pulsar_meta.jobs.topics.related import GLOB, read_scalable, scalable_topics
from pulsar_meta.stores.base import ABSENT, Store, Versioned, current, parents_of

# With more partitions than this, the existing records are listed instead of read one by one.
MANY: Final = 1000
# More partitions than this are rejected. Pulsar's own limit is lower by default.
MOST: Final = 1_000_000


def named_topics(store: Store, name: TopicName) -> list[TopicName]:
    """The topic itself, or its partitions or segments in order, with or without a record.

    If there are very many partitions, only those with a record and the first one without are returned. Raises
    DecodeError if the metadata of a partitioned topic (PartitionedTopicMetadata, JSON) or of a scalable topic
    is corrupt, and UsageError if a name without a domain is ambiguous.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments]
    count = partition_count(store, name)
    if count > MANY:
        existing = partitions_with_record(store, name, count)
        numbers = (number for number, topic in enumerate(existing) if topic.partition != number)
        missing = next(numbers, len(existing))
        return [*existing, *([name.with_partition(missing)] if missing < count else [])]
    return _each(name, count)


def _each(name: TopicName, count: int) -> list[TopicName]:
    return [name.with_partition(number) for number in range(count)] if count else [name]


def named_scalable(store: Store, name: TopicName) -> ScalableTopic | None:
    """Find the scalable topic with this name; None if the name belongs to another topic.

    Raises UsageError if the name has no domain, and a persistent topic that was not migrated has it, too.
    """
    if name.domain != "topic" and not name.short:
        return None
    scalable = read_scalable(store, name)
    if scalable is None or name.domain == "topic":
        return scalable
    migrated = {segment.topic for segment in scalable.segments if segment.is_migrated}
    count = partition_count(store, name)
    olds = {name.with_partition(number) for number in range(count)} or {name}
    if not olds <= migrated and (count or store.find(name.path) is not None):
        raise UsageError(f"two topics have this name; use {name} or {scalable.name}", source=store.url)
    return scalable


def with_cursor(store: Store, topics: Sequence[TopicName], cursor: str) -> list[TopicName]:
    """Select the topics with a subscription of this name."""
    cursors = store.children_many([topic.path for topic in topics])
    return [topic for topic, names in zip(topics, cursors, strict=True) if encode_name(cursor) in names]


def partition_count(store: Store, name: TopicName) -> int:
    """The number of partitions; 0 if the topic is not partitioned."""
    path = name.partitioned_path
    record = store.find(path)
    if record is None:
        return 0
    count = read_json_object(record.value, source=path).get("partitions")
    if type(count) is not int or not 0 <= count <= MOST:
        raise DecodeError(f"expected a number of partitions, found {shown(count)}", source=path)
    return count


def held_partitions(store: Store, name: TopicName) -> tuple[list[TopicName], int]:
    """The partitions to read, in order, and the number of further partitions without a record.

    If there are few, all are returned, so that each missing one can be named. Without partitions this is the
    topic itself, and for a scalable topic its segments. Raises like `named_topics`.
    """
    scalable = named_scalable(store, name)
    if scalable is not None:
        return [segment.topic for segment in scalable.segments], 0
    count = partition_count(store, name)
    if count <= MANY:
        return _each(name, count), 0
    existing = partitions_with_record(store, name, count)
    return existing, count - len(existing)


def partitions_with_record(store: Store, name: TopicName, count: int) -> list[TopicName]:
    """The partitions with a number below `count` that have a record, in order, found by one listing."""
    parent, _, first = name.with_partition(0).path.rpartition("/")
    prefix = first.removesuffix("0")
    ends = (child.removeprefix(prefix) for child in store.children(parent) if child.startswith(prefix))
    numbers = sorted(int(end) for end in ends if end.isdecimal() and str(int(end)) == end)
    return [name.with_partition(number) for number in numbers if number < count]


WHICH_TOPICS: Final = "no topics given: name topics or namespaces (tenant/namespace), or add --all"
# The two kinds of records of a topic.
Kind = Literal["cursor", "ledger"]
POLICIES = "/admin/policies"
# The roots of Pulsar's and BookKeeper's metadata.
_ROOTS = (MANAGED_LEDGERS, "/admin", LEDGERS, "/schemas", "/topics")


@dataclass(frozen=True, slots=True)
class Scope:
    """Tenants, namespaces (`tenant/namespace`), topics and cursors, each by name or glob; empty means all.

    The name of a partitioned topic includes its partitions, and that of a scalable topic its segments.
    """

    tenants: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    cursors: tuple[str, ...] = ()

    def holds(self, topic: TopicName, cursor: str | None) -> bool:
        """True if a topic, or one of its cursors, is in the scope."""
        return (
            _matches(topic.tenant, self.tenants)
            and _matches(topic.namespace_name, self.namespaces)
            and (not self.topics or any(_is_topic(topic, pattern) for pattern in self.topics))
            and (cursor is None or _matches(cursor, self.cursors))
        )

    def prefixes(self, store: Store) -> list[str]:
        """The paths in the store to scan, in the order of the names. None is below another one."""
        paths = [path for pattern in self.topics for path in _topic_prefixes(store, pattern)]
        paths = paths or [_below(pattern) for pattern in self.namespaces or self.tenants]
        return outermost(paths or [MANAGED_LEDGERS])


def select(store: Store, scope: Scope, kind: Kind) -> Iterator[Versioned]:
    """Yield the cursor records or topic records of a scope, in the store's order.

    Raises like `named_scalable`.
    """
    scope = with_segments(store, scope)
    for prefix in scope.prefixes(store):
        yield from _of_scope(store.scan(prefix), scope, kind)


def with_segments(store: Store, scope: Scope) -> Scope:
    """Replace the scalable topics in a scope by their segments."""
    names = (name for pattern in scope.topics for name in _segment_names(store, pattern))
    return replace(scope, topics=tuple(dict.fromkeys(names)))


def _segment_names(store: Store, pattern: str) -> list[str]:
    """The names of the segments that a name or glob matches, and the glob if it can match other topics."""
    if not is_pattern(store, pattern):
        scalable = named_scalable(store, TopicName.parse(pattern))
        return [pattern] if scalable is None else [str(segment.topic) for segment in scalable.segments]
    glob = "" if "://" in pattern and not pattern.startswith("topic://") else _full(pattern, "topic")
    matching = scalable_topics(store, lambda error: None, glob) if glob else ()
    names = [str(segment.topic) for scalable in matching for segment in scalable.segments]
    return names if names and pattern.startswith("topic://") else [pattern, *names]


def chosen_topics(store: Store, names: Sequence[str], *, everything: bool = False) -> Iterator[Versioned]:
    """Yield the record of each chosen topic, once.

    A name is a topic, a namespace (`tenant/namespace`) or a glob. Raises UsageError without names, and
    NotFoundError if no topic has a name.
    """
    if everything == bool(names):
        raise UsageError(WHICH_TOPICS)
    if everything:
        return select(store, Scope(), "ledger")
    return each_once([_existing(store, name) for name in names])


def _existing(store: Store, name: str) -> Iterator[Versioned]:
    """Yield the records of the topics with a name. Raises NotFoundError if there is none."""
    scope, exists = scope_of(name), False
    for record in select(store, scope, "ledger"):
        exists = True
        yield record
    if not exists:
        raise NotFoundError(f"no topic {name}{_suggestion(store, scope)}", source=store.url)


def each_once(selections: Sequence[Iterable[Versioned]]) -> Iterator[Versioned]:
    """Chain selections without duplicates. A single selection has none."""
    if len(selections) == 1:
        yield from selections[0]
        return
    paths = Dedup()
    for values in selections:
        yield from (value for value in values if paths.is_new(value.path))


def select_listed(store: Store, lines: Iterable[str], scope: Scope, kind: Kind) -> Iterator[Versioned]:
    """Yield the records of a list of topics (by name or glob) and paths of values, each record once.

    For names and paths that don't exist, a `Versioned` with version ABSENT is yielded.
    """
    paths = Dedup()
    for name in filter(None, map(str.strip, lines)):
        for value in _listed(store, name, kind):
            if paths.is_new(value.path):
                yield from [value] if value.version == ABSENT else _of_scope([value], scope, kind)


def is_namespace(name: str) -> bool:
    """True if a name has the form `tenant/namespace`. No topic name has a single slash."""
    return "://" not in name and name.count("/") == 1


def scope_of(name: str) -> Scope:
    """The scope of the name of a topic or namespace (`tenant/namespace`), or of a glob."""
    return Scope(namespaces=(name,)) if is_namespace(name) else Scope(topics=(name,))


def check_named(store: Store, scope: Scope) -> None:
    """Raise NotFoundError if a topic, namespace, tenant or cursor in the scope does not exist.

    Globs are not checked. Raises UsageError if a namespace has no tenant.
    """
    for name in scope.namespaces:
        if "/" not in name and not is_glob(name):
            raise UsageError(f"invalid namespace {name!r}: expected tenant/namespace")
    topics = [TopicName.parse(name) for name in scope.topics if not is_glob(name)]
    names = [(f"topic {topic}", _places(topic)) for topic in topics]
    for kind, others in (("namespace", scope.namespaces), ("tenant", scope.tenants)):
        exact = [name for name in others if not is_glob(name)]
        names += [(f"{kind} {name}", (_below(name), f"{POLICIES}/{name}")) for name in exact]
    for name, paths in names:
        if not any(is_there(store, path) for path in paths):
            raise NotFoundError(f"no {name}{did_you_mean(store, paths[0])}", source=store.url)
    _check_cursors(store, scope)


def check_selected(store: Store, scope: Scope, kind: Kind) -> None:
    """Raise like `check_named`, or NotFoundError if a pattern matches nothing or there are no topics."""
    check_named(store, scope)
    if _has_any(store, scope, kind) or (not scope.cursors and _has_any(store, scope, "ledger")):
        return
    names = (*scope.topics, *scope.namespaces, *scope.tenants, *scope.cursors)
    problem = f"nothing matches {', '.join(names)}" if names else "the store has no topics"
    raise NotFoundError(problem, source=store.url)


def _has_any(store: Store, scope: Scope, kind: Kind) -> bool:
    return next(iter(select(store, scope, kind)), None) is not None


def _places(topic: TopicName) -> tuple[str, ...]:
    """The paths of which one exists if the topic exists."""
    scalable = (topic.as_scalable.path,) if topic.short else ()
    return (topic.path, topic.partitioned_path, *scalable)


def _suggestion(store: Store, scope: Scope) -> str:
    paths = scope.prefixes(store)
    return did_you_mean(store, paths[0]) if paths else ""


def _check_cursors(store: Store, scope: Scope) -> None:
    """Raise NotFoundError if no topic in the scope has a cursor of a given name. Globs are not checked."""
    wanted = {name for name in scope.cursors if GLOB.isdisjoint(name)}
    seen: set[str] = set()
    for record in select(store, replace(scope, cursors=()), "cursor") if wanted else ():
        place = managed_place(record.path, record.value)
        name = place[1] if place is not None else None
        if name is not None:
            wanted.discard(name)
            seen.add(name)
        if not wanted:
            return
    for name in sorted(wanted):
        raise NotFoundError(f"no topic has a cursor {name}{nearest_name(name, seen)}", source=store.url)


def is_there(store: Store, path: str) -> bool:
    """True if a store has any value at or below a path."""
    return next(iter(store.scan(path)), None) is not None


def check_inhabited(store: Store) -> None:
    """Raise NotFoundError if a store has no metadata of Pulsar or BookKeeper.

    Its path or chroot may be wrong.
    """
    if not any(is_there(store, path) for path in _ROOTS):
        raise NotFoundError("the store has no metadata of Pulsar or BookKeeper", source=store.url)


def _listed(store: Store, name: str, kind: Kind) -> Iterator[Versioned]:
    if name.startswith("/"):
        yield _at_path(store, name)
        return
    exists, scope = False, Scope(topics=(name,))
    for value in select(store, scope, kind):
        exists = True
        yield value
    if exists or (is_glob(name) and _has_any(store, scope, "ledger")):
        return
    path = TopicName.parse(name).path
    if is_glob(name) or not is_there(store, path):
        yield Versioned(path, b"", ABSENT)


def _of_scope(values: Iterable[Versioned], scope: Scope, kind: Kind) -> Iterator[Versioned]:
    for value in values:
        place = managed_place(value.path, value.value)
        if place is not None and (place[1] is None) == (kind == "ledger") and scope.holds(*place):
            yield value


def _at_path(store: Store, path: str) -> Versioned:
    if split_managed_ledger_path(path) is None:
        raise UsageError(f"{path}: not the path of a topic or a cursor")
    return current(store, path)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def is_glob(pattern: str) -> bool:
    """True if a name is a pattern."""
    return not GLOB.isdisjoint(pattern)


def is_pattern(store: Store, name: str) -> bool:
    """True if a name is a pattern, unless it is the full name of a scalable topic with such characters."""
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


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths that are not below another of them, each once."""
    unique = dict.fromkeys(paths)
    return [path for path in unique if not any(parent in unique for parent in parents_of(path))]


def _below(name: str) -> str:
    """The path of the leading parts of `name` that are not globs."""
    path = MANAGED_LEDGERS
    for part in name.split("/"):
        if not part or is_glob(part):
            break
        path = f"{path}/{part}"
    return path
