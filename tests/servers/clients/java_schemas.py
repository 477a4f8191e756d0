"""Messages with schemas of every type by Pulsar's Java client in a JVM (see `tests.servers.jvm`)."""

from __future__ import annotations

import json
from typing import Any, Final

from jpype import JArray, JByte, JClass, JString

from tests.servers.clients.java import client_for

_API: Final = "org.apache.pulsar.client.api"
READ_SECONDS: Final = 30
_KIND: Final = {"type": "enum", "name": "Kind", "symbols": ["NEW", "PAID"]}
_TIME: Final = {"type": "long", "logicalType": "timestamp-millis"}
# Versions of one record, each of which can read messages of the others.
ORDERS: Final = (
    [{"name": "id", "type": "long"}, {"name": "customer", "type": ["null", "string"], "default": None}],
    [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": ["null", "double"], "default": None},
    ],
    [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "at", "type": ["null", _TIME], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "kind", "type": _KIND, "default": "NEW"},
    ],
)  # fmt: skip
PRIMITIVES: Final = {
    "boolean": ("BOOL", "java.lang.Boolean", ["true", "false"]),
    "int8": ("INT8", "java.lang.Byte", ["-128", "127", "0"]),
    "int16": ("INT16", "java.lang.Short", ["-32768", "32767", "5"]),
    "int32": ("INT32", "java.lang.Integer", ["-2147483648", "2147483647", "7"]),
    "int64": ("INT64", "java.lang.Long", ["-9223372036854775808", "9223372036854775807", "11"]),
    "float": ("FLOAT", "java.lang.Float", ["1.5", "-0.25", "NaN", "Infinity"]),
    "double": ("DOUBLE", "java.lang.Double", ["3.141592653589793", "-1e300", "-Infinity"]),
    "localdate": ("LOCAL_DATE", "java.time.LocalDate", ["2026-08-20", "1969-12-31"]),
    "localtime": ("LOCAL_TIME", "java.time.LocalTime", ["23:59:59.999999999", "00:00:00"]),
    "localdatetime": ("LOCAL_DATE_TIME", "java.time.LocalDateTime", ["2026-08-20T12:34:56.789012345"]),
    "instant": ("INSTANT", "java.time.Instant", ["2026-08-20T12:34:56.789012345Z", "1969-12-31T23:59:59.5Z"]),
    "string": ("STRING", "java.lang.String", ["grün", "", 'a"b']),
}
MILLISECONDS: Final = {"date": "DATE", "time": "TIME", "timestamp": "TIMESTAMP"}
_JAVA_TIMES: Final = {"date": "java.util.Date", "time": "java.sql.Time", "timestamp": "java.sql.Timestamp"}


def produce_all(url: str, namespace: str) -> None:
    """Publish to one topic per type of schema, with a subscription that keeps its ledgers."""
    schemas, client = JClass(f"{_API}.Schema"), client_for(url)
    for name, (schema, kind, texts) in PRIMITIVES.items():
        _publish(
            client, f"{namespace}/{name}", getattr(schemas, schema), [_boxed(kind, text) for text in texts]
        )
    for name, schema in MILLISECONDS.items():
        values = [JClass(_JAVA_TIMES[name])(1_787_229_296_789), JClass(_JAVA_TIMES[name])(-1)]
        _publish(client, f"{namespace}/{name}", getattr(schemas, schema), values)
    for kind in ("AVRO", "JSON"):
        for version in range(len(ORDERS)):
            schema = _generic(kind, version)
            records = [_record(schema, version, number, kind) for number in range(5)]
            _publish(client, f"{namespace}/{kind.lower()}", schema, records, batch=3 if version else 0)
    _publish(
        client, f"{namespace}/avro", _generic("AVRO", 0), [_record(_generic("AVRO", 0), 0, 9, "AVRO"), None]
    )
    _key_values(client, namespace)
    _protobuf(client, namespace)
    partitioned = [_record(_generic("AVRO", 1), 1, number, "AVRO") for number in range(12)]
    _publish(client, f"{namespace}/parted", _generic("AVRO", 1), partitioned)
    _publish(client, f"{namespace}/mixed", schemas.BYTES, [JArray(JByte)(b"no schema")])
    _publish(client, f"{namespace}/mixed", _generic("AVRO", 0), [_record(_generic("AVRO", 0), 0, 1, "AVRO")])


def values_of(url: str, topic: str) -> list[dict[str, Any]]:
    """Return each message as AUTO_CONSUME decodes it: {"l", "e", "b", "type", "value"} (Java's text)."""
    schema = JClass(f"{_API}.Schema").AUTO_CONSUME()
    builder = client_for(url).newReader(schema).topic(topic)
    builder = builder.startMessageId(JClass(f"{_API}.MessageId").earliest).startMessageIdInclusive()
    reader, values = builder.create(), []
    try:
        while reader.hasMessageAvailable():
            message = reader.readNext(READ_SECONDS, JClass("java.util.concurrent.TimeUnit").SECONDS)
            position, record = message.getMessageId(), message.getValue()
            batch = int(position.getBatchIndex()) if hasattr(position, "getBatchIndex") else -1
            version = message.getSchemaVersion()
            values.append(
                {
                    "l": int(position.getLedgerId()), "e": int(position.getEntryId()), "b": batch,
                    "version": None if version is None else int.from_bytes(bytes(version), "big"),
                    **_seen(record),
                }
            )  # fmt: skip
    finally:
        reader.close()
    return values


