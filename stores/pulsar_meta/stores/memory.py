"""A store in memory. Versions start at 0 and increase by one per write, as Pulsar counts them."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_meta.codecs.errors import ConflictError, NotFoundError
from pulsar_meta.stores.base import ABSENT, Store, Versioned, is_within, split_prefix


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
