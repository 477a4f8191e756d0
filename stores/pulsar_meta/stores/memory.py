"""Stores in memory: one that has all its values there, and one with changes on top of another store.

Versions of `MemoryStore` start at 0 and increase by one per write, as Pulsar counts them. The changes of
`OverlayStore` show what they would do before they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulsar_meta.codecs.errors import ConflictError, NotFoundError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.stores.base import ABSENT, Store, Versioned, conflict, is_within, split_prefix


class MemoryStore(Store):
    """Values in a dictionary, as the reference that other stores are compared with."""

    def __init__(
        self, url: str = "memory:", *, read_only: bool = False, max_value_size: int | None = None
    ) -> None:
        """Create an empty store; `put` refuses values of more than `max_value_size` bytes."""
        self.url = url
        self.writable = not read_only
        self.max_value_size = max_value_size
        self.values: dict[str, Versioned] = {}

    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""
        if path not in self.values:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self.values[path]

    def children(self, path: str) -> list[str]:
        """List the sorted names of the children of `path`."""
        _, below = split_prefix(path)
        return sorted({other[len(below) :].split("/")[0] for other in self.values if other.startswith(below)})

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, sorted by path."""
        for path in sorted(self.values):
            wanted = is_within(path, prefix) and (after is None or path > after)
            if wanted and path in self.values:
                yield self.values[path]

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected`, and return the new version."""
        self.check_write(path, value)
        current = self.values.get(path)
        self._compare(path, current, expected)
        version = 0 if current is None else current.version + 1
        self.values[path] = Versioned(path, bytes(value), version)
        return version

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        self.check_write(path)
        self._compare(path, self.read(path), expected)
        del self.values[path]

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""

    def _compare(self, path: str, current: Versioned | None, expected: int) -> None:
        version = ABSENT if current is None else current.version
        if version != expected:
            raise ConflictError(f"{path}: expected version {expected}, found {version}", source=self.url)


class OverlayStore(Store):
    """Reads another store, and keeps what is written in memory. Closing it leaves the other store open.

    `changed` has the changed values by path, None for those that were deleted; `counters` has the counters
    that were raised.
    """

    writable = True

    def __init__(self, base: Store) -> None:
        """Put an empty layer of changes on a store."""
        self.base, self.url = base, base.url
        self.max_value_size, self.networked = base.max_value_size, base.networked
        self.batches_requests, self.batches_listings = base.batches_requests, base.batches_listings
        self.counts_sequences, self.needs_parents = base.counts_sequences, base.needs_parents
        self.has_consistent_scans = base.has_consistent_scans
        self.changed: dict[str, Versioned | None] = {}
        self.counters: dict[str, int] = {}

    @property
    def origin(self) -> Document:
        """The header of the other store if it is a copy."""
        return self.base.origin

    def read(self, path: str) -> Versioned:
        """Return the changed value at `path`, or that of the other store."""
        if path not in self.changed:
            return self.base.read(path)
        value = self.changed[path]
        if value is None:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return value

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Read the values at `paths`, None for a path without a value."""
        rest = iter(self.base.read_many([path for path in paths if path not in self.changed]))
        return [self.changed[path] if path in self.changed else next(rest) for path in paths]

    def children(self, path: str) -> list[str]:
        """List the children of `path`, with created ones and without deleted ones."""
        return self.children_many([path])[0]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """List the children of each path."""
        listed = self.base.children_many(paths)
        return [self._children(path, names) for path, names in zip(paths, listed, strict=True)]

    def _children(self, path: str, names: list[str]) -> list[str]:
        below = "/" if path == "/" else f"{path}/"
        created = {
            other[len(below) :].split("/")[0]
            for other, value in self.changed.items()
            if value is not None and other.startswith(below)
        }
        emptied = {
            other[len(below) :].split("/")[0]
            for other, value in self.changed.items()
            if value is None and other.startswith(below)
        }
        gone = {name for name in emptied - created if next(self.scan(f"{below}{name}"), None) is None}
        return sorted(created.union(names) - gone)

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`. A created value comes before its descendants."""
        start = [] if after is None else _order(after)
        created = sorted(
            (
                value
                for path, value in self.changed.items()
                if value is not None and is_within(path, prefix) and _order(path) > start
            ),
            key=lambda value: _order(value.path),
        )
        pending = iter(created)
        following = next(pending, None)
        for value in self.base.scan(prefix, after=after):
            while following is not None and _order(following.path) <= _order(value.path):
                yield following
                following = next(pending, None)
            if value.path not in self.changed:
                yield value
        while following is not None:
            yield following
            following = next(pending, None)

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Keep a value if the current version is `expected`."""
        self.check_write(path, value)
        current = self.find(path)
        version = ABSENT if current is None else current.version
        if version != expected:
            raise conflict(path, self.url)
        times = (None, None) if current is None else (current.created, current.modified)
        self.changed[path] = Versioned(path, bytes(value), version + 1, *times)
        return version + 1

    def delete(self, path: str, expected: int) -> None:
        """Hide a value if the current version is `expected`."""
        self.check_write(path)
        if self.read(path).version != expected:
            raise conflict(path, self.url)
        self.changed[path] = None

    def check_path(self, path: str) -> None:
        """Raise UsageError if the other store can't have a value at `path`."""
        self.base.check_path(path)

    def next_sequence(self, parent: str) -> int | None:
        """Return the next number below `parent`."""
        number = self.base.next_sequence(parent)
        raised = self.counters.get(parent)
        return number if raised is None else max(raised, number or 0)

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Note that a counter is raised."""
        if not self.counts_sequences:
            return super().advance_sequence(parent, floor)
        self.counters[parent] = max(floor, self.next_sequence(parent) or 0)
        return self.counters[parent]

    def close(self) -> None:
        """Do nothing, because the other store stays open."""


def _order(path: str) -> list[str]:
    return path.split("/")
