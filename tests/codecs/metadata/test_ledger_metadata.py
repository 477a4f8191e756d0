"""LedgerMetadata of version 1 is parsed like BookKeeper's own class does."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.ledger_metadata import decode_ledger_metadata

OPEN = b"BookieMetadataFormatVersion\t1\n2\n3\n0\n"


def test_empty_parts_at_the_end_of_a_line_are_dropped() -> None:
    value = OPEN + b"0\ta.example:3181\tb.example:3181\t\t\n"
    segment = decode_ledger_metadata(value).metadata.segment[0]
    assert list(segment.ensembleMember) == ["a.example:3181", "b.example:3181"]


def test_the_document_tells_if_encoding_changes_the_bytes() -> None:
    value = OPEN + b"0\ta.example:3181\t\n"
    document = decode_document(value, source="test", options=DecodeOptions(kind="LedgerMetadata")).document
    assert document["value"]["order_kept"] is False


def test_a_line_of_tabs_is_an_error() -> None:
    with pytest.raises(DecodeError, match="expected entry and bookies"):
        decode_ledger_metadata(OPEN + b"0\t\t\n5\tb.example:3181")
