"""Many reads or writes of a store at once, as wide as it can."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby, islice
from typing import Self, TypeVar

from pulsar_meta.codecs.errors import NotFoundError
from pulsar_meta.jobs.rewrite.decision import Change, Decided
from pulsar_meta.stores.base import ABSENT, Store, Versioned, parents_of

T = TypeVar("T")
R = TypeVar("R")

READ_GROUP = 256


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class Batches:
    """Reads and writes groups of values: by the store's own pipelining, by threads, or one by one.

    Threads only where the store is on a network; `concurrency` is their number. `width` is how many requests
    are under way at once. Use as a context manager, or close it, also after an error.
    """

    def __init__(self, store: Store, concurrency: int) -> None:
        """Use `store`, of which at most `concurrency` requests are under way at once."""
        self.store = store
        self.networked = store.networked
        self.width = concurrency if self.networked or store.sends_groups else 1
        self._grouped = self.width > 1 and store.sends_groups
        # Its threads are started as they are needed.
        self._pool = ThreadPoolExecutor(self.width, "store") if self.networked and self.width > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sendings(self, changes: Sequence[Change]) -> Iterator[list[Change]]:
        """Yield the changes in parts that are sent at once; a path and what lies below it never are."""
        for part in _apart(changes):
            if not self._grouped:
                yield from chunks(part, self.width)
                continue
            for _, run in groupby(part, lambda change: change.new is not None):
                yield list(run)

    def read(self, paths: Sequence[str]) -> list[Versioned]:
        """Return the values at `paths` in their order, of version ABSENT where there is none."""
        found = self.store.read_many(paths) if self._grouped else self._each(self._read, paths)
        return [held or Versioned(path, b"", ABSENT) for path, held in zip(paths, found, strict=True)]

    def write(self, changes: Sequence[Change]) -> list[int | None]:
        """Make the changes and return each new version (ABSENT for a deletion), None for a conflict."""
        puts = [(c.path, c.new, c.version) for c in changes if c.new is not None]
        deletions = [(c.path, c.version) for c in changes if c.new is None]
        written = iter(self.store.put_many(puts))
        gone = iter(self.store.delete_many(deletions))
        return [
            next(written) if change.new is not None else ABSENT if next(gone) else None for change in changes
        ]

    def children(self, paths: Sequence[str]) -> list[list[str]]:
        """Return the names of the children of each path."""
        if self.store.lists_groups:
            return self.store.children_many(paths)
        return self._each(self.store.children, paths)

    def close(self) -> None:
        """Let the threads end."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _each(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if self._pool is None or len(items) == 1:
            return [call(item) for item in items]
        return list(self._pool.map(call, items))

    def _read(self, path: str) -> Versioned | None:
        try:
            return self.store.read(path)
        except NotFoundError:
            return None


def level_by_level(group: Sequence[Decided]) -> list[Decided]:
    """Return a group that only makes values, or only removes them, so that whole levels can go at once.

    Parents are made before what is below them and removed after it, as in the order that they came in.
    """
    if all(seen.version == ABSENT for seen, _ in group):
        return sorted(group, key=lambda one: one[0].path.count("/"))
    if all(decision.new is None for _, decision in group):
        return sorted(group, key=lambda one: -one[0].path.count("/"))
    return list(group)


def _apart(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield the changes in lists, none with a path and what lies below it where one of them comes or goes.

    Some stores make a parent with its first child, and keep it until its last one is gone.
    """
    part: list[Change] = []
    paths: set[str] = set()
    above: set[str] = set()
    for change in changes:
        if change.new is not None and change.version != ABSENT:
            part.append(change)
            continue
        parents = set(parents_of(change.path))
        if change.path in above or not paths.isdisjoint(parents):
            yield part
            part, paths, above = [], set(), set()
        part.append(change)
        paths.add(change.path)
        above |= parents
    if part:
        yield part
