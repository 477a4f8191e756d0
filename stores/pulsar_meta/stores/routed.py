"""`URL#ledgers=URL`: one store for everything, but for `/ledgers`, which lies in another one.

So it is where brokers have `metadataStoreUrl` and `bookkeeperMetadataServiceUri` (bookies:
`metadataServiceUri`) in different places: BookKeeper's metadata, its cookies and the generator of ledger ids
are in the second one. What the first one has at `/ledgers` is not seen. The path alone decides which of the
two is asked, and nothing is true of both at one moment.

Source: apache/pulsar ServiceConfiguration.java (`bookkeeperMetadataServiceUri`), PulsarService.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.stores.base import (
    BaseStore,
    Change,
    Deletion,
    Store,
    Versioned,
    Write,
    is_within,
    prefixed,
    stands_still,
)

T = TypeVar("T")
R = TypeVar("R")

# Between the URLs of the two.
MARK: Final = "#ledgers="
_LEDGERS_NAME: Final = LEDGERS.removeprefix("/")


class RoutedStore(BaseStore):
    """Two stores as one. Its calls raise what the calls of either do."""

    def __init__(self, main: Store, ledgers: Store) -> None:
        """Take two open stores, which `close` closes."""
        self.main, self.ledgers = main, ledgers
        self.url = f"{main.url}{MARK}{ledgers.url}"
        self.writable = main.writable and ledgers.writable
        # What neither takes; `check_write` knows which of them a value goes to.
        limits = [store.max_value_size for store in (main, ledgers)]
        self.max_value_size = max(limit for limit in limits if limit) if all(limits) else None
        self.networked = main.networked or ledgers.networked
        self.locks_out_brokers = main.locks_out_brokers
        self.sends_groups = main.sends_groups and ledgers.sends_groups
        self.lists_groups = main.lists_groups and ledgers.lists_groups
        self.counts_sequences = main.counts_sequences and ledgers.counts_sequences
        self.needs_parents = ledgers.needs_parents
        self.scans_one_moment = stands_still(main) and stands_still(ledgers)
        # A store that is no server's is not made for several threads, which a network brings with it.
        self._locks = {id(store): Lock() for store in (main, ledgers) if not store.networked}

    @property
    def behind(self) -> bool:
        """Whether one of them is."""
        return self.main.behind or self.ledgers.behind

    @property
    def origin(self) -> Document:
        """What a copy says of where it is from; its counters and sums are those of all its values."""
        kept = ("snapshot", "store", "taken", "tool")
        found = {name: held for name, held in self.main.origin.items() if name in kept}
        redacted = self.main.origin.get("redacted") or self.ledgers.origin.get("redacted")
        return found | {"redacted": True} if redacted else found

    @property
    def checkpoint(self) -> Path | None:
        """Where one of them lies as it was, the first before the second."""
        return self.main.checkpoint or self.ledgers.checkpoint

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Prepare both."""
        for store in (self.main, self.ledgers):
            store.prepare(advance)

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        store = self._of(path)
        return self._in_turn(store, lambda: store.read(path))

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `children` does for each path."""
        found = self._split(paths, str, lambda store, some: store.children_many(some))
        return [
            self._at_root(names) if prefixed(path)[0] == "/" else names
            for path, names in zip(paths, found, strict=True)
        ]

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`: those of the first store, then those of the second."""
        if prefixed(prefix)[0] != "/":
            yield from self._of(prefix).scan(prefix, after=after)
            return
        if after is None or not is_within(after, LEDGERS):
            values = self.main.scan(prefix, after=after)
            yield from (held for held in values if not is_within(held.path, LEDGERS))
            after = None
        yield from self.ledgers.scan(LEDGERS, after=after)

    def history(self, path: str) -> Iterator[Change]:
        """Yield every change of the value at `path`."""
        return self._of(path).history(path)

    def next_sequence(self, parent: str) -> int | None:
        """Return the number that the next sequential node below `parent` would get."""
        store = self._of(parent)
        return self._in_turn(store, lambda: store.next_sequence(parent))

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Have the next sequential node below `parent` get that number or a higher one."""
        store = self._of(parent)
        return self._in_turn(store, lambda: store.advance_sequence(parent, floor))

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` and return the new one."""
        store = self._of(path)
        return self._in_turn(store, lambda: store.put(path, value, expected))

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        store = self._of(path)
        self._in_turn(store, lambda: store.delete(path, expected))

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none."""
        return self._split(paths, str, lambda store, some: store.read_many(some))

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Make each (path, value, expected) as `put` does; return new versions, None for a conflict."""
        for path, value, _ in writes:
            self.check_write(path, value)
        return self._split(writes, lambda write: write[0], lambda store, some: store.put_many(some))

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Make each (path, expected) as `delete` does; return which were made."""
        for path, _ in deletions:
            self.check_write(path)
        return self._split(deletions, lambda one: one[0], lambda store, some: store.delete_many(some))

    def check_path(self, path: str) -> None:
        """Raise UsageError where the store that it belongs to has no value at such a path."""
        self._of(path).check_path(path)

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise what `put` would before it sends anything."""
        self._of(path).check_write(path, value)

    def close(self) -> None:
        """Close both, also where one of them cannot be. Safe to call twice."""
        with ExitStack() as stack:
            stack.callback(self.main.close)
            stack.callback(self.ledgers.close)

    def _of(self, path: str) -> Store:
        return self.ledgers if path.startswith("/") and is_within(path, LEDGERS) else self.main

    def _in_turn(self, store: Store, call: Callable[[], R]) -> R:
        lock = self._locks.get(id(store))
        if lock is None:
            return call()
        with lock:
            return call()

    def _split(
        self, items: Sequence[T], path_of: Callable[[T], str], call: Callable[[Store, list[T]], list[R]]
    ) -> list[R]:
        """Return what `call` does of each store's items, in the order of all."""
        found: dict[int, R] = {}
        for store in (self.main, self.ledgers):
            places = [at for at, item in enumerate(items) if self._of(path_of(item)) is store]
            some = [items[at] for at in places]
            if some:
                answers = self._in_turn(store, lambda store=store, some=some: call(store, some))  # type: ignore[misc]
                found.update(zip(places, answers, strict=True))
        return [found[at] for at in range(len(items))]

    def _at_root(self, names: list[str]) -> list[str]:
        there = _LEDGERS_NAME in self.ledgers.children("/")
        return sorted({*names, _LEDGERS_NAME} if there else {*names} - {_LEDGERS_NAME})


def with_ledgers(url: str, ledgers: str) -> str:
    """Return the URL of a store of which `/ledgers` lies in another one; UsageError where it already does."""
    if MARK in url or MARK in ledgers:
        raise UsageError(f"{MARK.strip('#=')}: a store has one other store for /ledgers, not two")
    return f"{url}{MARK}{ledgers}"
