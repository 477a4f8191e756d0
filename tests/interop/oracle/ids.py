"""The numbers that Pulsar's own classes give out over a store. Runs in the child that has the JVM."""

from __future__ import annotations

from typing import Any


def next_ids(url: str, count: int) -> dict[str, list[int]]:
    """Return the next ids of Pulsar's generator, and the number that a new broker's producers get."""
    import jpype

    metadata = jpype.JPackage("org").apache.pulsar.metadata
    config = metadata.api.MetadataStoreConfig.builder().build()
    store = metadata.api.extended.MetadataStoreExtended.create(url, config)
    try:
        generator = metadata.bookkeeper.PulsarLedgerIdGenerator(store, "/ledgers")
        ledgers = [_ledger_id(generator) for _ in range(count)]
        return {"ledgers": ledgers, "producers": [_producer_number(store)]}
    finally:
        store.close()


def _ledger_id(generator: Any) -> int:
    import jpype

    done = jpype.JClass("java.util.concurrent.CompletableFuture")()

    def complete(code: int, ledger_id: Any) -> None:
        done.complete(jpype.JClass("java.lang.Long").valueOf(int(ledger_id) if code == 0 else -1))

    interface = "org.apache.bookkeeper.proto.BookkeeperInternalCallbacks$GenericCallback"
    generator.generateLedgerId(jpype.JProxy(interface, dict={"operationComplete": complete}))
    return int(done.get(30, jpype.JClass("java.util.concurrent.TimeUnit").SECONDS))


def _producer_number(store: Any) -> int:
    """Return the number that a broker starting now would have in the names of producers."""
    import jpype

    coordination = jpype.JPackage("org").apache.pulsar.metadata.coordination.impl
    service = coordination.CoordinationServiceImpl(store)
    number = service.getNextCounterValue("/counters/producer-name").get()
    service.close()
    return int(number)
