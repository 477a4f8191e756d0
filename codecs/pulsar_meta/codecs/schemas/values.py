"""Topic schemas as they are stored in ledgers, and message payloads decoded with them into JSON text.

Integers that a double can't represent become strings of digits, and bytes become base64 (see `json_text`).
With a JSON schema, the producer's text is kept. Primitive numbers are big-endian; dates and times become ISO
8601. PROTOBUF_NATIVE schemas contain their descriptors.

Sources: apache/pulsar SchemaStorageFormat.proto, SchemaRegistryFormat.proto, LongSchemaVersion.java,
pulsar-client/…/impl/schema/*Schema.java (IntSchema, DateSchema, InstantSchema, …), KeyValueSchemaInfo.java
(`decodeKeyValue`), ProtobufNativeSchemaUtils.java, ProtobufNativeSchemaData.java (JSON with a
FileDescriptorSet in base64).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message_factory import GetMessageClass

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.json_text import dumps, from_base64, read_json, read_json_object
from pulsar_meta.codecs.protobuf.parse import parse_message, parse_part
from pulsar_meta.codecs.reader import Reader
from pulsar_meta.codecs.schemas.avro_values import avro_decoder
from pulsar_meta.proto.SchemaRegistryFormat_pb2 import SchemaInfo
from pulsar_meta.proto.SchemaStorageFormat_pb2 import IndexEntry, SchemaEntry

_I32: Final = struct.Struct(">i")
# Java's SchemaType names that differ from the stored names.
_JAVA_NAMES: Final = {
    "KEY_VALUE": "KEYVALUE", "PROTOBUF_NATIVE": "PROTOBUFNATIVE", "LOCAL_DATE": "LOCALDATE",
    "LOCAL_TIME": "LOCALTIME", "LOCAL_DATE_TIME": "LOCALDATETIME", "BYTES": "NONE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: its type (a name in SchemaRegistryFormat.proto), its definition and its properties."""

    type: str
    definition: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """An entry of a schema's ledger: the schema, and the index of the earlier versions."""

    schema: Schema
    earlier: tuple[IndexEntry, ...]


def decode_stored_schema(data: bytes | memoryview) -> StoredSchema:
    """Decode the data of an entry in a schema's ledger. Raises DecodeError if it is broken."""
    entry = parse_message(SchemaEntry, bytes(data))
    with decoding(what="its schema_data"):
        info = parse_message(SchemaInfo, entry.schema_data)
    properties = {pair.key: pair.value for pair in info.props}
    return StoredSchema(
        Schema(SchemaInfo.SchemaType.Name(info.type), info.schema, properties), tuple(entry.index)
    )


def schema_version(data: bytes) -> int | None:
    """Decode a message's `schema_version` as a number; None if it is not 8 bytes long."""
    return int.from_bytes(data, "big", signed=True) if len(data) == 8 else None


def key_value_schemas(schema: Schema) -> tuple[Schema, Schema]:
    """Return the key's and the value's schema in a KEYVALUE schema. Raises DecodeError if it is broken."""
    reader = Reader(schema.definition)
    schemas = []
    for part in ("key", "value"):
        (size,) = reader.numbers(_I32, f"the size of the {part}'s schema")
        definition = bytes(reader.take(max(0, size), f"the {part}'s schema"))
        kind = schema.properties.get(f"{part}.schema.type", "BYTES")
        text = schema.properties.get(f"{part}.schema.properties") or "{}"
        properties = {name: str(value) for name, value in read_json_object(text).items()}
        schemas.append(Schema(_JAVA_NAMES.get(kind, kind), definition, properties))
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the value's schema", offset=reader.at)
    return schemas[0], schemas[1]


_DAY: Final = 86_400
_BILLION: Final = 10**9
_EPOCH: Final = date(1970, 1, 1)


def decode_primitive(kind: str, data: bytes) -> Any:
    """Decode a value of a primitive schema. Raises DecodeError if it does not have the type's size."""
    if kind == "STRING":
        return _text(data)
    shape, make = _SHAPES[kind]
    if len(data) != shape.size:
        raise DecodeError(f"{kind} takes {shape.size} bytes, found {len(data)}")
    return make(*shape.unpack(data))


def is_primitive(kind: str) -> bool:
    """Return True if `decode_primitive` supports a type."""
    return kind == "STRING" or kind in _SHAPES


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("STRING: not UTF-8", offset=error.start) from error


def _boolean(value: int) -> bool:
    return value != 0


def _same(value: Any) -> Any:
    return value


def _moment(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_date_time(seconds)}.{rest:03d}Z"


def _instant(seconds: int, nanos: int) -> str:
    return f"{_date_time(seconds)}{_fraction(nanos)}Z"


def _date_time(seconds: int) -> str:
    days, rest = divmod(seconds, _DAY)
    return f"{_date(days)}T{_clock(rest)}"


def _local_date_time(days: int, nanos: int) -> str:
    return f"{_date(days)}T{_local_time(nanos)}"


def _local_time(nanos: int) -> str:
    seconds, rest = divmod(nanos, _BILLION)
    if not 0 <= seconds < _DAY:
        raise DecodeError(f"{nanos} nanoseconds are not a time of day")
    return f"{_clock(seconds)}{_fraction(rest)}"


def _date(days: int) -> str:
    try:
        return (_EPOCH + timedelta(days=days)).isoformat()
    except OverflowError as error:
        raise DecodeError(f"day {days} is outside the years 1 to 9999") from error


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _fraction(nanos: int) -> str:
    if not 0 <= nanos < _BILLION:
        raise DecodeError(f"{nanos} nanoseconds are not a fraction of a second")
    return f".{nanos:09d}".rstrip("0").rstrip(".")


