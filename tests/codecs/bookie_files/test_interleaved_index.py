"""The `.idx` files of interleaved storage."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.bookie_files.entry_log import decode_index_header, location_of, locations
from pulsar_meta.codecs.errors import DecodeError


def header(version: int = 1, key: bytes = b"k" * 20, state: int = 1, lac: bytes = b"") -> bytes:
    data = b"BKLE" + struct.pack(">ii", version, len(key)) + key + struct.pack(">i", state)
    return (data + struct.pack(">i", len(lac)) + lac).ljust(1024, b"\0")


def test_header_and_locations_are_decoded() -> None:
    data = header(lac=b"lac") + struct.pack(">4q", 1 << 32 | 1028, 0, 2 << 32 | 5000, 0)
    decoded = decode_index_header(data)
    assert (decoded.version, decoded.master_key, decoded.fenced, decoded.explicit_lac) == (
        1,
        b"k" * 20,
        True,
        b"lac",
    )
    entries, places = locations(data)
    assert (list(entries), list(places)) == ([0, 2], [1 << 32 | 1028, 2 << 32 | 5000])
    assert [location_of(data, entry) for entry in (-1, 0, 1, 2, 3, 4, 2**62)] == [
        0, 1 << 32 | 1028, 0, 2 << 32 | 5000, 0, 0, 0,
    ]  # fmt: skip
    assert decode_index_header(header(0)).explicit_lac is None


def test_a_torn_last_location_is_ignored() -> None:
    data = header() + struct.pack(">2q", 1028, 2000)
    assert list(locations(data[:-1])[0]) == [0]
    assert location_of(data[:-1], 1) == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 1010])
def test_hostile_sizes_are_decode_errors(size: int) -> None:
    with pytest.raises(DecodeError):
        decode_index_header(b"BKLE" + struct.pack(">ii", 1, size) + bytes(1012))
    with pytest.raises(DecodeError):
        decode_index_header((b"BKLE" + struct.pack(">iiii", 1, 0, 0, size)).ljust(1024, b"\0"))


def test_truncated_headers_are_decode_errors() -> None:
    for length in range(1024):
        with pytest.raises(DecodeError):
            decode_index_header(header()[:length])
    with pytest.raises(DecodeError, match="version"):
        decode_index_header(header(2))


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes) -> None:
    for candidate in (data, b"BKLE" + data, data.ljust(1024, b"\0")):
        locations(candidate)
        try:
            decode_index_header(candidate)
        except DecodeError:
            continue
