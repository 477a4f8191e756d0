"""List the children of a path in a store, or the tree below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.envelope import managed_place
from pulsar_meta.codecs.names import (
    TopicName,
    decode_name,
    managed_ledger_places,
    split_managed_ledger_path,
    split_scalable_path,
)
from pulsar_meta.jobs.spill import sorted_lines
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.related import PlaceNames, ScalableTopics, named_at
from pulsar_meta.stores.base import Store, Versioned, child_path

# The number of paths that are read at once.
AT_ONCE: Final = 1000
# The tree is scanned in parts down to this level; a part is a namespace, or ten thousand ledgers.
SPLIT_LEVELS: Final = 3


class Facts(TypedDict, total=False):
    """Facts about a value; empty for a parent without one. Times are in milliseconds."""

    size: int
    version: int
    ephemeral: bool
    created: int
    modified: int


class Named(TypedDict):
    """A path, its last part, and the decoded last part if it is encoded."""

    path: str
    name: str
    decoded: NotRequired[str]


class Child(Named, PlaceNames, Facts):
    """A child of a path, for `ls`."""


class Node(Named, PlaceNames, Facts):
    """A path in a tree. `depth` is the number of levels below the requested path."""

    depth: int


# A topic, or one of its cursors.
Place = tuple[TopicName, str | None]


@dataclass(frozen=True, slots=True)
class _Node:
    """A path in a tree, and its topic or cursor. `facts` is empty if it has no value."""

    path: str
    depth: int
    place: Place | None
    facts: Facts = field(default_factory=Facts)


def list_children(store: Store, path: str, *, details: bool = False) -> Iterator[Child]:
    """Yield each child of `path`. With `details`, each child is read.

    Raises NotFoundError if `path` has neither a value nor children.
    """
    names = store.children(path)
    if not names:
        read_value(store, path)
    scalable = ScalableTopics(store)
    for group in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
        paths = [child_path(path, name) for name in group]
        # Some paths are ambiguous, so their values are needed.
        wanted = [child for child in paths if details or len(managed_ledger_places(child)) > 1]
        values = dict(zip(wanted, store.read_many(wanted), strict=True))
        places = [_place(child, values.get(child)) for child in paths]
        for child, name, called in zip(paths, group, _called(places, scalable), strict=True):
            value = values.get(child)
            facts = _details(value) if details and value else Facts()
            yield {**_named(child, name), **called, **facts}


def walk(store: Store, path: str, depth: int | None = None) -> Iterator[Node]:
    """Yield `path` and everything below it, parents first. A parent without a value has no size.

    With `depth`, the walk is limited to this depth, and only those paths are read. Raises NotFoundError if
    there is nothing at `path`.
    """
    scalable = ScalableTopics(store)
    nodes = _listed(store, path, depth) if depth is not None else _scanned(store, path)
    # A single node first, so that the first line appears at once.
    group = list(islice(nodes, 1))
    if not group:
        raise missing(store, path)
    while group:
        for node, called in zip(group, _called([node.place for node in group], scalable), strict=True):
            yield {**_node(node.path, node.depth, called), **node.facts}
        group = list(islice(nodes, AT_ONCE))


def read_value(store: Store, path: str) -> Versioned:
    """Read the value at `path`. Raises NotFoundError, with a hint if there is one."""
    try:
        return store.read(path)
    except NotFoundError as error:
        hint = _hint(store, path)
        if hint is None:
            raise missing(store, path) from error
        raise NotFoundError(f"{error.message}; {hint}", source=error.source) from error


def _hint(store: Store, path: str) -> str | None:
    topic = TopicName.from_path(path)
    if topic is not None and topic.partition is None:
        first = topic.with_partition(0)
        if first.path.rpartition("/")[2] in store.children(first.path.rpartition("/")[0]):
            return f"the topic is partitioned, and its first partition is {first}"
    children = store.children(path)
    return f"it has no value, but {len(children)} children" if children else None


def _scanned(store: Store, path: str) -> Iterator[_Node]:
    return _in_parts(store.as_of_now(), path, 0) if store.is_indexed else _sorted(store, path, 0)


def _in_parts(store: Store, path: str, depth: int) -> Iterator[_Node]:
    """Yield a tree, scanning its lower levels part by part, so that the first nodes appear early."""
    names = store.children(path) if depth < SPLIT_LEVELS else []
    if not names or not all(names):
        # A key with an empty part can only be found by its complete path.
        yield from _sorted(store, path, depth)
        return
    value = store.find(path)
    yield _Node(path, depth, _place(path, value), Facts() if value is None else _facts_of(value))
    for name in names:
        yield from _in_parts(store, child_path(path, name), depth + 1)


def _sorted(store: Store, path: str, depth: int) -> Iterator[_Node]:
    # Stores order by bytes or by levels, but in a tree every child follows its parent.
    base = len(_parts(path))
    before: tuple[str, ...] = ()
    for number, line in enumerate(sorted_lines(map(_line, store.scan(path)), _in_a_tree)):
        value_path, place, size, version, ephemeral = line.rsplit("\0", 4)
        parts = _parts(value_path)
        if number and parts == before:
            continue
        first = base if number == 0 else _common(before, parts) + 1
        for level in range(first, len(parts)):
            parent = "/" + "/".join(parts[:level])
            yield _Node(parent, depth + level - base, split_managed_ledger_path(parent))
        node, facts = "/" + "/".join(parts), _facts(int(size), int(version), ephemeral == "1")
        node_place = managed_ledger_places(node)[int(place)] if place else _scalable(node)
        yield _Node(node, depth + len(parts) - base, node_place, facts)
        before = parts


def _line(value: Versioned) -> str:
    """Encode the path of a value, the number of its place among those of the path, and its facts."""
    place = managed_place(value.path, value.value)
    number = "" if place is None else managed_ledger_places(value.path).index(place)
    return f"{value.path}\0{number}\0{len(value.value)}\0{value.version}\0{value.ephemeral:d}"


def _in_a_tree(line: str) -> str:
    """A sort key that puts a path before its children, and the children before its next sibling."""
    return line.partition("\0")[0].replace("/", "\0")


def _common(path: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Count the leading parts that two paths share."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    return sum(1 for _ in pairs)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _listed(store: Store, path: str, depth: int) -> Iterator[_Node]:
    # Level by level, because stores answer about many paths at once. Then the nodes are sorted as a tree.
    nodes: dict[tuple[str, ...], _Node] = {}
    level, paths = 0, [path]
    while paths:
        below = []
        for group in (paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE)):
            listed = zip(group, store.children_many(group), store.read_many(group), strict=True)
            for node, names, value in listed:
                if names or value is not None:
                    facts = Facts() if value is None else _facts_of(value)
                    nodes[_parts(node)] = _Node(node, level, _place(node, value), facts)
                below += [child_path(node, name) for name in names]
        level, paths = level + 1, below if level < depth else []
    for parts in sorted(nodes):
        yield nodes[parts]


def _node(path: str, depth: int, called: PlaceNames) -> Node:
    return {**_named(path, path.rstrip("/").rpartition("/")[2] or "/"), **called, "depth": depth}


def _named(path: str, name: str) -> Named:
    document: Named = {"path": path, "name": name}
    with suppress(DecodeError):
        decoded = decode_name(name)
        if decoded != name:
            document["decoded"] = decoded
    return document


def _place(path: str, value: Versioned | None) -> Place | None:
    """The topic, or the topic and cursor, at a path; ambiguous paths are decided by the value if given."""
    place = split_managed_ledger_path(path) if value is None else managed_place(path, value.value)
    return _scalable(path) if place is None else place


def _scalable(path: str) -> Place | None:
    topic = split_scalable_path(path)
    return None if topic is None else (topic, None)


def _called(places: Sequence[Place | None], scalable: ScalableTopics) -> list[PlaceNames]:
    """Convert each place to the names that commands accept; empty for paths of no topic."""
    scalable_topics = scalable.of(place[0] for place in places if place is not None)
    return [PlaceNames() if place is None else named_at(place, scalable_topics[place[0]]) for place in places]


def _details(value: Versioned) -> Facts:
    facts = _facts_of(value)
    if value.created is not None:
        facts["created"] = value.created
    if value.modified is not None:
        facts["modified"] = value.modified
    return facts


def _facts_of(value: Versioned) -> Facts:
    return _facts(len(value.value), value.version, value.ephemeral)


def _facts(size: int, version: int, ephemeral: bool) -> Facts:
    return {"size": size, "version": version, "ephemeral": ephemeral}
