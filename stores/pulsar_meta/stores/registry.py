"""Open a store by its URL, an address from Pulsar's or BookKeeper's configuration, or a path.

Only the module of that store is imported. `URL#ledgers=URL` is one store for everything except `/ledgers`,
which is read from a second store. Use it if brokers have different locations for `metadataStoreUrl` and
`bookkeeperMetadataServiceUri` (in bookies, `metadataServiceUri`). The second store then holds BookKeeper's
metadata, the bookies' cookies and the ledger id generator. If the first store also has values at `/ledgers`,
they are ignored. Only the path determines which store a call goes to, and the two stores are never read as of
one common moment.

Sources: apache/pulsar ServiceConfiguration (`metadataStoreUrl`, `zookeeperServers`,
`bookkeeperMetadataServiceUri`), PulsarService, AbstractMetadataDriver (`metadata-store:`),
EtcdMetadataStore; apache/bookkeeper ServiceURI (`zk+hierarchical://HOST;HOST/ledgers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

from pulsar_meta.access.files import open_regular
from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.compression import ZSTD_MAGIC
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError, install_hint
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.codecs.patterns import lazy_pattern
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

# The class of each scheme's store, as `module:Class`.
STORES: Final[dict[str, str]] = {
    "snapshot": "pulsar_meta.stores.snapshot:SnapshotStore",
    "dir": "pulsar_meta.stores.directory:DirectoryStore",
    "files": "pulsar_meta.stores.directory:FilesStore",
    "rocksdb": "pulsar_meta.stores.rocksdb:RocksdbStore",
    "zk": "pulsar_meta.stores.zookeeper:ZookeeperStore",
    "zk-files": "pulsar_meta.stores.zookeeper_files:ZookeeperFilesStore",
    "etcd": "pulsar_meta.stores.etcd:EtcdStore",
    "etcds": "pulsar_meta.stores.etcd:EtcdStore",
    "oxia": "pulsar_meta.stores.oxia:OxiaStore",
}
METADATA_STORE: Final = "metadata-store:"
# The ports of servers other than ZooKeeper, whose addresses need a scheme.
OTHER_PORTS: Final = {"2379": "etcd", "6648": "oxia"}
# Directories that a store of Pulsar or BookKeeper has at its root.
ROOTS: Final = ("admin", "managed-ledgers", "ledgers", "loadbalance", "schemas")

_servers_re = lazy_pattern(r"[\w.-]+:\d{1,5}(?:,[\w.-]+(?::\d{1,5})?)*(?:/[^?]*)?(?:\?.*)?")
_bookkeeper_re = lazy_pattern(r"zk\+\w+://(?P<hosts>[^/?]+)(?P<path>/[^?]*)?(?P<query>\?.*)?")
_etcd_re = lazy_pattern(r"etcd:(?P<servers>https?://[^?]*)(?P<query>\?.*)?")


def open_store(address: str, *, read_only: bool = True) -> Store:
    """Open the store at an address (see `store_url`). Pass `read_only=False` to allow writes and deletions.

    Raises the errors of `store_url`, UsageError for an invalid option or a missing client library,
    NotFoundError if the files don't exist, and UnreachableError if the server doesn't answer.
    """
    urls = store_url(address).split(MARK)
    if len(urls) == 1:
        return _open_single(urls[0], read_only=read_only)
    with ExitStack() as stack:
        main, ledgers = [stack.enter_context(_open_single(url, read_only=read_only)) for url in urls]
        stack.pop_all()
    return RoutedStore(main, ledgers)


@contextmanager
def current_store(store: Store) -> Iterator[Store]:
    """Provide a store as it is now: itself, or opened again if it has changed since it was opened."""
    if not store.is_stale:
        yield store
        return
    with open_store(store.url) as current:
        yield current


def _open_single(url: str, *, read_only: bool) -> Store:
    scheme = url.partition(":")[0]
    module, _, name = STORES[scheme].partition(":")
    try:
        store: Store = getattr(import_module(module), name)(url, read_only=read_only)
    except ImportError as error:
        missing = error.name or "a library"
        raise UsageError(
            f"{scheme}: needs {missing}, which is not installed ({install_hint(missing)})"
        ) from error
    return store


def store_url(address: str) -> str:
    """Return the URL of the store at an address.

    Addresses are store URLs, which are returned unchanged, values of `metadataStoreUrl`,
    `bookkeeperMetadataServiceUri` and `zookeeperServers`, and paths of a snapshot, a RocksDB database,
    ZooKeeper's data or a directory store. `A#ledgers=B` combines two addresses, of which the second one has
    `/ledgers`. Raises UsageError for any other address, and NotFoundError for a path that doesn't exist.
    """
    main, mark, ledgers = address.partition(MARK)
    return f"{_single_url(main)}{mark}{_single_url(ledgers)}" if mark else _single_url(main)


def _single_url(address: str) -> str:
    if address.startswith(METADATA_STORE):
        # BookKeeper separates servers by semicolons. Its ledgers are at /ledgers below the chroot.
        return _single_url(address.removeprefix(METADATA_STORE).replace(";", ","))
    if match := _bookkeeper_re.fullmatch(address):
        return _from_bookkeeper(address, match)
    if match := _etcd_re.fullmatch(address):
        return _from_etcd(address, match)
    scheme, _, rest = address.partition(":")
    if rest and scheme in STORES:
        return address
    if _servers_re.fullmatch(address):
        return _from_servers(address)
    return _from_path(address)


def _from_bookkeeper(address: str, match: re.Match[str]) -> str:
    """Translate `zk+hierarchical://HOST;HOST/CHROOT/ledgers`. Raises UsageError for another ledger root."""
    path = (match["path"] or "").rstrip("/")
    if not path.endswith(LEDGERS):
        raise UsageError(f"unsupported ledger root in {redact(address)}: expected a path ending in {LEDGERS}")
    return f"zk://{match['hosts'].replace(';', ',')}{path.removesuffix(LEDGERS)}{match['query'] or ''}"


def _from_etcd(address: str, match: re.Match[str]) -> str:
    """Translate `etcd:http://HOST:PORT,http://HOST:PORT`, or https for TLS."""
    servers = [server.rstrip("/").partition("://") for server in match["servers"].split(",")]
    schemes = {scheme for scheme, _, _ in servers}
    if len(schemes) > 1:
        raise UsageError(f"{redact(address)} mixes http and https; use etcd:// or etcds:// for all servers")
    hosts = ",".join(host for _, _, host in servers)
    return f"{'etcds' if schemes == {'https'} else 'etcd'}://{hosts}{match['query'] or ''}"


def _from_servers(address: str) -> str:
    """Translate `HOST:PORT,HOST:PORT/CHROOT`, as in zookeeperServers."""
    ports = set(re.findall(r":(\d+)", address.partition("/")[0]))
    for port, scheme in OTHER_PORTS.items():
        if port in ports:
            raise UsageError(f"{address} has no scheme; use {scheme}://{address} if this is {scheme}")
    return f"zk://{address}"


def _from_path(address: str) -> str:
    path = Path(address)
    if not path.exists():
        # Options follow a question mark, as in URLs.
        path = Path(address.partition("?")[0])
    try:
        if address and path.exists():
            return f"{_kind_of(path)}:{address}"
    except OSError as error:
        raise UnreachableError(f"cannot read the path: {error.strerror}", source=str(path)) from error
    if "/" in address and ":" not in address:
        raise NotFoundError("no such file or directory", source=address)
    known = ", ".join(f"{name}:" for name in STORES)
    raise UsageError(f"unknown store {redact(address)!r}; choose one of {known} or give a path")


def _kind_of(path: Path) -> str:
    """Return the scheme for an existing file or directory. Raises UsageError if it is not a store."""
    if not path.is_dir():
        if _is_snapshot(path):
            return "snapshot"
        raise UsageError(f"{path} is a file, but not a snapshot: give a snapshot, a directory or a store URL")
    if (path / "CURRENT").is_file():
        return "rocksdb"
    if (path / "version-2").is_dir() or any(path.glob("snapshot.*")) or any(path.glob("log.*")):
        return "zk-files"
    if any((path / name).is_dir() for name in ROOTS):
        return "dir"
    raise UsageError(f"{path} is not a RocksDB database, ZooKeeper's data or a directory store (dir:)")


def _is_snapshot(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            beginning = file.read(len(ZSTD_MAGIC))
    except DecodeError:
        return False
    return beginning == ZSTD_MAGIC or beginning.startswith(b"{")


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
