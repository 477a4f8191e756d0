"""What every metadata store can do. A store moves versioned bytes and knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

# The version that means "must not exist", as in Pulsar's own MetadataStore.put.
ABSENT: Final = -1


class Versioned(NamedTuple):
    """A value as the store holds it.

    `version` is the store's own and is only ever compared, never counted on: ZooKeeper's dataVersion,
    etcd's mod_revision, Oxia's versionId, the version in the header of Pulsar's RocksDB values, for
    files a number made from their content. Times are milliseconds since the epoch, None where the
    store keeps none. A tuple, since a scan makes one of these for every value there is.
    """

    path: str
    value: bytes
    version: int
    created: int | None = None
    modified: int | None = None
    ephemeral: bool = False

    def __repr__(self) -> str:
        # Values hold credentials, and end up in no log.
        return f"Versioned({self.path!r}, {len(self.value)} bytes, version {self.version})"


class Store(Protocol):
    """A tree of values by path (`/a/b`), read and compare-and-set.

    Every method may raise UnreachableError. A parent may have children without existing itself.
    """

    url: str
    writable: bool
    # Largest value in bytes that the server takes, None where there is no limit.
    max_value_size: int | None

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the sorted names (not paths) of the children of `path`, implied parents included."""
        ...

    def scan(self, prefix: str = "/") -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, in pages, ordered by path as the store orders."""
        ...

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` (ABSENT: create) and return the new one.

        ConflictError where the version moved, GuardError where the value is over the server's limit
        (nothing is sent then) or the store is read-only.
        """
        ...

    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`; ConflictError, NotFoundError, GuardError as in `put`."""
        ...

    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class GroupStore(Protocol):
    """What a store may offer beside `Store`: many requests sent before the first answer is waited for.

    Each value is still compared and set by itself; a store without this is asked by several threads.
    """

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none."""
        ...

    def put_many(self, writes: Sequence[tuple[str, bytes, int]]) -> list[int | None]:
        """Make each (path, value, expected) as `Store.put` does; return new versions, None for a conflict.

        UnreachableError: which of them were made is not known.
        """
        ...


@runtime_checkable
class ListingStore(Protocol):
    """What a store may offer beside `Store`: the children of several paths in the time of one answer."""

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `Store.children` does for each path."""
        ...
