"""For any bytes, a codec returns a value or raises DecodeError."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import KINDS, kind_of
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import (
    MAX_DEPTH,
    dumps,
    read_json,
    read_json_object,
    read_json_sequence,
)
from pulsar_meta.codecs.metadata.envelope import (
    decode_cursor,
    decode_managed_ledger,
    decode_position_info,
    open_envelope,
)
from pulsar_meta.codecs.metadata.ledger_metadata import decode_cookie, decode_ledger_metadata
from tests.codecs.documents.generated import VALID, groups, with_hostile_part
from tests.codecs.documents.golden_values import GOLDEN, JAVA_ZLIB
from tests.nightly import examples

CURSOR = {"kind": "ManagedCursorInfo", "value": {"cursorsLedgerId": 1}}
ENTRY = {"ledger_id": 1, "entry_id": 2, "last_confirmed": 1, "length": 3, "data": "YWJj"}
SEEDS = [case.stored for case in GOLDEN] + [JAVA_ZLIB]
DECODERS: list[Callable[[bytes], Any]] = [
    decode_managed_ledger,
    decode_cursor,
    decode_position_info,
    decode_ledger_metadata,
    decode_cookie,
    open_envelope,
    read_json,
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Golden bytes with some bytes changed, removed or inserted."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 4)))
        data[at:end] = draw(st.binary(max_size=4))
    return bytes(data)


HOSTILE = st.binary(max_size=60) | damaged()


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@settings(max_examples=examples(300), deadline=None)
@given(data=HOSTILE)
@example(data=b"")
@example(data=b"[" * 100_000)
@example(data=b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\x07")
@example(data=b"5\n" + b'bookieHost: "\\777"')
@example(data=b"G")
def test_a_decoder_raises_only_decode_errors(decode: Callable[[bytes], Any], data: bytes) -> None:
    try:
        decode(data)
    except DecodeError as error:
        assert error.offset is None or error.offset >= 0  # noqa: PT017


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(200), deadline=None)
@given(data=HOSTILE)
def test_any_bytes_give_a_document_that_can_be_encoded(kind: str, data: bytes) -> None:
    decoded = decode_document(data, source="test", options=DecodeOptions(kind=kind, show_secrets=True))
    document = read_json(dumps(decoded.document))
    if decoded.error is not None:
        assert isinstance(decoded.error, DecodeError)
        return
    encoded = encode_document(document)
    if decoded.same_bytes and document["envelope"] is None:
        assert encoded.data == data
    decoded_again = decode_document(
        encoded.data, source="test", options=DecodeOptions(kind=kind, show_secrets=True)
    )
    assert decoded_again.error is None


@settings(max_examples=examples(300), deadline=None)
@given(data=HOSTILE)
def test_the_kind_of_any_bytes_is_determined_or_refused(data: bytes) -> None:
    try:
        assert kind_of(data) in KINDS
    except (DecodeError, UsageError) as error:
        assert "--type" in error.message or "envelope" in error.message  # noqa: PT017


def test_encode_raises_only_decode_and_usage_errors() -> None:
    """Encodes documents of every kind, some with a hostile value; most have fields that can be encoded."""
    valid, hostile = _encoded(VALID, examples(1000)), _encoded(with_hostile_part(), examples(400))
    print(f"documents: {dict(valid)}, hostile: {dict(hostile)}")
    tried = valid + hostile
    assert tried["encoded, with fields"] > sum(tried.values()) / 2
    assert hostile["refused"] > sum(hostile.values()) / 4


def _encoded(documents: st.SearchStrategy[dict[str, Any]], count: int) -> Counter[str]:
    """Encode `count` documents; return how many were encoded and refused."""
    tried: Counter[str] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(document=documents)
    def encode(document: dict[str, Any]) -> None:
        try:
            encoded = encode_document(document)
        except (DecodeError, UsageError) as error:
            assert error.message  # noqa: PT017
            tried["refused"] += 1
            return
        tried["encoded, with fields" if len(encoded.data) > 1 else "encoded, empty"] += 1

    encode()
    return tried


@pytest.mark.parametrize("depth", [90, 120, 250, 100_000])
def test_nested_groups_are_encoded_or_refused(depth: int) -> None:
    value = {"cursorsLedgerId": -1, "unknown_fields": groups(depth)}
    try:
        encoded = encode_document({"kind": "ManagedCursorInfo", "value": value})
    except DecodeError as error:
        assert depth > 90
        assert "nested" in error.message or "can't have" in error.message  # noqa: PT017
    else:
        assert len(encoded.data) > 2 * depth


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"kind": "Text", "value": "a", "version": "9" * 5000}, "version"),
        ({"kind": "Text", "value": "a", "version": {}}, "version"),
        ({"kind": "Text", "value": "a", "path": "/\ud800"}, "path"),
        ({"kind": "Text", "value": "a", "version": 2**63}, "version"),
        ({"kind": "BookieEntry", "value": {**ENTRY, "digest_type": {}}}, "value.digest_type"),
        ({"kind": "BookieEntry", "value": {**ENTRY, "ledger_id": 10**5000}}, "value.ledger_id"),
        ({"kind": "Json", "value": {"a": 10**5000}}, "value"),
        ({**CURSOR, "envelope": {"codec": {}}}, "envelope.codec"),
        ({**CURSOR, "envelope": {"codec": "lz4", "unknown_fields": 7}}, "envelope.unknown_fields"),
        ({"kind": "BookieServiceInfo", "value": {"properties": [{"key": 1}]}}, "value.properties[0]"),
        ({"kind": "BookieServiceInfo", "value": {"properties": {"a": 1}}}, "value.properties.a"),
    ],
)
def test_an_error_names_the_place_of_an_invalid_value(document: dict[str, Any], place: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(place)):
        encode_document(document)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 300 + "]" * 300,
        '{"a":' * 100_000,
        '{"partitions": 1e999}',
        '{"partitions": -1e999}',
        '{"partitions": NaN}',
        '{"partitions": Infinity}',
        '{"partitions": ' + "9" * 5000 + "}",
        "{",
        "",
        b"\xff\xfe\xfa",
        b'{"a": "\xff"}',
    ],
)
def test_hostile_json_is_refused_with_a_short_error(text: str | bytes) -> None:
    with pytest.raises(DecodeError, match=r"not JSON|unsupported JSON") as raised:
        read_json(text, source="somewhere")
    assert raised.value.source == "somewhere"
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_json_is_read_up_to_the_maximum_depth() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert dumps(read_json(deep)) == deep
    assert read_json('["' + "[" * 1000 + '"]') == ["[" * 1000]
    assert read_json_object('{"a": 1e3}') == {"a": 1000.0}
    with pytest.raises(DecodeError, match="expected a JSON object"):
        read_json_object("[1]")
    assert list(read_json_sequence(' {"a":1}\n\x1e[2] 3 ')) == [{"a": 1}, [2], 3]
    with pytest.raises(DecodeError, match="nested more than"):
        list(read_json_sequence("1 " + "[" + deep + "]"))


def test_the_deepest_decodable_json_can_be_encoded() -> None:
    """In a list of documents, the JSON of a value is nested deeper than in the store."""
    deepest = next(
        depth
        for depth in range(MAX_DEPTH, 0, -1)
        if decode_document(b"[" * depth + b"]" * depth, source="s", path="/x").document["kind"] == "Json"
    )
    decoded = decode_document(b"[" * deepest + b"]" * deepest, source="s", path="/x")
    (document,) = read_json(dumps([decoded.document]))
    assert encode_document(document).data == b"[" * deepest + b"]" * deepest