_SHAPES: Final[dict[str, tuple[struct.Struct, Callable[..., Any]]]] = {
    "BOOLEAN": (struct.Struct(">b"), _boolean),
    "INT8": (struct.Struct(">b"), _same),
    "INT16": (struct.Struct(">h"), _same),
    "INT32": (struct.Struct(">i"), _same),
    "INT64": (struct.Struct(">q"), _same),
    "FLOAT": (struct.Struct(">f"), _same),
    "DOUBLE": (struct.Struct(">d"), _same),
    "DATE": (struct.Struct(">q"), _moment),
    "TIME": (struct.Struct(">q"), _moment),
    "TIMESTAMP": (struct.Struct(">q"), _moment),
    "INSTANT": (struct.Struct(">qi"), _instant),
    "LOCALDATE": (struct.Struct(">q"), _date),
    "LOCALTIME": (struct.Struct(">q"), _local_time),
    "LOCALDATETIME": (struct.Struct(">qq"), _local_date_time),
}


def protobuf_decoder(definition: bytes) -> Callable[[bytes], Any]:
    """Return a function that decodes values of a PROTOBUF_NATIVE schema. Raises DecodeError if it is invalid.

    The function returns protobuf's own JSON mapping, with the names of the .proto. It raises DecodeError for
    broken values.
    """
    kind = _message_class(definition)

    def decode(data: bytes) -> Any:
        message = parse_part(kind, data)
        try:
            return MessageToDict(message, preserving_proto_field_name=True)
        except (JsonError, TypeError, ValueError, KeyError) as error:
            raise DecodeError(f"can't convert {kind.DESCRIPTOR.full_name} to JSON: {error}") from error

    return decode


def _message_class(definition: bytes) -> Any:
    stated = read_json_object(definition)
    name, encoded = stated.get("rootMessageTypeName"), stated.get("fileDescriptorSet")
    if not isinstance(name, str):
        raise DecodeError("not a PROTOBUF_NATIVE schema: no rootMessageTypeName")
    files = parse_message(FileDescriptorSet, from_base64(encoded, "fileDescriptorSet"))
    pool = DescriptorPool()
    try:
        for file in _in_order(files):
            pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except (TypeError, KeyError, ValueError, ProtobufError) as error:
        raise DecodeError(f"not a PROTOBUF_NATIVE schema of {name}: {error}") from error


def _in_order(files: FileDescriptorSet) -> Iterator[FileDescriptorProto]:
    """Yield each file after the files that it imports."""
    waiting = {file.name: file for file in files.file}
    while waiting:
        ready = [file for file in waiting.values() if waiting.keys().isdisjoint(file.dependency)]
        if not ready:
            raise DecodeError("not a PROTOBUF_NATIVE schema: its files import each other")
        for file in ready:
            yield waiting.pop(file.name)


# Converts a payload (None is a null value) and the message's key to JSON text, or None without a schema.
ValueDecoder = Callable[[bytes | None, bytes | None], str | None]
_Part = Callable[[bytes], str | None]

_NULL: Final = "null"


def value_decoder(schema: Schema) -> ValueDecoder:
    """Return a function that decodes values of a schema. Raises DecodeError for invalid schemas.

    The function raises DecodeError for payloads that are not values of the schema.
    """
    if schema.type == "KEYVALUE":
        return _key_value_decoder(schema)
    decode = _part_decoder(schema)
    return lambda payload, key: None if payload is None else decode(payload)


def _part_decoder(schema: Schema) -> _Part:
    kind = schema.type
    if is_primitive(kind):
        return lambda data: dumps(decode_primitive(kind, data))
    match kind:
        case "NONE":
            return lambda data: None
        case "JSON":
            return _json_text
        case "AVRO":
            return _as_json(avro_decoder(schema.definition))
        case "PROTOBUFNATIVE":
            return _as_json(protobuf_decoder(schema.definition))
    raise DecodeError(f"schemas of type {kind} are not supported")


def _as_json(decode: Callable[[bytes], Any]) -> _Part:
    return lambda data: dumps(decode(data))


def _json_text(data: bytes) -> str:
    """Return a JSON text unchanged. Raises DecodeError if it is not JSON."""
    value = read_json(data, literal=True)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return dumps(value)


def _key_value_decoder(schema: Schema) -> ValueDecoder:
    """Return a function that decodes pairs. `kv.encoding.type` tells if the key is in the payload."""
    key_schema, value_schema = key_value_schemas(schema)
    decode_key, decode_value = _part_decoder(key_schema), _part_decoder(value_schema)
    separated = schema.properties.get("kv.encoding.type") == "SEPARATED"

    def decode(payload: bytes | None, message_key: bytes | None) -> str | None:
        if payload is None and not separated:
            return None
        key, value = (message_key, payload) if separated else _inline(payload or b"")
        key_text, value_text = _text_form(decode_key, key, "key"), _text_form(decode_value, value, "value")
        return f'{{"key": {key_text}, "value": {value_text}}}'

    return decode


def _text_form(decode: _Part, data: bytes | None, part: str) -> str:
    with decoding(what=f"its {part}"):
        text = None if data is None else decode(data)
    # Bytes without a schema become base64.
    return dumps(data) if text is None and data is not None else text or _NULL


def _inline(payload: bytes) -> tuple[bytes | None, bytes | None]:
    reader = Reader(payload)
    key, value = _piece(reader, "the key"), _piece(reader, "the value")
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the value", offset=reader.at)
    return key, value


def _piece(reader: Reader, what: str) -> bytes | None:
    (size,) = reader.numbers(_I32, f"the size of {what}")
    return None if size == -1 else bytes(reader.take(size, what))
