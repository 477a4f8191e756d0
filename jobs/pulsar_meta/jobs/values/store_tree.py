"""What lies where in a store: the children of a path, and everything below it as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Final, NotRequired, TypedDict

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import (
    TopicName,
    decode_name,
    managed_ledger_places,
    split_managed_ledger_path,
    split_scalable_path,
)
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.jobs.topics.segments import PlaceNames, ScalableTopics, named_at
from pulsar_meta.jobs.values.sorting import in_order
from pulsar_meta.stores.base import Store, Versioned, child_path

# Paths that are asked about in one go.
AT_ONCE: Final = 1000
# So many levels of a store are taken apart: below are namespaces, and ten thousand ledgers each.
PARTED: Final = 3


class Facts(TypedDict, total=False):
    """What is known of a value that is there; of a parent without one nothing. Times are in ms."""

    size: int
    version: int
    ephemeral: bool
    created: int
    modified: int


class Named(TypedDict):
    """A path, the last part of it, and what that is decoded, where it is encoded."""

    path: str
    name: str
    decoded: NotRequired[str]


class Child(Named, PlaceNames, Facts):
    """A child of a path, for `ls`."""


class Node(Named, PlaceNames, Facts):
    """A path in a tree, so many levels below the one that was asked for."""

    depth: int


# A topic's, or one of its cursors'.
Place = tuple[TopicName, str | None]


@dataclass(frozen=True, slots=True)
class _Node:
    """A path of a tree, and whose it is; `facts` of what has a value: size, version, ephemeral."""

    path: str
    depth: int
    place: Place | None
    facts: Facts = field(default_factory=Facts)


def list_children(store: Store, path: str, *, details: bool = False) -> Iterator[Child]:
    """Yield a document for each child of `path`; `details` reads each of them.

    NotFoundError where neither a value nor a child is at `path`.
    """
    names = store.children(path)
    if not names:
        read_value(store, path)
    scalable = ScalableTopics(store)
    for some in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
        paths = [child_path(path, name) for name in some]
        # What lies at some paths only their values say.
        wanted = [at for at in paths if details or len(managed_ledger_places(at)) > 1]
        found = dict(zip(wanted, store.read_many(wanted), strict=True))
        places = [_place(at, found.get(at)) for at in paths]
        for at, name, called in zip(paths, some, _called(places, scalable), strict=True):
            held = found.get(at)
            facts = _details(held) if details and held else Facts()
            yield {**_named(at, name), **called, **facts}


def walk(store: Store, path: str, depth: int | None = None) -> Iterator[Node]:
    """Yield `path` and what lies below it, parents first; a parent without a value of its own has no size.

    With `depth` no deeper, and only what is shown is asked for. NotFoundError where nothing is there.
    """
    scalable = ScalableTopics(store)
    nodes = _listed(store, path, depth) if depth is not None else _scanned(store, path)
    # The first has not to wait for others.
    some = list(islice(nodes, 1))
    if not some:
        raise missing(store, path)
    while some:
        for node, called in zip(some, _called([node.place for node in some], scalable), strict=True):
            yield {**_node(node.path, node.depth, called), **node.facts}
        some = list(islice(nodes, AT_ONCE))


def read_value(store: Store, path: str) -> Versioned:
    """Return the value at `path`; NotFoundError that says where to look instead, where that is known."""
    try:
        return store.read(path)
    except NotFoundError as error:
        hint = _hint(store, path)
        if hint is None:
            raise missing(store, path) from error
        raise NotFoundError(f"{error.message}: {hint}", source=error.source) from error


def _hint(store: Store, path: str) -> str | None:
    topic = TopicName.from_path(path)
    if topic is not None and topic.partition is None:
        first = topic.with_partition(0)
        if first.path.rpartition("/")[2] in store.children(first.path.rpartition("/")[0]):
            return f"the topic has partitions, the first is {first}"
    children = store.children(path)
    return f"it has no value of its own, but {len(children)} below it" if children else None


def _scanned(store: Store, path: str) -> Iterator[_Node]:
    return _in_parts(store.as_of_now(), path, 0) if store.is_indexed else _sorted(store, path, 0)


def _in_parts(store: Store, path: str, depth: int) -> Iterator[_Node]:
    """Yield a tree, what is below its upper levels part by part: the first is there before all are read."""
    names = store.children(path) if depth < PARTED else []
    if not names or not all(names):
        # A key with an empty part is found by its whole path only.
        yield from _sorted(store, path, depth)
        return
    held = store.read_many([path])[0]
    yield _Node(path, depth, _place(path, held), Facts() if held is None else _facts_of(held))
    for name in names:
        yield from _in_parts(store, child_path(path, name), depth + 1)


def _sorted(store: Store, path: str, depth: int) -> Iterator[_Node]:
    # Stores order by bytes or by levels; in a tree every child has to come right below its parent.
    base = len(_parts(path))
    before: tuple[str, ...] = ()
    for number, line in enumerate(in_order(map(_line, store.scan(path)), _in_a_tree)):
        held_at, place, size, version, ephemeral = line.rsplit("\0", 4)
        parts = _parts(held_at)
        if number and parts == before:
            continue
        first = base if number == 0 else _common(before, parts) + 1
        for level in range(first, len(parts)):
            parent = "/" + "/".join(parts[:level])
            yield _Node(parent, depth + level - base, split_managed_ledger_path(parent))
        at, facts = "/" + "/".join(parts), _facts(int(size), int(version), ephemeral == "1")
        whose = managed_ledger_places(at)[int(place)] if place else _scalable(at)
        yield _Node(at, depth + len(parts) - base, whose, facts)
        before = parts


def _line(held: Versioned) -> str:
    """Return what is kept of a value: its path, which of the places there it has, and its facts."""
    place = managed_place(held.path, held.value)
    number = "" if place is None else managed_ledger_places(held.path).index(place)
    return f"{held.path}\0{number}\0{len(held.value)}\0{held.version}\0{held.ephemeral:d}"


def _in_a_tree(line: str) -> str:
    """Return what orders a path before those below it, and these before its next sibling."""
    return line.partition("\0")[0].replace("/", "\0")


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many parts two paths begin with alike."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _listed(store: Store, path: str, depth: int) -> Iterator[_Node]:
    # Level by level, since stores answer about many paths at once; then in the order of a tree.
    nodes: dict[tuple[str, ...], _Node] = {}
    level, paths = 0, [path]
    while paths:
        below = []
        for some in (paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE)):
            for at, names, held in zip(some, store.children_many(some), store.read_many(some), strict=True):
                if names or held is not None:
                    facts = Facts() if held is None else _facts_of(held)
                    nodes[_parts(at)] = _Node(at, level, _place(at, held), facts)
                below += [child_path(at, name) for name in names]
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


def _place(path: str, held: Versioned | None) -> Place | None:
    """Return the topic, or the topic and the cursor, at a path, by its value where that is at hand."""
    place = split_managed_ledger_path(path) if held is None else managed_place(path, held.value)
    return _scalable(path) if place is None else place


def _scalable(path: str) -> Place | None:
    topic = split_scalable_path(path)
    return None if topic is None else (topic, None)


def _called(places: Sequence[Place | None], scalable: ScalableTopics) -> list[PlaceNames]:
    """Return what is at each place by the names that commands take, nothing for what is no topic's."""
    found = scalable.of(place[0] for place in places if place is not None)
    return [PlaceNames() if place is None else named_at(place, found[place[0]]) for place in places]


def _details(held: Versioned) -> Facts:
    facts = _facts_of(held)
    if held.created is not None:
        facts["created"] = held.created
    if held.modified is not None:
        facts["modified"] = held.modified
    return facts


def _facts_of(held: Versioned) -> Facts:
    return _facts(len(held.value), held.version, held.ephemeral)


def _facts(size: int, version: int, ephemeral: bool) -> Facts:
    return {"size": size, "version": version, "ephemeral": ephemeral}
