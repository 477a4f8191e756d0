"""What every metadata store can do. A store moves versioned bytes and knows nothing of what they mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from pulsar_meta.codecs.errors import ConflictError, GuardError, NotFoundError, UsageError
from pulsar_meta.codecs.json_text import Document

# The version that means "must not exist", as in Pulsar's own MetadataStore.put.
ABSENT: Final = -1
# Path, value, expected version.
Write = tuple[str, bytes, int]
# Path, expected version.
Deletion = tuple[str, int]


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


class Change(NamedTuple):
    """What one transaction made of one value.

    `transaction` is the store's own number (ZooKeeper's zxid, etcd's revision), `time` milliseconds since the
    epoch, `writer` the broker or session that wrote; None where nobody knows. `value` is None where the value
    was removed, `first` marks one that was there before the history begins.
    """

    transaction: int
    time: int | None
    writer: str | None
    value: Versioned | None
    first: bool = False


class Store(Protocol):
    """A tree of values by path (`/a/b`), read and compare-and-set.

    What only some stores can do is here too; `BaseStore` has the answers of the others. Every method may
    raise UnreachableError. A parent may have children without existing itself.
    """

    url: str
    writable: bool
    # Largest value in bytes that the server takes, None where there is no limit.
    max_value_size: int | None

    @property
    def networked(self) -> bool:
        """Whether an answer takes its time to come, so that several requests belong under way at once."""
        ...

    @property
    def behind(self) -> bool:
        """Whether it is read as of its opening, and was written since."""
        ...

    @property
    def locks_out_brokers(self) -> bool:
        """Whether no broker can live on the store while it is open for writing: it holds their lock."""
        ...

    @property
    def sends_groups(self) -> bool:
        """Whether `read_many`, `put_many`, `delete_many` cost about one request; else threads are quicker."""
        ...

    @property
    def lists_groups(self) -> bool:
        """The same of `children_many`."""
        ...

    @property
    def origin(self) -> Document:
        """What a copy says of the store it was taken from (a snapshot's head); empty for the store itself."""
        ...

    @property
    def counts_sequences(self) -> bool:
        """Whether the store gives numbers to sequential nodes, and can be made to go on from a higher one."""
        ...

    @property
    def needs_parents(self) -> bool:
        """Whether clients can write below a path only where there is something at it already."""
        ...

    @property
    def finds_parts(self) -> bool:
        """Whether what lies below a path is found without the rest, in `as_of_now` of one moment."""
        ...

    @property
    def scans_one_moment(self) -> bool:
        """Whether a scan gives all values as they were at one moment, whatever is written meanwhile."""
        ...

    @property
    def checkpoint(self) -> Path | None:
        """Where the whole store lies as it was before the first write, None where nothing keeps it."""
        ...

    def as_of_now(self) -> Self:
        """Return the store as it is now, for reading while this one is open, where it can be had."""
        ...

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Do what has to be done once before the first `read` or `children`, where that takes its time.

        `advance` is given the number of values that were passed. DecodeError where a copy is broken.
        """
        ...

    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""
        ...

    def children(self, path: str) -> list[str]:
        """Return the sorted names (not paths) of the children of `path`, implied parents included."""
        ...

    def scan(self, prefix: str = "/", *, after: str | None = None) -> Iterator[Versioned]:
        """Yield every value at and below `prefix`, in pages, ordered by path as the store orders.

        A parent comes before what is below it. With `after`, a path at or below `prefix` that an earlier
        scan gave, only what comes behind it.
        """
        ...

    def history(self, path: str) -> Iterator[Change]:
        """Yield every change of the value at `path`, the oldest first, as far back as the store goes.

        UsageError where the store keeps only what is there now.
        """
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

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none."""
        ...

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `children` does for each path."""
        ...

    def next_sequence(self, parent: str) -> int | None:
        """Return the number that a server would give the next sequential node below `parent`.

        None where the store counts nothing by itself, or has no such node.
        """
        ...

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Have the next sequential node below `parent` get the number `floor` or a higher one; return which.

        It never goes back, and takes one small write for each number that most servers pass over. UsageError
        where the store counts nothing, or not so far; GuardError where it is read-only.
        """
        ...

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Make each (path, value, expected) as `put` does; return new versions, None for a conflict.

        Each value is compared and set by itself. UnreachableError: which of them were made is not known.
        """
        ...

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Make each (path, expected) as `delete` does; return which were made.

        One is not where the value moved, is gone, or has children that keep it. UnreachableError as above.
        """
        ...

    def check_path(self, path: str) -> None:
        """Raise UsageError where the store has no value at such a path."""
        ...

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise what `put` would before it sends anything: GuardError, UsageError for a bad path."""
        ...

    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BaseStore(ABC):
    """What stores share: opening and closing, refusing what must not be sent, groups one by one."""

    url: str
    writable: bool
    max_value_size: int | None = None
    networked: bool = False
    locks_out_brokers: bool = False
    sends_groups: bool = False
    lists_groups: bool = False
    counts_sequences: bool = False
    needs_parents: bool = False
    scans_one_moment: bool = False

    @property
    def behind(self) -> bool:
        """No: not as far as is known."""
        return False

    @property
    def origin(self) -> Document:
        """Nothing: this is no copy."""
        return {}

    @property
    def finds_parts(self) -> bool:
        """No: not as far as is known."""
        return False

    @property
    def checkpoint(self) -> Path | None:
        """None: nothing keeps what was there before."""
        return None

    def history(self, path: str) -> Iterator[Change]:
        """Raise UsageError: only what is there now is kept."""
        raise UsageError("keeps no history; zk-files: and etcd do", source=self.url)

    def as_of_now(self) -> Self:
        """Return this one: it stands still, or nothing makes it."""
        return self

    def prepare(self, advance: Callable[[int], None]) -> None:
        """Do nothing: the first read takes no longer than any other."""
        return

    @abstractmethod
    def read(self, path: str) -> Versioned:
        """Return the value at `path`; NotFoundError where there is none."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names of the children of `path`."""

    @abstractmethod
    def put(self, path: str, value: bytes, expected: int) -> int:
        """Write if the version is still `expected` and return the new one."""

    @abstractmethod
    def delete(self, path: str, expected: int) -> None:
        """Delete if the version is still `expected`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and files. Safe to call twice."""

    def read_many(self, paths: Sequence[str]) -> list[Versioned | None]:
        """Return the values at `paths` in their order, None where there is none."""
        return [self._read_if_there(path) for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str]]:
        """Return what `children` does for each path."""
        return [self.children(path) for path in paths]

    def next_sequence(self, parent: str) -> int | None:
        """None: nothing is counted."""
        return None

    def advance_sequence(self, parent: str, floor: int) -> int:
        """Raise UsageError: nothing is counted."""
        raise UsageError("has no counters", source=self.url)

    def put_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Make each (path, value, expected) as `put` does; return new versions, None for a conflict."""
        for path, value, _ in writes:
            self.check_write(path, value)
        return [self._put_or_conflict(*write) for write in writes]

    def delete_many(self, deletions: Sequence[Deletion]) -> list[bool]:
        """Make each (path, expected) as `delete` does; return which were made."""
        for path, _ in deletions:
            self.check_write(path)
        return [self._delete_or_conflict(*deletion) for deletion in deletions]

    def check_path(self, path: str) -> None:
        """Raise UsageError for empty parts, `.`, `..` or NUL."""
        checked(path)

    def check_write(self, path: str, value: bytes = b"") -> None:
        """Raise GuardError where the store is read-only or `value` is over the server's limit."""
        self.check_path(path)
        if not self.writable:
            raise GuardError("opened for reading only", source=self.url)
        limit = self.max_value_size
        if limit is not None and len(value) > limit:
            raise GuardError(f"{path}: {len(value)} bytes, the server takes {limit}", source=self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_if_there(self, path: str) -> Versioned | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def _put_or_conflict(self, path: str, value: bytes, expected: int) -> int | None:
        try:
            return self.put(path, value, expected)
        except (ConflictError, NotFoundError):
            return None

    def _delete_or_conflict(self, path: str, expected: int) -> bool:
        try:
            self.delete(path, expected)
        except (ConflictError, NotFoundError):
            return False
        except GuardError:
            # Somebody made a child of it: it is not what it was.
            if self.children(path):
                return False
            raise
        return True


def stands_still(store: Store) -> bool:
    """Return whether a store, while it is open, never shows anything else: it is a copy, or a view of one."""
    return store.scans_one_moment and not store.networked


def checked(path: str) -> str:
    """Return `path` if a value can be written there; UsageError for empty parts, `.`, `..` or NUL."""
    parts = path.split("/")
    if parts[0] != "" or len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts[1:]):
        raise UsageError(f"{path!r}: a path is /a/b, without empty parts, . and ..")
    return path


