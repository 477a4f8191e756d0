"""A topic's schema as it is stored in a ledger, and the two schemas in a KEYVALUE schema.

Sources: apache/pulsar SchemaStorageFormat.proto, SchemaRegistryFormat.proto, LongSchemaVersion.java,
KeyValueSchemaInfo.java.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.json_text import read_json_object
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.codecs.reader import Reader
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
