"""Which store a URL opens. Only the module of that store is imported."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Final, cast

from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.stores.base import Store
from pulsar_meta.stores.routed import MARK, RoutedStore

# `module:Class` of each.
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
    """Open the store that `url` names; `read_only=False` is needed before anything can be put or deleted.

    `URL#ledgers=URL`: the second one has what lies at `/ledgers`.

    UsageError for an unknown scheme, a bad option or a client library that is not installed,
    NotFoundError for files that are not there, UnreachableError for a server that does not answer.
    """
    main, mark, ledgers = url.partition(MARK)
    if not mark:
        return _opened(url, read_only=read_only)
    with ExitStack() as opened:
        stores = [opened.enter_context(_opened(one, read_only=read_only)) for one in (main, ledgers)]
        opened.pop_all()
    return RoutedStore(*stores)


def _opened(url: str, *, read_only: bool) -> Store:
    scheme, _ = split_scheme(url)
    target = STORES.get(scheme)
    if target is None:
        raise UsageError(f"no store {scheme + ':'!r}; known: {', '.join(f'{name}:' for name in STORES)}")
    module, _, name = target.partition(":")
    try:
        opened = getattr(import_module(module), name)(url, read_only=read_only)
    except ImportError as error:
        raise UsageError(
            f"{scheme}: needs {error.name or 'a library'}, which is not installed (it comes with pulsar-meta)"
        ) from error
    return cast(Store, opened)