def prefixed(prefix: str) -> tuple[str, str]:
    """Return (`prefix` without a closing slash, what every path below it begins with)."""
    if not prefix.startswith("/"):
        raise UsageError(f"{prefix!r}: a path begins with /")
    bare = prefix.rstrip("/")
    return bare or "/", bare + "/"


def is_within(path: str, prefix: str) -> bool:
    """Return whether `path` is `prefix` or lies below it (`/ab` does not lie below `/a`)."""
    bare, below = prefixed(prefix)
    return path == bare or path.startswith(below)


def parents_of(path: str) -> Iterator[str]:
    """Yield the paths above `path` but for the root, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


def behind(children: Callable[[str], list[str]], prefix: str, after: str) -> Iterator[str]:
    """Yield the roots of what a walk below `prefix` comes to behind `after`: parents first, siblings by name.

    `children` gives the sorted names below a path. UsageError where `after` does not lie below `prefix`.
    """
    bare = prefixed(prefix)[0]
    if not is_within(after, bare):
        raise UsageError(f"{after} does not lie below {bare}")
    yield from (joined(after, name) for name in children(after))
    while after != bare:
        parent, _, passed = after.rpartition("/")
        after = parent or "/"
        yield from (joined(after, name) for name in children(after) if name > passed)


def joined(parent: str, name: str) -> str:
    """Return the path of the child `name` of `parent`."""
    return f"{parent.rstrip('/')}/{name}"
