"""The interface of metadata stores. A store reads and writes versioned bytes and does not interpret them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Self

from pulsar_meta.codecs.errors import ConflictError, DecodeError, GuardError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document

# The expected version of a value that must not exist yet, as in Pulsar's MetadataStore.put.
ABSENT: Final = -1
# Path, value, expected version.
Write = tuple[str, bytes, int]
# Path, expected version.
Deletion = tuple[str, int]


class Versioned(NamedTuple):
    """A value with its path and its version in the store.

    Versions belong to the store and are only compared: ZooKeeper's dataVersion, etcd's mod_revision, Oxia's
    versionId, the version in the header of Pulsar's RocksDB values, or a number derived from a file's
    content. Times are in milliseconds since the epoch, or None if the store doesn't record them. This is a
    tuple because a scan creates one for every value in the store.
    """

    path: str
    value: bytes
    version: int
    created: int | None = None
    modified: int | None = None
    ephemeral: bool = False

    def __repr__(self) -> str:
        # Values can contain credentials, which must not end up in logs.
        return f"Versioned({self.path!r}, {len(self.value)} bytes, version {self.version})"


class Change(NamedTuple):
    """How one transaction changed one value.

    `transaction` is the store's number for it (ZooKeeper's zxid, etcd's revision), `time` is in milliseconds
    since the epoch, and `writer` is the broker or session that wrote the value. Both are None if unknown.
    `value` is None if the value was deleted. `first` marks a value that is older than the recorded history.
    """

    transaction: int
    time: int | None
    writer: str | None
    value: Versioned | None
    first: bool = False


class Store(ABC):
    """A tree of values by path (`/a/b`), with reads and compare-and-set writes.

    Operations that only some stores support have a default here. Every method may raise UnreachableError. A
    path can have children without having a value.
    """

    url: str
    writable: bool
    # The largest value in bytes that the server accepts, or None if there is no limit.
    max_value_size: int | None = None
    # Requests take a network round trip, so callers should keep several in flight.
    networked: bool = False
    # Opening the store for writing takes a lock that brokers need to run.
    locks_out_brokers: bool = False
    # `read_many`, `put_many` and `delete_many` cost about one request per call; otherwise threads are faster.
    batches_requests: bool = False
    # `children_many` costs about one request per call.
    batches_listings: bool = False
    # The store numbers sequential nodes, and `advance_sequence` can raise the next number.
    counts_sequences: bool = False
    # True if raising a counter takes one write per number.
    counts_by_writes: bool = False
    # Clients can only create a path if its parent exists.
    needs_parents: bool = False
    # A scan returns all values as of one moment, even if others write during the scan.
    has_consistent_scans: bool = False

    @property
    def is_stale(self) -> bool:
        """Whether the store shows the state at its opening and is known to have changed since then."""
        return False

    @property
    def may_be_live(self) -> bool:
        """Whether brokers may be writing to what this store shows."""
        return self.networked

    @property
    def origin(self) -> Document:
        """The header of a copy, which describes the store it was taken from; empty if this is not a copy."""
        return {}

    @property
    def is_indexed(self) -> bool:
        """Whether `scan` can find a subtree without reading the rest of the store, as of one moment."""
        return False

    @property
    def checkpoint(self) -> Path | None:
        """The directory with a copy of the store from before the first write, or None if there is no copy."""
        return None

    def as_of_now(self) -> Self:
        """Return a read-only view of the store's current state, or the store if it has no such views."""
        return self

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Do the slow work that the first `read` or `children` would otherwise wait for.

        Calls `advance` with the number of values processed since the last call. Raises DecodeError if a copy
        is damaged.
        """
        return

    @abstractmethod
    def read(self, path: str) -> Versioned:
        """Return the value at `path`. Raises NotFoundError if there is no value."""

    def find(self, path: str) -> Versioned | None:
        """Return the value at `path`, None if there is no value."""
        try:
            return self.read(path)
        except NotFoundError:
            return None

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """List the sorted names (not paths) of the children of `path`, including parents without a value."""

    @abstractmethod
    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, in the store's order of paths.

        A parent comes before its descendants. `after` resumes an earlier scan: it must be a path that the
        scan returned, and only later values are yielded.
        """

    def history(self, path: str) -> Iterator[Change]:
        """Yield every recorded change of the value at `path`, oldest first.

        Raises UsageError if the store only keeps current values.
        """
        raise UsageError("keeps no history; zk-files: and etcd do", source=self.url)

    @abstractmethod
    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write `value` if the current version is `expected` (ABSENT creates it), and return the new version.

        Raises ConflictError if the version differs. Raises GuardError, before sending anything, if the store
        is read-only or `value` is larger than the server accepts.
        """

    @abstractmethod
    def delete(self, path: str, expected: int) -> None:
        """Delete the value if its version is `expected`.

        Raises NotFoundError if there is no value, and otherwise the same errors as `put`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections and files. Can be called twice."""

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Read the values at `paths`, in the same order, with None for a path without a value."""
        return [self.find(path) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """List the children of each path, as `children` does."""
        return [self.children(path) for path in paths]

    def next_sequence(self, parent: str) -> int | None:
        """Return the number that the server would give the next sequential node below `parent`.

        Returns None if the store doesn't number nodes, or if `parent` doesn't exist.
        """
        return None

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Raise the number of the next sequential node below `parent` to at least `floor`, and return it.

        The number never decreases. Most servers need one small write for each number that is skipped. Raises
        UsageError if the store doesn't number nodes or can't count that far, and GuardError if it is
        read-only.
        """
        raise UsageError("has no counters", source=self.url)

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Write each (path, value, expected) as `put` does. Returns new versions, with None for conflicts.

        Each write succeeds or fails independently. After an UnreachableError it is unknown which ones
        succeeded.
        """
        for path, value, _ in writes:
            self.check_write(path, value)
        return [self._try_put(*write) for write in writes]

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Delete each (path, expected) as `delete` does, and return True for those that succeeded.

        A deletion fails if the value has changed, is missing, or has children that prevent it. After an
        UnreachableError it is unknown which ones succeeded.
        """
        for path, _ in deletions:
            self.check_write(path)
        return [self._try_delete(*deletion) for deletion in deletions]

    def check_path(self, path: str) -> None:
        """Raise UsageError if the store can't have a value at `path`."""
        valid_path(path)

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise the error that `put` would raise before sending: UsageError (bad path) or GuardError."""
        self.check_path(path)
        if not self.writable:
            raise GuardError("opened for reading only", source=self.url)
        limit = self.max_value_size
        if limit is not None and len(value) > limit:
            raise GuardError(
                f"{path}: the value has {len(value)} bytes, the server accepts {limit}", source=self.url
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _try_put(self, path: str, value: bytes, expected: int) -> int | None:
        try:
            return self.put(path, value, expected)
        except (ConflictError, NotFoundError):
            return None

    def _try_delete(self, path: str, expected: int) -> bool:
        try:
            self.delete(path, expected)
        except (ConflictError, NotFoundError):
            return False
        except GuardError:
            # Another client has created a child since the value was read.
            if self.children(path):
                return False
            raise
        return True


class ReadOnlyStore(Store):
    """A store that can't be written. `read_only` is the reason, with what to do instead."""

    writable = False
    read_only: str

    def put(self, path: str, value: bytes, expected: int) -> int:
        """Raise GuardError."""
        self.refuse()

    def delete(self, path: str, expected: int) -> None:
        """Raise GuardError."""
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise GuardError with the reason."""
        raise GuardError(self.read_only, source=self.url)


def is_immutable(store: Store) -> bool:
    """Whether an open store always shows the same values, because it is a copy or a view of one moment."""
    return store.has_consistent_scans and not store.networked


def conflict(path: str, source: str) -> ConflictError:
    """Return the error for a value that isn't in the expected version."""
    return ConflictError(f"{path}: the value has changed since it was read", source=source)


def valid_path(path: str) -> str:
    """Return `path` unchanged. Raises UsageError if it has an empty part, `.`, `..` or NUL."""
    parts = path.split("/")
    if parts[0] != "" or len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts[1:]):
        raise UsageError(f"invalid path {path!r}: expected /a/b, without empty parts, '.' or '..'")
    return path


