"""BookKeeper's own client in a JVM (see `tests.servers.bookies`)."""

from __future__ import annotations

import time
from typing import Any, Final

from jpype import JArray, JByte, JClass

PASSWORD: Final = b""
_clients: dict[str, Any] = {}
_open: dict[int, Any] = {}


def init_cluster(uri: str) -> bool:
    """Create /ledgers in a new metadata store. Returns True if it was created."""
    configuration = JClass("org.apache.bookkeeper.conf.ServerConfiguration")()
    configuration.setMetadataServiceUri(uri)
    return bool(JClass("org.apache.bookkeeper.client.BookKeeperAdmin").initNewCluster(configuration))


def registered(uri: str, address: str) -> bool:
    """Return True if the bookie `address` is registered and accepts writes."""
    client = _client(uri).getMetadataClientDriver().getRegistrationClient()
    return address in {str(bookie) for bookie in client.getWritableBookies().get().getValue()}


def write(uri: str, entries: list[bytes], options: dict[str, Any]) -> int:
    """Write one ledger and return its id.

    `options`: ensemble, write, ack (1), digest (CRC32C; MAC, CRC32 or DUMMY), password (empty), metadata (str
    → bytes), keep_open (False: close it).
    """
    ensemble = options.get("ensemble", 1)
    ledger = _create(
        uri,
        ensemble,
        options.get("write", ensemble),
        options.get("ack", options.get("write", ensemble)),
        _digest(options.get("digest", "CRC32C")),
        _java_bytes(options.get("password", PASSWORD)),
        _java_map(options.get("metadata", {})),
    )
    for entry in entries:
        ledger.addEntry(_java_bytes(entry))
    if options.get("keep_open"):
        _open[int(ledger.getId())] = ledger
    else:
        ledger.close()
    return int(ledger.getId())


def _create(uri: str, *arguments: Any) -> Any:
    """Create a ledger, with retries because the client notices a new bookie only after a while."""
    missing = JClass("org.apache.bookkeeper.client.BKException$BKNotEnoughBookiesException")
    for _ in range(50):
        try:
            return _client(uri).createLedger(*arguments)
        except missing:
            time.sleep(0.2)
    return _client(uri).createLedger(*arguments)


def append(uri: str, ledger: int, entries: list[bytes]) -> int:
    """Add entries to a ledger that `write` kept open, and return the id of the last one."""
    return max(int(_open[ledger].addEntry(_java_bytes(entry))) for entry in entries)


def close(uri: str, ledger: int) -> None:
    """Close a ledger that `write` kept open."""
    _open.pop(ledger).close()


def read(uri: str, ledger: int, digest: str = "CRC32C", password: bytes = PASSWORD) -> list[bytes]:
    """Return every entry of a ledger, read without recovery, so that the writer is not fenced."""
    opened = _client(uri).openLedgerNoRecovery(ledger, _digest(digest), _java_bytes(password))
    last = opened.readLastConfirmed()
    entries = opened.readEntries(0, last) if last >= 0 else JClass("java.util.Collections").emptyEnumeration()
    return [bytes(entry.getEntry()) for entry in entries]


def delete(uri: str, ledger: int) -> None:
    """Delete a ledger. Bookies drop its entries at their next garbage collection."""
    _client(uri).deleteLedger(ledger)


def _client(uri: str) -> Any:
    if uri not in _clients:
        configuration = JClass("org.apache.bookkeeper.conf.ClientConfiguration")()
        configuration.setMetadataServiceUri(uri)
        _clients[uri] = JClass("org.apache.bookkeeper.client.BookKeeper")(configuration)
    return _clients[uri]


def _digest(name: str) -> Any:
    return JClass("org.apache.bookkeeper.client.BookKeeper$DigestType").valueOf(name)


def _java_bytes(data: bytes) -> Any:
    return JArray(JByte)(data)


def _java_map(values: dict[str, bytes]) -> Any:
    java = JClass("java.util.HashMap")()
    for key, value in values.items():
        java.put(key, _java_bytes(value))
    return java
