"""Messages as JSON: full ranges, unknown fields, errors that name their place, and large values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import MAX_SAFE_INTEGER, dumps
from pulsar_meta.codecs.protobuf.from_json import json_to_message
from pulsar_meta.codecs.protobuf.parse import bytes_field
from pulsar_meta.codecs.protobuf.to_json import message_to_json
from pulsar_meta.proto.DataFormats_pb2 import BookieServiceInfoFormat, LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo, PositionInfo
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from tests.nightly import examples

MESSAGES: list[type[Message]] = [
    ManagedLedgerInfo,
    ManagedCursorInfo,
    PositionInfo,
    LedgerMetadataFormat,
    BookieServiceInfoFormat,
    MessageMetadata,
]


def values_of(field: Any) -> st.SearchStrategy[Any]:
    """Generate the values that a field of a message can have."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=1)
    if field.message_type is not None:
        single: st.SearchStrategy[Any] = fields_of(field.message_type)
    elif field.enum_type is not None:
        single = st.sampled_from([value.number for value in field.enum_type.values])
    elif field.cpp_type == field.CPPTYPE_STRING:
        single = st.binary(max_size=8) if field.type == field.TYPE_BYTES else st.text(max_size=8)
    elif field.cpp_type == field.CPPTYPE_BOOL:
        single = st.booleans()
    else:
        bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
        unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        single = st.integers(low, high) | st.sampled_from([low, high])
    return st.lists(single, max_size=3) if field.is_repeated else single


def fields_of(descriptor: Any) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: values_of(field) for field in descriptor.fields if field.is_required}
    optional = {field.name: values_of(field) for field in descriptor.fields if not field.is_required}
    return st.fixed_dictionaries(required, optional=optional)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.DESCRIPTOR.name)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_message_survives_a_round_trip(kind: type[Message], data: st.DataObject) -> None:
    message = kind(**data.draw(fields_of(kind.DESCRIPTOR)))
    text = dumps(message_to_json(message))
    assert json_to_message(kind, json.loads(text)) == message
    numbers: list[int] = []
    json.loads(text, parse_int=lambda digits: numbers.append(int(digits)))
    assert all(abs(number) <= MAX_SAFE_INTEGER for number in numbers)


UNKNOWN = st.recursive(
    st.lists(
        st.integers(30, 2**29 - 1).flatmap(
            lambda number: st.one_of(
                st.fixed_dictionaries(
                    {"number": st.just(number), "wire_type": st.just(0), "value": st.integers(0, 2**64 - 1)}
                ),
                st.fixed_dictionaries(
                    {"number": st.just(number), "wire_type": st.just(5), "value": st.integers(0, 2**32 - 1)}
                ),
                st.fixed_dictionaries(
                    {
                        "number": st.just(number),
                        "wire_type": st.just(2),
                        "value": st.sampled_from(["", "YQ=="]),
                    }
                ),
            )
        ),
        min_size=1,
        max_size=3,
    ),
    lambda inner: st.lists(
        st.fixed_dictionaries({"number": st.integers(30, 99), "wire_type": st.just(3), "value": inner}),
        min_size=1,
        max_size=2,
    ),
    max_leaves=4,
)


@settings(max_examples=examples(100), deadline=None)
@given(top=UNKNOWN, deep=UNKNOWN)
def test_unknown_fields_survive_at_any_depth(top: list[Any], deep: list[Any]) -> None:
    value = {
        "cursorsLedgerId": 1,
        "individualDeletedMessages": [
            {
                "lowerEndpoint": {"ledgerId": 1, "entryId": 1, "unknown_fields": deep},
                "upperEndpoint": {"ledgerId": 1, "entryId": 2},
            }
        ],
        "unknown_fields": top,
    }
    blob = json_to_message(ManagedCursorInfo, value).SerializeToString()
    value_read = message_to_json(ManagedCursorInfo.FromString(blob))
    assert json_to_message(ManagedCursorInfo, value_read).SerializeToString() == blob
    assert len(value_read["unknown_fields"]) == len(top)


@pytest.mark.parametrize(
    "blob",
    ["48070801", "080148071002", "080110020801", "0801108200", "0801488700"],
    ids=[
        "unknown first",
        "unknown in the middle",
        "a repeated field",
        "a number longer than necessary",
        "a long unknown number",
    ],
)
def test_a_changed_order_is_reported_in_both_directions(blob: str) -> None:
    stored = bytes.fromhex(blob)
    decoded = decode_document(stored, source="test", options=DecodeOptions(kind="ManagedCursorInfo"))
    assert decoded.error is None
    assert not decoded.same_bytes
    assert decoded.document["value"]["order_kept"] is False
    encoded = encode_document(json.loads(dumps(decoded.document)))
    assert not encoded.order_kept
    assert encoded.data != stored
    assert ManagedCursorInfo.FromString(encoded.data) == ManagedCursorInfo.FromString(stored)