def _seen(record: Any) -> dict[str, Any]:
    if record is None:
        return {"type": None, "value": None}
    kind, native = str(record.getSchemaType()), record.getNativeObject()
    if kind == "KEY_VALUE":
        return {"type": kind, "value": [_text(native.getKey()), _text(native.getValue())]}
    if kind == "PROTOBUF_NATIVE":
        printer = JClass("com.google.protobuf.util.JsonFormat").printer().preservingProtoFieldNames()
        return {
            "type": kind,
            "value": str(printer.print_(native) if hasattr(printer, "print_") else printer.print(native)),
        }
    return {"type": kind, "value": _text(native)}


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if hasattr(value, "getNativeObject"):
        value = value.getNativeObject()
    if hasattr(value, "getTime"):
        return str(int(value.getTime()))
    return str(value.toString()) if hasattr(value, "toString") else str(value)


def _publish(client: Any, topic: str, schema: Any, values: list[Any], batch: int = 0) -> None:
    units = JClass("java.util.concurrent.TimeUnit")
    consumer = client.newConsumer(JClass(f"{_API}.Schema").BYTES).topic(topic).subscriptionName("keep")
    consumer.subscribe().close()
    builder = client.newProducer(schema).topic(topic).enableBatching(bool(batch))
    if batch:
        builder = builder.batchingMaxMessages(batch).batchingMaxPublishDelay(10, units.SECONDS)
    producer = builder.create()
    sent = [
        producer.newMessage().value(value).property("n", str(at)).sendAsync()
        for at, value in enumerate(values)
    ]
    producer.flush()
    for future in sent:
        future.get()
    producer.close()


def _generic(kind: str, version: int) -> Any:
    definition = {"type": "record", "name": "Order", "namespace": "shop", "fields": ORDERS[version]}
    return JClass(f"{_API}.Schema").generic(_info(kind, json.dumps(definition).encode()))


def _info(kind: str, schema: bytes) -> Any:
    builder = JClass("org.apache.pulsar.common.schema.SchemaInfo").builder().name("Order")
    builder = builder.schema(JArray(JByte)(schema)).properties(JClass("java.util.HashMap")())
    return builder.type(JClass("org.apache.pulsar.common.schema.SchemaType").valueOf(kind)).build()


def _record(schema: Any, version: int, number: int, kind: str) -> Any:
    builder = schema.newRecordBuilder().set("id", JClass("java.lang.Long")(2**53 + number))
    builder = builder.set("customer", JString(f"kundin {number} ü") if number % 2 else None)
    if version == 1:
        builder = builder.set("amount", JClass("java.lang.Double")(number / 4))
    if version == 2:
        builder = builder.set(
            "tags", JClass("java.util.ArrayList")([JString(f"t{index}") for index in range(number)])
        )
        builder = builder.set("at", JClass("java.lang.Long")(1_787_229_296_789 + number))
        raw = JClass("java.nio.ByteBuffer").wrap(JArray(JByte)(bytes([0, 255, number])))
        builder = builder.set("raw", raw if kind == "AVRO" else None)
        enum = JClass("org.apache.avro.generic.GenericData$EnumSymbol")
        symbol = enum(_avro_enum(), "PAID") if kind == "AVRO" else JString("PAID")
        builder = builder.set("kind", symbol)
    return builder.build()


def _avro_enum() -> Any:
    parser = JClass("org.apache.avro.Schema$Parser")()
    return parser.parse(
        json.dumps({"type": "enum", "name": "Kind", "namespace": "shop", "symbols": ["NEW", "PAID"]})
    )


def _key_values(client: Any, namespace: str) -> None:
    schemas, pair = JClass(f"{_API}.Schema"), JClass("org.apache.pulsar.common.schema.KeyValue")
    encodings = JClass("org.apache.pulsar.common.schema.KeyValueEncodingType")
    order = _generic("AVRO", 1)
    for name in ("INLINE", "SEPARATED"):
        schema = schemas.KeyValue(schemas.INT32, order, encodings.valueOf(name))
        values = [
            pair(JClass("java.lang.Integer")(number), _record(order, 1, number, "AVRO"))
            for number in range(3)
        ]
        values.append(pair(JClass("java.lang.Integer")(7), None))
        _publish(
            client, f"{namespace}/kv-{name.lower()}", schema, values, batch=2 if name == "SEPARATED" else 0
        )
    both = schemas.KeyValue(_generic("AVRO", 0), _generic("JSON", 0), encodings.SEPARATED)
    values = [
        pair(_record(_generic("AVRO", 0), 0, at, "AVRO"), _record(_generic("JSON", 0), 0, at, "JSON"))
        for at in range(2)
    ]
    _publish(client, f"{namespace}/kv-records", both, values)


def _protobuf(client: Any, namespace: str) -> None:
    """Publish messages with Protobuf's own descriptors: nested messages, enums, repeated fields, imports."""
    kind = JClass("com.google.protobuf.Type")
    fields = JClass("com.google.protobuf.Field")
    values = []
    for number in range(3):
        builder = kind.newBuilder().setName(f"type {number}").addOneofs("a").addOneofs("b")
        for at in range(number):
            field = fields.newBuilder().setNumber(at).setName(f"f{at}").setKindValue(3).setPacked(True)
            builder = builder.addFields(field.build())
        context = JClass("com.google.protobuf.SourceContext").newBuilder().setFileName("a.proto").build()
        values.append(builder.setSourceContext(context).setSyntaxValue(1).build())
    schemas = JClass(f"{_API}.Schema")
    _publish(client, f"{namespace}/protobuf-native", schemas.PROTOBUF_NATIVE(kind.class_), values)
    simple = JClass("com.google.protobuf.SourceContext")
    context = simple.newBuilder().setFileName("b.proto").build()
    _publish(client, f"{namespace}/protobuf", schemas.PROTOBUF(simple.class_), [context])


def _boxed(kind: str, text: str) -> Any:
    if kind == "java.lang.String":
        return JString(text)
    return JClass(kind).valueOf(text) if kind.startswith("java.lang") else JClass(kind).parse(text)
