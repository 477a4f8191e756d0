"""`URL#ledgers=URL`: one store for everything except `/ledgers`, which is read from a second store.

Use it if brokers have different locations for `metadataStoreUrl` and `bookkeeperMetadataServiceUri` (in
bookies, `metadataServiceUri`). The second store then holds BookKeeper's metadata, the bookies' cookies and
the ledger id generator. If the first store also has values at `/ledgers`, they are ignored. Only the path
determines which store a call goes to, and the two stores are never read as of one common moment.

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
    Change,
    Deletion,
    Store,
    Versioned,
    Write,
    is_immutable,
    is_within,
    split_prefix,
)

T = TypeVar("T")
R = TypeVar("R")

# Separates the URLs of the two stores.
MARK: Final = "#ledgers="
_LEDGERS_NAME: Final = LEDGERS.removeprefix("/")


class RoutedStore(Store):
    """Two stores that are read and written as one. Methods raise what the methods of either store raise."""

    def __init__(self, main: Store, ledgers: Store) -> None:
        """Join two open stores, which `close` will close."""
        self.main, self.ledgers = main, ledgers
        self.url = f"{main.url}{MARK}{ledgers.url}"
        self.writable = main.writable and ledgers.writable
        # The larger limit, because `check_write` knows which store a value goes to.
        limits = [store.max_value_size for store in (main, ledgers)]
        self.max_value_size = max(limit for limit in limits if limit) if all(limits) else None
        self.networked = main.networked or ledgers.networked
        self.locks_out_brokers = main.locks_out_brokers
        self.batches_requests = main.batches_requests and ledgers.batches_requests
        self.batches_listings = main.batches_listings and ledgers.batches_listings
        self.counts_sequences = main.counts_sequences and ledgers.counts_sequences
        self.counts_by_writes = main.counts_by_writes or ledgers.counts_by_writes
        self.needs_parents = ledgers.needs_parents
        self.has_consistent_scans = is_immutable(main) and is_immutable(ledgers)
        # Only networked stores are safe to use from several threads.
        self._locks = {id(store): Lock() for store in (main, ledgers) if not store.networked}

    @property
    def is_stale(self) -> bool:
        """Whether either store is stale."""
        return self.main.is_stale or self.ledgers.is_stale

    @property
    def may_be_live(self) -> bool:
        """Whether brokers may be writing to either store."""
        return self.main.may_be_live or self.ledgers.may_be_live

    @property
    def origin(self) -> Document:
        """The main store's header without its counters and checksums, which only cover that store."""
        common = ("snapshot", "store", "taken", "tool")
        header = {name: value for name, value in self.main.origin.items() if name in common}
        redacted = self.main.origin.get("redacted") or self.ledgers.origin.get("redacted")
        return header | {"redacted": True} if redacted else header

    @property
    def checkpoint(self) -> Path | None:
        """The main store's checkpoint, or else the second store's."""
        return self.main.checkpoint or self.ledgers.checkpoint

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Prepare both stores."""
        for store in (self.main, self.ledgers):
            store.prepare(advance)

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        store = self._of(path)
        return self._in_turn(store, lambda: store.read(path))

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """List the children of each path, as `children` does."""
        listings = self._split(paths, str, lambda store, some: store.children_many(some))
        return [
            self._at_root(names) if split_prefix(path)[0] == "/" else names
            for path, names in zip(paths, listings, strict=True)
        ]

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`: those of the first store, then those of the second."""
        if split_prefix(prefix)[0] != "/":
            yield from self._of(prefix).scan(prefix, after=after)
            return
        if after is None or not is_within(after, LEDGERS):
            values = self.main.scan(prefix, after=after)
            yield from (value for value in values if not is_within(value.path, LEDGERS))
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
        """Raise the number of the next sequential node below `parent` to at least `floor`."""
        store = self._of(parent)
        return self._in_turn(store, lambda: store.advance_sequence(parent, floor))

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected`, and return the new version."""
        store = self._of(path)
        return self._in_turn(store, lambda: store.put(path, value, expected))

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        store = self._of(path)
        self._in_turn(store, lambda: store.delete(path, expected))

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Read the values at `paths`, in the same order, with None for a path without a value."""
        return self._split(paths, str, lambda store, some: store.read_many(some))

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does. Returns new versions, with None for conflicts."""
        for path, value, _ in writes:
            self.check_write(path, value)
        return self._split(writes, lambda write: write[0], lambda store, some: store.put_many(some))

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Delete each (path, expected) as `delete` does. Returns True for those that succeeded."""
        for path, _ in deletions:
            self.check_write(path)
        return self._split(
            deletions, lambda deletion: deletion[0], lambda store, some: store.delete_many(some)
        )

    def check_path(self, path: str) -> None:
        """Raise UsageError if the responsible store can't have a value at `path`."""
        self._of(path).check_path(path)

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise the error that `put` would raise before it sends anything."""
        self._of(path).check_write(path, value)

    def close(self) -> None:
        """Close both stores, even if closing one of them fails. Can be called twice."""
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
        """Call `call` once per store with its items, and return the results in the order of `items`."""
        results: dict[int, R] = {}
        for store in (self.main, self.ledgers):
            places = [at for at, item in enumerate(items) if self._of(path_of(item)) is store]
            some = [items[at] for at in places]
            if some:
                answers = self._in_turn(store, lambda store=store, some=some: call(store, some))  # type: ignore[misc]
                results.update(zip(places, answers, strict=True))
        return [results[at] for at in range(len(items))]

    def _at_root(self, names: list[str]) -> list[str]:
        there = _LEDGERS_NAME in self.ledgers.children("/")
        return sorted({*names, _LEDGERS_NAME} if there else {*names} - {_LEDGERS_NAME})


def with_ledgers(url: str, ledgers: str) -> str:
    """Return the URL that reads `/ledgers` from the store `ledgers` and everything else from `url`.

    Raises UsageError if one of the URLs already names two stores.
    """
    if MARK in url or MARK in ledgers:
        raise UsageError(f"{MARK.strip('#=')}: expected one store for /ledgers, found two")
    return f"{url}{MARK}{ledgers}"