def test_packed_fields_are_read() -> None:
    packed = bytes.fromhex("080110023206080112020103")
    decoded = decode_document(packed, source="test", options=DecodeOptions(kind="PositionInfo"))
    assert decoded.document["value"]["individualDeletedMessageRanges"] == [{"key": 1, "values": ["1", "3"]}]
    assert not decoded.same_bytes


RANGE = {"lowerEndpoint": {"ledgerId": 1, "entryId": 1}, "upperEndpoint": {"ledgerId": 1, "entryId": 2}}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([], "value: expected an object"),
        ({}, "required cursorsLedgerId"),
        ({"cursorsLedgerId": "seven"}, "value.cursorsLedgerId: expected an integer"),
        ({"cursorsLedgerId": True}, "value.cursorsLedgerId: expected an integer"),
        ({"cursorsLedgerId": 1.5}, "value.cursorsLedgerId: expected an integer"),
        ({"cursorsLedgerId": 2**63}, "value.cursorsLedgerId: 9223372036854775808 is not between"),
        ({"cursorsLedgerId": "9" * 30}, "value.cursorsLedgerId: expected an integer"),
        ({"cursorsLedgerId": 1, "nonsense": 1}, "value.nonsense: ManagedCursorInfo has no such field"),
        ({"cursorsLedgerId": 1, "properties": {}}, "value.properties: expected a list"),
        (
            {"cursorsLedgerId": 1, "individualDeletedMessages": [RANGE, {**RANGE, "upperEndpoint": 3}]},
            r"value.individualDeletedMessages\[1\].upperEndpoint: expected an object",
        ),
        ({"cursorsLedgerId": 1, "unknown_fields": [{"number": 9}]}, r"value.unknown_fields\[0\]"),
        (
            {"cursorsLedgerId": 1, "unknown_fields": [{"number": 9, "wire_type": 4, "value": 1}]},
            r"value.unknown_fields\[0\].wire_type",
        ),
        (
            {"cursorsLedgerId": 1, "unknown_fields": [{"number": 4, "wire_type": 2, "value": "/w=="}]},
            "value.unknown_fields: .* can't have these fields",
        ),
        (
            {"cursorsLedgerId": 1, "cursorProperties": [{"name": 5, "value": ""}]},
            r"value.cursorProperties\[0\].name: expected a string",
        ),
        (
            {"cursorsLedgerId": 1, "cursorProperties": [{"name": "\ud800", "value": ""}]},
            r"value.cursorProperties\[0\].name: expected a string",
        ),
    ],
)
def test_an_error_names_its_place(value: Any, place: str) -> None:
    with pytest.raises(DecodeError, match=place):
        json_to_message(ManagedCursorInfo, value)


def test_integers_may_be_strings_and_strings_of_digits_integers() -> None:
    value = {
        "cursorsLedgerId": "-1",
        "markDeleteLedgerId": 7.0,
        "markDeleteEntryId": None,
        "batchedEntryDeletionIndexInfo": [
            {"position": {"ledgerId": 1, "entryId": "2"}, "deleteSet": [-1, "5"]}
        ],
    }
    message = json_to_message(ManagedCursorInfo, value)
    assert (message.cursorsLedgerId, message.markDeleteLedgerId) == (-1, 7)
    assert not message.HasField("markDeleteEntryId")
    assert list(message.batchedEntryDeletionIndexInfo[0].deleteSet) == [-1, 5]


def test_an_unknown_enum_value_is_kept() -> None:
    blob = bytes.fromhex("0801100118002807")
    message = LedgerMetadataFormat.FromString(blob)
    value = message_to_json(message)
    assert value["unknown_fields"] == [{"number": 5, "wire_type": 0, "value": 7}]
    assert "state" not in value


@pytest.mark.parametrize(("key", "value"), [(b"k\x80", b"v"), (b"k", b"\xff"), (b"", b"\xff\xfe")])
def test_a_map_with_invalid_utf8_survives_as_a_list(key: bytes, value: bytes) -> None:
    stored = bytes_field(7, bytes_field(1, b"a") + bytes_field(2, b"b"))
    stored += bytes_field(7, bytes_field(1, key) + bytes_field(2, value))
    decoded = decode_document(stored, source="s", options=DecodeOptions(kind="BookieServiceInfo"))
    pairs = decoded.document["value"]["properties"]
    assert {"key": "a", "value": "b"} in pairs
    encoded = encode_document(json.loads(dumps(decoded.document)))
    assert sorted(encoded.data) == sorted(stored)
