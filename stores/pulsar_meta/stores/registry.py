"""Open a store by its URL. Only the module of that store is imported."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Final

from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.routed import MARK, RoutedStore

# The class of each scheme's store, as `module:Class`.
STORES: Final[dict[str, str]] = {
    "snapshot": "pulsar_meta.stores.snapshot:SnapshotStore",
    "dir": "pulsar_meta.stores.directory:DirectoryStore",
    "rocksdb": "pulsar_meta.stores.rocksdb:RocksdbStore",
    "zk": "pulsar_meta.stores.zookeeper:ZookeeperStore",
    "zk-files": "pulsar_meta.stores.zookeeper_files:ZookeeperFilesStore",
    "etcd": "pulsar_meta.stores.etcd:EtcdStore",
    "etcds": "pulsar_meta.stores.etcd:EtcdStore",
    "oxia": "pulsar_meta.stores.oxia:OxiaStore",
}


def open_store(url: str, *, read_only: bool = True) -> Store:
    """Open the store at `url`. Pass `read_only=False` to allow writes and deletions.

    With `URL#ledgers=URL`, the second store holds `/ledgers`.

    Raises UsageError for an unknown scheme, an invalid option or a missing client library, NotFoundError if
    the files don't exist, and UnreachableError if the server doesn't answer.
    """
    main, mark, ledgers = url.partition(MARK)
    if not mark:
        return _open_single(url, read_only=read_only)
    with ExitStack() as open_stores:
        stores = [
            open_stores.enter_context(_open_single(part, read_only=read_only)) for part in (main, ledgers)
        ]
        open_stores.pop_all()
    return RoutedStore(*stores)


def _open_single(url: str, *, read_only: bool) -> Store:
    scheme, _ = split_scheme(url)
    target = STORES.get(scheme)
    if target is None:
        raise UsageError(
            f"unknown store {scheme + ':'!r}; choose one of {', '.join(f'{name}:' for name in STORES)}"
        )
    module, _, name = target.partition(":")
    try:
        store: Store = getattr(import_module(module), name)(url, read_only=read_only)
    except ImportError as error:
        raise UsageError(
            f"{scheme}: needs {error.name or 'a library'}, which is not installed; reinstall pulsar-meta"
        ) from error
    return store
