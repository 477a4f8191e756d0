"""Whatever bytes come: a codec answers with a value or with DecodeError, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import KINDS, kind_of
from pulsar_meta.codecs.errors import DecodeError, UsageError
from pulsar_meta.codecs.json_text import dumps, read_json
from pulsar_meta.codecs.metadata.cookie import decode_cookie
from pulsar_meta.codecs.metadata.cursor import decode_cursor, decode_position_info
from pulsar_meta.codecs.metadata.envelope import open_envelope
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata
from pulsar_meta.codecs.metadata.managed_ledger import decode_managed_ledger
from tests.codecs.documents.golden_values import GOLDEN, JAVA_ZLIB

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
    """Golden bytes with some changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = draw(st.integers(at, min(len(data), at + 4)))
        data[at:end] = draw(st.binary(max_size=4))
    return bytes(data)


HOSTILE = st.binary(max_size=60) | damaged()


@pytest.mark.parametrize("decode", DECODERS, ids=lambda decode: decode.__name__)
@settings(max_examples=300, deadline=None)
@given(data=HOSTILE)
@example(data=b"")
@example(data=b"[" * 100_000)
@example(data=b"BookieMetadataFormatVersion\t3\n\xff\xff\xff\xff\x07")
@example(data=b"5\n" + b'bookieHost: "\\777"')
@example(data=b"G")
def test_a_decoder_raises_nothing_else(decode: Callable[[bytes], Any], data: bytes) -> None:
    try:
        decode(data)
    except DecodeError as error:
        assert error.offset is None or error.offset >= 0  # noqa: PT017


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200, deadline=None)
@given(data=HOSTILE)
def test_a_document_is_answered_for_any_bytes_and_taken_back(kind: str, data: bytes) -> None:
    decoded = decode_document(data, source="test", options=DecodeOptions(kind=kind, show_secrets=True))
    document = read_json(dumps(decoded.document))
    if decoded.error is not None:
        assert isinstance(decoded.error, DecodeError)
        return
    encoded = encode_document(document)
    if decoded.same_bytes and document["envelope"] is None:
        assert encoded.data == data
    again = decode_document(encoded.data, source="test", options=DecodeOptions(kind=kind, show_secrets=True))
    assert again.error is None


@settings(max_examples=300, deadline=None)
@given(data=HOSTILE)
def test_the_kind_is_told_asked_for_or_refused(data: bytes) -> None:
    try:
        assert kind_of(data) in KINDS
    except (DecodeError, UsageError) as error:
        assert "--type" in error.message or "envelope" in error.message  # noqa: PT017


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(KINDS), value=JSON, envelope=JSON)
def test_encode_raises_nothing_else(kind: str, value: Any, envelope: Any) -> None:
    try:
        encode_document({"kind": kind, "value": value, "envelope": envelope})
    except (DecodeError, UsageError) as error:
        assert error.message  # noqa: PT017
