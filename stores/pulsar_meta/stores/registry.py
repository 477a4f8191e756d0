"""Open a store by its URL, an address from Pulsar's or BookKeeper's configuration, or a path.

Only the module of that store is imported.

Sources: apache/pulsar ServiceConfiguration (`metadataStoreUrl`, `zookeeperServers`,
`bookkeeperMetadataServiceUri`), AbstractMetadataDriver (`metadata-store:`), EtcdMetadataStore;
apache/bookkeeper ServiceURI (`zk+hierarchical://HOST;HOST/ledgers`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

from pulsar_meta.access.files import open_regular
from pulsar_meta.access.urls import redact
from pulsar_meta.codecs.compression import ZSTD_MAGIC
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UnreachableError, UsageError, install_hint
from pulsar_meta.codecs.names import LEDGERS
from pulsar_meta.codecs.patterns import lazy_pattern
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.routed import MARK, RoutedStore

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
