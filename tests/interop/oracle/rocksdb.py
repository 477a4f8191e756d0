"""Pulsar's own RocksDB metadata store, on a database that we wrote. Runs in the child that has the JVM."""

from __future__ import annotations

from typing import Any


def read_and_go_on(database: str, create: dict[str, bytes], update: dict[str, bytes]) -> dict[str, Any]:
    """Open `database` as a broker does, read all of it, create and update values; return what it said.

    `{"values": {path: (bytes, version, created, modified)}, "created": {path: version}, "updated": …}`
    """
    import jpype

    api = jpype.JPackage("org").apache.pulsar.metadata.api
    optional = jpype.JClass("java.util.Optional")
    config = api.MetadataStoreConfig.builder().build()
    store = api.MetadataStoreFactory.create(f"rocksdb:{database}", config)

    def put(path: str, value: bytes, expected: int) -> int:
        version = optional.of(jpype.JClass("java.lang.Long").valueOf(expected))
        return int(store.put(path, jpype.JArray(jpype.JByte)(value), version).get().getVersion())

    try:
        values = dict(_values(store, "/"))
        created = {path: put(path, value, -1) for path, value in create.items()}
        updated = {path: put(path, value, values[path][1]) for path, value in update.items()}
    finally:
        store.close()
    return {"values": values, "created": created, "updated": updated}


def _values(store: Any, path: str) -> Any:
    found = store.get(path).get()
    if found.isPresent():
        stat = found.get().getStat()
        times = (int(stat.getCreationTimestamp()), int(stat.getModificationTimestamp()))
        yield path, (bytes(found.get().getValue()), int(stat.getVersion()), *times)
    for name in store.getChildren(path).get():
        yield from _values(store, f"{path.rstrip('/')}/{name}")
