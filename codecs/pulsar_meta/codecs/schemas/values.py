"""What messages hold, by the schema that they were written with: JSON text.

Integers that a double cannot hold are texts of digits, bytes are base64 (see `json_text`); of a JSON schema
the producer's own text is kept. Source: apache/pulsar pulsar-client/…/impl/schema, KeyValueSchemaInfo.java
(`decodeKeyValue`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError, decoding
from pulsar_meta.codecs.json_text import dumps, read_json
from pulsar_meta.codecs.reader import Reader
from pulsar_meta.codecs.schemas.avro_values import avro_decoder
from pulsar_meta.codecs.schemas.primitives import decode_primitive, is_primitive
from pulsar_meta.codecs.schemas.protobuf_values import protobuf_decoder
from pulsar_meta.codecs.schemas.stored import Schema, key_value_schemas

# Takes a payload (None: a null value) and the bytes of the message's key; returns JSON text, None where the
# schema says nothing.
ValueDecoder = Callable[[bytes | None, bytes | None], str | None]
_Part = Callable[[bytes], str | None]

_I32: Final = struct.Struct(">i")
_NULL: Final = "null"


def value_decoder(schema: Schema) -> ValueDecoder:
    """Return what reads the values of a schema; DecodeError where its definition makes no sense.

    What it returns raises DecodeError for a payload that is no value of the schema.
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
    raise DecodeError(f"values of schemas of the type {kind} are not decoded")


def _as_json(decode: Callable[[bytes], Any]) -> _Part:
    return lambda data: dumps(decode(data))


def _json_text(data: bytes) -> str:
    """Return a JSON text as it is, once it was found to be one."""
    value = read_json(data, literal=True)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return dumps(value)


def _key_value_decoder(schema: Schema) -> ValueDecoder:
    """Return what reads pairs; by `kv.encoding.type` the key is in the payload, or the message's own."""
    key_schema, value_schema = key_value_schemas(schema)
    decode_key, decode_value = _part_decoder(key_schema), _part_decoder(value_schema)
    separated = schema.properties.get("kv.encoding.type") == "SEPARATED"

    def decode(payload: bytes | None, message_key: bytes | None) -> str | None:
        if payload is None and not separated:
            return None
        key, value = (message_key, payload) if separated else _inline(payload or b"")
        return f'{{"key": {_text(decode_key, key, "key")}, "value": {_text(decode_value, value, "value")}}}'

    return decode


def _text(decode: _Part, data: bytes | None, part: str) -> str:
    with decoding(what=f"its {part}"):
        text = None if data is None else decode(data)
    # Bytes without a schema have no JSON of their own.
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
