"""Each golden value in both directions: complete, truncated at every length, and with extra bytes."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.documents.document import Decoded, DecodeOptions, decode_document, encode_document
from pulsar_meta.codecs.documents.kinds import KINDS, fitting_kinds
from pulsar_meta.codecs.documents.value import (
    FUNCTION_KINDS,
    LOG_ENTRY_KINDS,
    POLICIES_KINDS,
    SCALABLE_KINDS,
    TRANSACTION_KINDS,
)
from pulsar_meta.codecs.errors import DecodeError, PulsarMetaError
from pulsar_meta.codecs.json_text import dumps, read_json
from tests.codecs.documents.golden_values import GOLDEN, JAVA_ZLIB, ONE_LEDGER, Golden

golden = pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case.name)


def decode(data: bytes, kind: str) -> Decoded:
    return decode_document(data, source="test", options=DecodeOptions(kind=kind))


def encode(document: object) -> bytes:
    return encode_document(read_json(dumps(document), literal=True)).data


@golden
def test_bytes_decode_to_the_value_and_back(case: Golden) -> None:
    decoded = decode(case.stored, case.kind)
    assert decoded.error is None
    assert decoded.same_bytes
    assert decoded.document["value"] == case.value
    assert (decoded.document["envelope"] or {"codec": None})["codec"] == case.codec
    envelope = {"codec": case.codec} if case.codec else None
    assert encode({"kind": case.kind, "envelope": envelope, "value": case.value}) == case.stored


@golden
def test_a_document_survives_json(case: Golden) -> None:
    document = decode(case.stored, case.kind).document
    assert encode(document) == case.stored


@golden
def test_every_truncation_is_an_error_or_a_shorter_value(case: Golden) -> None:
    for size in range(len(case.stored)):
        cut = decode(case.stored[:size], case.kind)
        if cut.error is None:
            # A complete shorter value, such as a list with fewer elements, to which nothing was added.
            assert encode(cut.document) == case.stored[:size] or not cut.same_bytes
        else:
            assert isinstance(cut.error, DecodeError)
            assert cut.document["error"]["message"]
            with pytest.raises(DecodeError):
                encode(cut.document)


@golden
@pytest.mark.parametrize("tail", [b"\x00", b"\xff", b"x" * 20], ids=["zero", "ff", "xs"])
def test_extra_bytes_are_never_dropped_silently(case: Golden, tail: bytes) -> None:
    decoded = decode(case.stored + tail, case.kind)
    if decoded.error is not None:
        assert isinstance(decoded.error, DecodeError)
    elif decoded.same_bytes:
        assert encode(decoded.document) == case.stored + tail


@golden
def test_content_is_never_taken_for_another_kind(case: Golden) -> None:
    try:
        kinds = fitting_kinds(case.stored)
    except PulsarMetaError:
        return
    # Records of Pulsar 5 are recognized by their paths, snapshots by their topics, and functions by --type.
    by_path = (*SCALABLE_KINDS, *TRANSACTION_KINDS, *POLICIES_KINDS, "Counter", "Bytes", *LOG_ENTRY_KINDS[2:])
    strict = (
        case.kind not in (*by_path, *FUNCTION_KINDS)
        and "unknown" not in case.name
        and "wrong" not in case.name
    )
    assert not strict or case.kind in kinds, kinds


def test_every_kind_is_in_the_table() -> None:
    assert {case.kind for case in GOLDEN} == set(KINDS) - {"LocalBrokerData"}


def test_a_deflate_stream_without_an_end_is_read() -> None:
    decoded = decode(JAVA_ZLIB, "ManagedLedgerInfo")
    assert decoded.document["value"] == ONE_LEDGER
    assert decoded.document["envelope"] == {"codec": "zlib", "stored_size": len(JAVA_ZLIB), "raw_size": 11}
    again = decode(encode(decoded.document), "ManagedLedgerInfo")
    assert again.document["value"] == ONE_LEDGER
    assert again.document["envelope"]["codec"] == "zlib"
