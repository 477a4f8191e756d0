"""Runs beside a broker (`PulsarStandalone.call`): wounds that only it can make, records with schemas."""

from __future__ import annotations

from typing import Any, Final

from jpype import JArray, JByte, JClass, JInt

from tests.servers.clients.java import client_for
from tests.servers.inside import managed_ledger

_API: Final = "org.apache.pulsar.client.api"


def trim(topic: str) -> None:
    """Have the ledgers deleted that nobody needs, the last one closed before."""
    ledger = managed_ledger(topic)
    future = JClass("java.util.concurrent.CompletableFuture")()
    ledger.trimConsumedLedgersInBackground(future)
    future.get()


def drop_properties(topic: str, cursor: str) -> None:
    """Let a cursor persist its position without its properties, as apache/pulsar#26483 does."""
    for getCursor in managed_ledger(topic).getCursors():
        if str(getCursor.getName()) == cursor:
            getCursor.markDelete(
                getCursor.getMarkDeletedPosition(), JClass("java.util.Collections").emptyMap()
            )
            return
    raise KeyError(cursor)


def produce_records(url: str, topic: str, schema: str, records: list[dict[str, int]]) -> None:
    """Publish records with an Avro schema."""
    kind = (
        JClass("org.apache.pulsar.common.schema.SchemaInfo")
        .builder()
        .name("R")
        .schema(JArray(JByte)(schema.encode()))
    )
    info = (
        kind.type(JClass("org.apache.pulsar.common.schema.SchemaType").AVRO)
        .properties(_no_properties())
        .build()
    )
    generic = JClass(f"{_API}.Schema").generic(info)
    producer = client_for(url).newProducer(generic).topic(topic).enableBatching(False).create()
    try:
        for record in records:
            builder = generic.newRecordBuilder()
            for name, value in record.items():
                builder.set(name, JInt(value))
            producer.send(builder.build())
    finally:
        producer.close()


def read_records(url: str, topic: str, seconds: int = 10) -> list[dict[str, int] | str]:
    """Return every record of a topic, decoded with the schema that its message names, or why it is not."""
    schemas = JClass(f"{_API}.Schema")
    builder = client_for(url).newReader(schemas.AUTO_CONSUME()).topic(topic)
    reader = builder.startMessageId(JClass(f"{_API}.MessageId").earliest).create()
    found: list[dict[str, int] | str] = []
    try:
        while reader.hasMessageAvailable():
            message = reader.readNext(seconds, JClass("java.util.concurrent.TimeUnit").SECONDS)
            if message is None:
                raise TimeoutError(topic)
            try:
                value = message.getValue()
                fields = [
                    (str(getField.getName()), value.getField(getField)) for getField in value.getFields()
                ]
                found.append({name: int(field) for name, field in fields})
            except JClass(f"{_API}.SchemaSerializationException") as error:
                found.append(str(error))
        return found
    finally:
        reader.close()


def _no_properties() -> Any:
    return JClass("java.util.HashMap")()


def acknowledged_ranges(topic: str, cursor: str) -> str:
    """Return the individually acknowledged ranges of a loaded cursor, as the broker prints them."""
    for getCursor in managed_ledger(topic).getCursors():
        if str(getCursor.getName()) == cursor:
            return str(getCursor.getIndividuallyDeletedMessages())
    raise KeyError(cursor)


def index_of_next_message(topic: str) -> int:
    """Return the index that the broker gives the next message of a loaded topic."""
    return int(managed_ledger(topic).getManagedLedgerInterceptor().getIndex()) + 1
