"""A store in memory, with Pulsar's own versions: from 0, one more at each write."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_meta.codecs.errors import ConflictError, NotFoundError
from pulsar_meta.stores.base import ABSENT, BaseStore, Versioned, is_within, prefixed


class MemoryStore(BaseStore):
    """Values in a dictionary; what every other store is compared with."""

    def __init__(
        self, url: str = "memory:", *, read_only: bool = False, max_value_size: int | None = None
    ) -> None:
        """Start empty; `max_value_size` is the limit that `put` keeps to."""
        self.url = url
        self.writable = not read_only
        self.max_value_size = max_value_size
        self.values: dict[str, Versioned] = {}

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        if path not in self.values:
            raise NotFoundError(f"nothing at {path}", source=self.url)
        return self.values[path]

    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""
        _, below = prefixed(path)
        return sorted({other[len(below) :].split("/")[0] for other in self.values if other.startswith(below)})

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix` in the order of their paths."""
        for path in sorted(self.values):
            wanted = is_within(path, prefix) and (after is None or path > after)
            if wanted and path in self.values:
                yield self.values[path]

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` and return the new one."""
        self.check_write(path, value)
        held = self.values.get(path)
        self._compare(path, held, expected)
        version = 0 if held is None else held.version + 1
        self.values[path] = Versioned(path, bytes(value), version)
        return version

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""
        self.check_write(path)
        self._compare(path, self.read(path), expected)
        del self.values[path]

    def close(self) -> None:
        """Keep everything: there is nothing to let go of."""

    def _compare(self, path: str, held: Versioned | None, expected: int) -> None:
        version = ABSENT if held is None else held.version
        if version != expected:
            raise ConflictError(f"{path}: version {version}, not {expected}", source=self.url)