def split_prefix(prefix: str) -> tuple[str, str]:
    """Return `prefix` without its trailing slash, and the same with one, as paths below it begin."""
    if not prefix.startswith("/"):
        raise UsageError(f"invalid path {prefix!r}: a path begins with /")
    bare = prefix.rstrip("/")
    return bare or "/", bare + "/"


def is_within(path: str, prefix: str) -> bool:
    """Whether `path` is `prefix` or below it (`/ab` is not below `/a`)."""
    bare, below = split_prefix(prefix)
    return path == bare or path.startswith(below)


def current(store: Store, path: str) -> Versioned:
    """Return the value at `path`, or an empty one with version ABSENT."""
    return store.find(path) or Versioned(path, b"", ABSENT)


def key_text(key: bytes, url: str) -> str:
    """Return a key of a store as text. Raises DecodeError if it is not UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a key is not UTF-8: {key[:80]!r}", source=url) from error


def parents_of(path: str) -> Iterator[str]:
    """Yield the paths above `path`, nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def roots_after(children: Callable[[str], list[str]], prefix: str, after: str) -> Iterator[str]:
    """Yield the roots of the subtrees that a walk below `prefix` visits after the path `after`.

    The walk visits parents first and siblings by name. `children` lists the sorted names below a path. Raises
    UsageError if `after` is not below `prefix`.
    """
    bare = split_prefix(prefix)[0]
    if not is_within(after, bare):
        raise UsageError(f"{after} is not below {bare}")
    yield from (child_path(after, name) for name in children(after))
    while after != bare:
        parent, _, passed = after.rpartition("/")
        after = parent or "/"
        yield from (child_path(after, name) for name in children(after) if name > passed)


def child_path(parent: str, name: str) -> str:
    """Return the path of the child `name` of `parent`."""
    return f"{parent.rstrip('/')}/{name}"
