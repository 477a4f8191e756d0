"""Which store a URL opens. Only the module of that store is imported."""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple, cast

from pulsar_meta.access.urls import split_scheme
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.stores.base import Store


class Entry(NamedTuple):
    """`module:Class` of a store, and the extra that brings its client library."""

    target: str
    extra: str | None = None


STORES: Final[dict[str, Entry]] = {
    "snapshot": Entry("pulsar_meta.stores.snapshot:SnapshotStore"),
    "dir": Entry("pulsar_meta.stores.directory:DirectoryStore"),
    "rocksdb": Entry("pulsar_meta.stores.rocksdb:RocksdbStore"),
    "zk": Entry("pulsar_meta.stores.zookeeper:ZookeeperStore", "zookeeper"),
    "zk-files": Entry("pulsar_meta.stores.zookeeper_files:ZookeeperFilesStore"),
    "etcd": Entry("pulsar_meta.stores.etcd:EtcdStore", "etcd"),
    "etcds": Entry("pulsar_meta.stores.etcd:EtcdStore", "etcd"),
    "oxia": Entry("pulsar_meta.stores.oxia:OxiaStore", "oxia"),
}


def open_store(url: str, *, read_only: bool = True) -> Store:
    """Open the store that `url` names; `read_only=False` is needed before anything can be put or deleted.

    UsageError for an unknown scheme, a bad option or a client library that is not installed,
    NotFoundError for files that are not there, UnreachableError for a server that does not answer.
    """
    scheme, _ = split_scheme(url)
    entry = STORES.get(scheme)
    if entry is None:
        raise UsageError(f"no store {scheme + ':'!r}; known: {', '.join(f'{name}:' for name in STORES)}")
    module, _, name = entry.target.partition(":")
    try:
        opened = getattr(import_module(module), name)(url, read_only=read_only)
    except ImportError as error:
        hint = f" (pip install 'pulsar-meta[{entry.extra}]')" if entry.extra else ""
        raise UsageError(
            f"{scheme}: needs {error.name or 'a library'} that is not installed{hint}"
        ) from error
    return cast(Store, opened)
