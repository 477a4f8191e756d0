"""What lies where in a store: the children of a path, and everything below it as a tree."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.managed_place import managed_place
from pulsar_meta.codecs.names import (
    TopicName,
    decode_name,
    managed_ledger_places,
    split_managed_ledger_path,
    split_scalable_path,
)
from pulsar_meta.jobs.topics.nearest import missing
from pulsar_meta.stores.base import Store, Versioned, joined

# Paths that are asked about in one go.
AT_ONCE: Final = 1000


def list_children(store: Store, path: str, *, details: bool = False) -> Iterator[Document]:
    """Yield a document for each child of `path`; `details` reads each of them.

    `{"path", "name", "decoded"?, "topic"?, "cursor"?, "size"?, "version"?, "ephemeral"?, "created"?,
    "modified"?}`; times in ms, `topic` and `cursor` by the names that commands take.
    NotFoundError where neither a value nor a child is at `path`.
    """
    names = store.children(path)
    if not names:
        read_value(store, path)
    for some in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
        paths = [joined(path, name) for name in some]
        # What lies at some paths only their values say.
        wanted = [at for at in paths if details or len(managed_ledger_places(at)) > 1]
        found = dict(zip(wanted, store.read_many(wanted), strict=True))
        for at, name in zip(paths, some, strict=True):
            held = found.get(at)
            yield _named(at, name) | _called(at, held) | (_details(held) if details and held else {})


def walk(store: Store, path: str, depth: int | None = None) -> Iterator[Document]:
    """Yield `path` and what lies below it, parents first; a parent without a value of its own has no size.

    `{"path", "name", "decoded"?, "depth", "size"?, "version"?, "ephemeral"?}`; with `depth` no deeper, and
    only what is shown is asked for. NotFoundError where nothing is there.
    """
    found = False
    for document in _listed(store, path, depth) if depth is not None else _scanned(store, path):
        found = True
        yield document
    if not found:
        raise missing(store, path)


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


def _scanned(store: Store, path: str) -> Iterator[Document]:
    # Stores order by bytes or by levels; in a tree every child has to come right below its parent. A string a
    # value: there may be millions.
    lines = [
        f"{held.path}\0{len(held.value)}\0{held.version}\0{held.ephemeral:d}" for held in store.scan(path)
    ]
    lines.sort(key=_in_a_tree)
    base = len(_parts(path))
    before: tuple[str, ...] = ()
    for number, line in enumerate(lines):
        held_at, size, version, ephemeral = line.rsplit("\0", 3)
        parts = _parts(held_at)
        if number and parts == before:
            continue
        first = base if number == 0 else _common(before, parts) + 1
        for depth in range(first, len(parts)):
            yield _node("/" + "/".join(parts[:depth]), depth - base)
        facts = {"size": int(size), "version": int(version), "ephemeral": ephemeral == "1"}
        yield _node("/" + "/".join(parts), len(parts) - base) | facts
        before = parts


def _in_a_tree(line: str) -> str:
    """Return what orders a path before those below it, and these before its next sibling."""
    return line.partition("\0")[0].replace("/", "\0")


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many parts two paths begin with alike."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)


def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _listed(store: Store, path: str, depth: int) -> Iterator[Document]:
    # Level by level, since stores answer about many paths at once; then in the order of a tree.
    nodes: dict[tuple[str, ...], Document] = {}
    level, paths = 0, [path]
    while paths:
        below = []
        for some in (paths[at : at + AT_ONCE] for at in range(0, len(paths), AT_ONCE)):
            for at, names, held in zip(some, store.children_many(some), store.read_many(some), strict=True):
                if names or held is not None:
                    nodes[_parts(at)] = _node(at, level) | ({} if held is None else _facts(held))
                below += [joined(at, name) for name in names]
        level, paths = level + 1, below if level < depth else []
    for parts in sorted(nodes):
        yield nodes[parts]


def _node(path: str, depth: int) -> Document:
    return {**_named(path, path.rstrip("/").rpartition("/")[2] or "/"), "depth": depth}


def _named(path: str, name: str) -> Document:
    document: Document = {"path": path, "name": name}
    try:
        decoded = decode_name(name)
    except DecodeError:
        return document
    return document if decoded == name else document | {"decoded": decoded}


def _called(path: str, held: Versioned | None) -> Document:
    place = split_managed_ledger_path(path) if held is None else managed_place(path, held.value)
    if place is None:
        scalable = split_scalable_path(path)
        return {} if scalable is None else {"topic": str(scalable)}
    return {"topic": str(place[0])} | ({} if place[1] is None else {"cursor": place[1]})


def _details(held: Versioned) -> Document:
    times = {"created": held.created, "modified": held.modified}
    return _facts(held) | {name: time for name, time in times.items() if time is not None}


def _facts(held: Versioned) -> Document:
    return {"size": len(held.value), "version": held.version, "ephemeral": held.ephemeral}
