"""Entries of compacted ledgers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import decode_raw_message
from pulsar_meta.proto.PulsarApi_pb2 import MessageIdData


def test_entries_survive_a_round_trip_and_truncation_is_an_error() -> None:
    head = MessageIdData(ledgerId=5, entryId=2**63, batch_index=3).SerializeToString()
    data = struct.pack(">I", len(head)) + head + struct.pack(">I", 5) + b"frame"
    raw = decode_raw_message(data)
    assert (raw.message_id.ledgerId, raw.message_id.entryId, bytes(raw.frame)) == (5, 2**63, b"frame")
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            decode_raw_message(data[:length])
    with pytest.raises(DecodeError, match="follow"):
        decode_raw_message(data + b"x")


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes) -> None:
    for candidate in (data, b"\0\0\0" + data):
        try:
            decode_raw_message(candidate)
        except DecodeError:
            continue
