"""Values that can be decoded only in part: missing fields never get a default."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.metadata.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from pulsar_meta.codecs.protobuf.parse import bytes_field
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, ManagedLedgerInfo

CURSOR = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=7, markDeleteEntryId=3)
RANGE = ManagedCursorInfo(
    cursorsLedgerId=-1,
    individualDeletedMessages=[
        {"lowerEndpoint": {"ledgerId": 7, "entryId": 4}, "upperEndpoint": {"ledgerId": 7, "entryId": 9}}
    ],
)


def partly(kind: str, data: bytes) -> Document:
    decoded = decode_document(data, source="test", options=DecodeOptions(kind=kind))
    assert decoded.error is not None
    return decoded.document


@pytest.mark.parametrize("kind", ["ManagedCursorInfo", "PositionInfo", "SchemaEntry", "SchemaLocator"])
def test_empty_bytes_have_no_value_and_no_meaning(kind: str) -> None:
    document = partly(kind, b"")
    assert document["value"] is None
    assert document["meaning"] == {}


@pytest.mark.parametrize("kind", ["ManagedLedgerInfo", "ManagedCursorInfo", "PositionInfo"])
@pytest.mark.parametrize("data", [b"\xff", b"garbage", b"\x08\xff", b"\x0f\x01"])
def test_garbage_has_no_state_and_no_counts(kind: str, data: bytes) -> None:
    assert partly(kind, data)["meaning"] == {}


def test_a_truncated_cursor_has_only_the_fields_that_were_read() -> None:
    stored = CURSOR.SerializeToString() + b"\x22\x09"
    meaning = partly("ManagedCursorInfo", stored)["meaning"]
    assert meaning == {"state": "record", "mark_delete": "7:3"}


def test_half_a_position_is_not_shown() -> None:
    meaning = partly("PositionInfo", b"\x08\x07")["meaning"]
    assert meaning == {}
    partial = decode_document(
        b"\x08\x00\x10\x07", source="test", options=DecodeOptions(kind="ManagedCursorInfo")
    )
    assert "mark_delete" not in partial.document["meaning"]


def test_a_range_without_an_end_is_not_counted() -> None:
    complete = RANGE.SerializeToString()
    lower = RANGE.individualDeletedMessages[0].lowerEndpoint.SerializeToString()
    document = partly("ManagedCursorInfo", complete + bytes_field(4, bytes_field(1, lower)))
    assert document["meaning"]["acked_ranges"] == 1
    assert document["meaning"]["acked_entries"] == 5


def test_the_last_ledger_of_a_truncated_record_is_not_called_open() -> None:
    info = ManagedLedgerInfo(ledgerInfo=[{"ledgerId": 5, "entries": 10}, {"ledgerId": 6}])
    meaning = partly("ManagedLedgerInfo", info.SerializeToString() + b"\x0a\x05")["meaning"]
    assert meaning["ledger_count"] == 2
    assert "open_ledger" not in meaning


def test_acknowledgements_in_a_cursor_ledger_are_not_counted_as_none() -> None:
    stored = ManagedCursorInfo(cursorsLedgerId=5, markDeleteLedgerId=7, markDeleteEntryId=3)
    decoded = decode_document(
        stored.SerializeToString(), source="test", options=DecodeOptions(kind="ManagedCursorInfo")
    )
    assert decoded.error is None
    assert decoded.document["meaning"]["snapshot_only"] is True
    assert "acked_entries" not in decoded.document["meaning"]


LEDGER = LedgerMetadataFormat(
    quorumSize=2,
    ensembleSize=2,
    length=300,
    lastEntryId=49,
    state=LedgerMetadataFormat.CLOSED,
    segment=[{"firstEntryId": 0, "ensembleMember": ["a:3181", "b:3181"]}],
    digestType=LedgerMetadataFormat.CRC32C,
    password=b"secret",
    customMetadata=[{"key": "component", "value": b"managed-ledger"}, {"key": "k", "value": b"v"}],
)


def test_every_truncation_of_ledger_metadata_has_only_the_fields_that_were_read() -> None:
    stored = encode_ledger_metadata(LedgerMetadata(3, LEDGER))
    whole = decode_document(stored, source="test", options=DecodeOptions(kind="LedgerMetadata")).document
    shown: set[str] = set()
    for size in range(len(stored)):
        document = partly("LedgerMetadata", stored[:size])
        value = document["value"] or {}
        assert document["meaning"] == {}
        assert all(whole["value"][name] == value[name] for name in value if name != "customMetadata")
        assert "secret" not in str(value)
        shown.update(value)
    assert shown == set(whole["value"]) - {"metadata_format_version"}


def test_ledger_metadata_with_a_wrong_size_has_all_its_fields() -> None:
    stored = bytearray(encode_ledger_metadata(LedgerMetadata(3, LEDGER)))
    stored[stored.index(b"\n") + 1] -= 3
    assert partly("LedgerMetadata", bytes(stored))["value"]["customMetadata"]
    assert partly("LedgerMetadata", bytes(stored[:-4]))["value"]["lastEntryId"] == 49
