"""A version of a topic's schema as it lies in its ledger, and the two schemas inside one of keys and values.

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
# The names of SchemaType in Java where the stored ones differ.
_JAVA_NAMES: Final = {
    "KEY_VALUE": "KEYVALUE", "PROTOBUF_NATIVE": "PROTOBUFNATIVE", "LOCAL_DATE": "LOCALDATE",
    "LOCAL_TIME": "LOCALTIME", "LOCAL_DATE_TIME": "LOCALDATETIME", "BYTES": "NONE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema: its type by the name in SchemaRegistryFormat.proto, its definition, its properties."""

    type: str
    definition: bytes
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """What an entry of a schema's ledger holds: the schema, and where the versions before it lie."""

    schema: Schema
    earlier: tuple[IndexEntry, ...]


def decode_stored_schema(data: bytes | memoryview) -> StoredSchema:
    """Return what the data of a schema ledger's entry says; DecodeError where it is broken."""
    entry = parse_message(SchemaEntry, bytes(data))
    with decoding(what="its schema_data"):
        info = parse_message(SchemaInfo, entry.schema_data)
    properties = {pair.key: pair.value for pair in info.props}
    return StoredSchema(
        Schema(SchemaInfo.SchemaType.Name(info.type), info.schema, properties), tuple(entry.index)
    )


def schema_version(data: bytes) -> int | None:
    """Return the number that a message's `schema_version` is; None for none, and for what is no number."""
    return int.from_bytes(data, "big", signed=True) if len(data) == 8 else None


def key_value_schemas(schema: Schema) -> tuple[Schema, Schema]:
    """Return the schemas of key and value in one of type KEYVALUE; DecodeError where they do not fit."""
    reader = Reader(schema.definition)
    found = []
    for part in ("key", "value"):
        (size,) = reader.numbers(_I32, f"the size of the {part}'s schema")
        definition = bytes(reader.take(max(0, size), f"the {part}'s schema"))
        kind = schema.properties.get(f"{part}.schema.type", "BYTES")
        text = schema.properties.get(f"{part}.schema.properties") or "{}"
        properties = {name: str(value) for name, value in read_json_object(text).items()}
        found.append(Schema(_JAVA_NAMES.get(kind, kind), definition, properties))
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the value's schema", offset=reader.at)
    return found[0], found[1]
