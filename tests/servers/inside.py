"""Functions that run in a JVM of Pulsar (see `tests.servers.jvm`) and can use the broker's objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jpype import JArray, JByte, JClass, JString

_standalone: Any = None
_broker: Any = None


def start_standalone(arguments: list[str]) -> None:
    """Start a PulsarStandaloneStarter in this process. Returns when the broker is up."""
    global _standalone
    starter = JClass("org.apache.pulsar.PulsarStandaloneStarter")
    _standalone = starter(JArray(JString)(arguments))
    _standalone.start()


def stop_standalone() -> None:
    """Close the broker, then its bookies and its store."""
    _standalone.close()


def start_broker(settings: str) -> None:
    """Start a broker of a cluster with this broker.conf. Returns when it is up."""
    global _broker
    loader = JClass("org.apache.pulsar.common.configuration.PulsarConfigurationLoader")
    configuration = loader.create(settings, JClass("org.apache.pulsar.broker.ServiceConfiguration").class_)
    _broker = JClass("org.apache.pulsar.broker.PulsarService")(configuration)
    _broker.start()


def stop_broker() -> None:
    """Close the broker, which unloads its bundles."""
    _broker.close()


def broker() -> Any:
    """Return the PulsarService that runs here."""
    if _broker is not None:
        return _broker
    field = JClass("org.apache.pulsar.PulsarStandalone").class_.getDeclaredField("broker")
    field.setAccessible(True)
    return field.get(_standalone)


def managed_ledger(topic: str) -> Any:
    """Load a topic and return its ManagedLedgerImpl."""
    loaded = broker().getBrokerService().getTopic(topic, True).get().get()
    return loaded.getManagedLedger()


def add_ledger_property(topic: str, ledger: int, key: str, value: str) -> None:
    """Call Pulsar's asyncAddLedgerProperty (since 4.2) and wait for it."""
    managed_ledger(topic).asyncAddLedgerProperty(ledger, key, value).get()


def remove_ledger_property(topic: str, ledger: int, key: str) -> None:
    """Call Pulsar's asyncRemoveLedgerProperty (since 4.2) and wait for it."""
    managed_ledger(topic).asyncRemoveLedgerProperty(ledger, key).get()


def batch_acks(topic: str, subscription: str) -> dict[str, list[int]]:
    """Map `ledger:entry` of each batch that a loaded cursor acknowledged in part to the words of its bit set.

    A set bit is an index that is still to be acknowledged.
    """
    for cursor in managed_ledger(topic).getCursors():
        if str(cursor.getName()) == subscription:
            field = JClass("org.apache.bookkeeper.mledger.impl.ManagedCursorImpl").class_.getDeclaredField(
                "batchDeletedIndexes"
            )
            field.setAccessible(True)
            batches = field.get(cursor)
            return (
                {}
                if batches is None
                else {_place(position): _words(batches.get(position)) for position in batches.keySet()}
            )
    raise KeyError(subscription)


def _place(position: Any) -> str:
    return f"{position.getLedgerId()}:{position.getEntryId()}"


def _words(bits: Any) -> list[int]:
    return [int(word) for word in bits.toLongArray()]


def init_cluster(uri: str, options: dict[str, str]) -> None:
    """Write a new cluster's metadata, as `pulsar initialize-cluster-metadata` does."""
    setup = JClass("org.apache.pulsar.PulsarClusterMetadataSetup")
    setup.main(JArray(JString)([part for option in options.items() for part in option]))


def put_in_rocksdb(directory: str, payloads: dict[str, bytes]) -> None:
    """Replace the payloads of values in a standalone's database, and keep their headers."""
    with _database(directory) as database:
        for path, payload in payloads.items():
            old = bytes(database.get(_java_bytes(path.encode())))
            database.put(_java_bytes(path.encode()), _java_bytes(old[:41] + payload))


def forget_bookies(directory: str) -> None:
    """Remove the registrations of bookies from a stopped standalone's database.

    A killed bookie leaves its registration. The next run removes it while it registers its own bookies, and
    may take the late notification for the loss of its own. Then it registers and removes itself endlessly,
    and sometimes no ledger can be created (apache/pulsar#17759; 4 of 30 starts on a busy machine).
    """
    below = b"/ledgers/available/"
    with _database(directory) as database:
        for key, _ in _values(database):
            if key.startswith(below) and key != below + b"readonly":
                database.delete(_java_bytes(key))


def dump_rocksdb(directory: str) -> list[tuple[str, bytes]]:
    """Return the keys and values of a stopped standalone's database, in order."""
    with _database(directory, read_only=True) as database:
        return [(key.decode(errors="replace"), value) for key, value in _values(database)]


@contextmanager
def _database(directory: str, *, read_only: bool = False) -> Iterator[Any]:
    """Open a stopped standalone's database."""
    rocksdb = JClass("org.rocksdb.RocksDB")
    rocksdb.loadLibrary()
    database = rocksdb.openReadOnly(directory) if read_only else rocksdb.open(directory)
    try:
        yield database
    finally:
        database.close()


def _values(database: Any) -> Iterator[tuple[bytes, bytes]]:
    """Yield every key and value, in order, from a consistent view."""
    entries = database.newIterator()
    entries.seekToFirst()
    while entries.isValid():
        yield bytes(entries.key()), bytes(entries.value())
        entries.next()
    entries.close()


def _java_bytes(data: bytes) -> Any:
    return JArray(JByte)(data)
