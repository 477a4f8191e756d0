"""Every value of a standalone's metadata, read with the store's own client instead of pulsar-meta's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tests.servers.jvm import Jvm

if TYPE_CHECKING:
    from tests.servers.pulsar import PulsarStandalone

# The header that Pulsar's RocksdbMetadataStore puts before each value: the header's size and format, the
# version, owner, creation and modification time, and whether the value is ephemeral.
_HEADER: Final = struct.Struct(">iiqqqq?")


def dump(pulsar: PulsarStandalone) -> list[dict[str, Any]]:
    """Return the values in the order of their paths: path, version, created, modified, ephemeral, value.

    They are read from ZooKeeper while it runs, or from RocksDB (of that version) when it is stopped.
    """
    return list(_zookeeper(pulsar.zookeeper_port) if pulsar.uses_zookeeper else _rocksdb(pulsar))


def _rocksdb(pulsar: PulsarStandalone) -> Iterator[dict[str, Any]]:
    with Jvm(pulsar.version, heap="256m") as jvm:
        stored = jvm.call("tests.servers.inside:dump_rocksdb", str(pulsar.metadata_dir))
    for path, value in stored:
        if not path.startswith("/"):
            continue
        yield {"path": path, **_header(value), "value": value[_HEADER.size :]}


def _header(value: bytes) -> dict[str, Any]:
    _, _, version, _, created, modified, ephemeral = _HEADER.unpack_from(value)
    return {"version": version, "created": created, "modified": modified, "ephemeral": ephemeral}


def _zookeeper(port: int) -> Iterator[dict[str, Any]]:
    from kazoo.client import KazooClient

    client = KazooClient(f"127.0.0.1:{port}")
    client.start()
    try:
        waiting = ["/"]
        while waiting:
            path = waiting.pop()
            value, stat = client.get(path)
            if not path.startswith("/zookeeper"):
                yield {"path": path, "version": stat.version, "value": value or b""}
            waiting += sorted(
                (f"{path.rstrip('/')}/{name}" for name in client.get_children(path)), reverse=True
            )
    finally:
        client.stop()
        client.close()
