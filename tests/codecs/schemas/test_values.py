"""Decoding values with hostile schemas and hostile bytes. Captures test the values of real clients."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.schemas.values import Schema, decode_stored_schema, schema_version, value_decoder

RECORD = {
    "type": "record", "name": "R", "fields": [
        {"name": "a", "type": ["null", "string"]},
        {"name": "b", "type": {"type": "array", "items": "bytes"}},
        {"name": "c", "type": {"type": "map", "values": "double"}},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "e", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "f", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}  # fmt: skip
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}


def avro(definition: object) -> Schema:
    return Schema("AVRO", json.dumps(definition).encode())


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("INT64", struct.pack(">q", 2**53), '"9007199254740992"'),
        ("BOOLEAN", b"\x01", "true"),
        ("INSTANT", struct.pack(">qi", -1, 500_000_000), '"1969-12-31T23:59:59.5Z"'),
        ("LOCALDATETIME", struct.pack(">qq", 0, 1), '"1970-01-01T00:00:00.000000001"'),
        ("JSON", b' {"a": 1.0e0} ', ' {"a": 1.0e0} '),
    ],
)
def test_primitive_values_are_decoded(kind: str, data: bytes, text: str) -> None:
    assert value_decoder(Schema(kind, b""))(data, None) == text


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (Schema("INT32", b""), b"\0\0\0"),
        (Schema("STRING", b""), b"\xff"),
        (Schema("LOCALDATE", b""), struct.pack(">q", 2**40)),
        (Schema("LOCALTIME", b""), struct.pack(">q", -1)),
        (Schema("INSTANT", b""), struct.pack(">qi", 0, -1)),
        (Schema("JSON", b""), b"{"),
        (avro("long"), b"\x02\x02"),
        (avro("string"), b"\xff\xff\xff\xff\x0f"),
        (avro("boolean"), b""),
        (avro(["null", "int"]), b"\x08"),
    ],
)
def test_values_that_do_not_fit_their_schema_are_refused(schema: Schema, data: bytes) -> None:
    with pytest.raises(DecodeError):
        value_decoder(schema)(data, None)


@pytest.mark.parametrize(
    "schema",
    [
        Schema("PROTOBUF", b"{}"),
        Schema("AVRO", b"{"),
        Schema("AVRO", b'{"type": "nothing"}'),
        Schema("AVRO", b'{"type": "record", "name": "R"}'),
        avro({"type": "array", "items": "null"}),
        avro({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
        Schema("PROTOBUFNATIVE", b"{}"),
        Schema("PROTOBUFNATIVE", b'{"rootMessageTypeName": "a.B", "fileDescriptorSet": "AAAA"}'),
        Schema("PROTOBUFNATIVE", b'{"rootMessageTypeName": "a.B", "fileDescriptorSet": ""}'),
        Schema("KEYVALUE", b"\0\0\0\x09"),
        Schema("KEYVALUE", b"\0\0\0\0\0\0\0\0", {"key.schema.type": "PROTOBUF"}),
    ],
)
def test_invalid_schemas_are_refused(schema: Schema) -> None:
    with pytest.raises(DecodeError):
        value_decoder(schema)


def test_endless_nesting_is_refused() -> None:
    decode = value_decoder(avro(CHAIN))
    assert decode(b"\x02\x02\x00", None) == '{"next": {"next": {"next": null}}}'
    with pytest.raises(DecodeError):
        decode(b"\x02" * 1_000_000 + b"\x00", None)


@given(st.binary(max_size=60))
def test_any_bytes_decode_to_json_or_raise_a_decode_error(data: bytes) -> None:
    for decode in (RECORD_DECODER, PAIR_DECODER):
        try:
            text = decode(data, data)
        except DecodeError:
            continue
        assert text is not None
        json.loads(text)


@given(st.binary(max_size=60))
def test_random_schemas_raise_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_stored_schema(b"\x12" + data)
    for kind in ("AVRO", "PROTOBUFNATIVE"):
        with pytest.raises(DecodeError):
            value_decoder(Schema(kind, data + b"\0"))


def test_schema_versions_have_eight_bytes() -> None:
    assert [schema_version(version) for version in (b"", bytes(7), bytes(8), b"\xff" * 8)] == [
        None,
        None,
        0,
        -1,
    ]


RECORD_DECODER = value_decoder(avro(RECORD))
PAIR_DECODER = value_decoder(
    Schema("KEYVALUE", bytes(8), {"key.schema.type": "INT32", "value.schema.type": "STRING"})
)
