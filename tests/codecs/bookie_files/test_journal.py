"""The journals of bookies."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.bookie_files.journal import (
    MASTER_KEY,
    decode_mark,
    is_entry,
    journal_records,
    journal_start,
)
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry

STARTS = {
    version: b"BKLG" + struct.pack(">i", version) + bytes(0 if version < 5 else 504)
    for version in range(2, 7)
}


def entry(entry_id: int) -> bytes:
    body = encode_bookie_entry(4, entry_id, entry_id - 1, 0, b"data")
    return struct.pack(">i", len(body)) + body


def note(kind: int) -> bytes:
    body = struct.pack(">qq", 4, kind) + struct.pack(">i", 3) + b"key"
    return struct.pack(">i", len(body)) + body


def padding(count: int) -> bytes:
    return struct.pack(">ii", -256, count) + bytes(count)


@pytest.mark.parametrize("version", STARTS)
def test_records_of_each_version_are_read(version: int) -> None:
    data = STARTS[version] + note(MASTER_KEY) + entry(0) + entry(1) + bytes(500)
    records = list(journal_records(data))
    assert [record.entry_id for record in records] == [MASTER_KEY, 0, 1]
    assert [is_entry(record) for record in records] == [False, True, True]
    assert journal_start(data)[0] == version


def test_version_1_has_no_header() -> None:
    assert [record.entry_id for record in journal_records(entry(0) + entry(1))] == [0, 1]


@pytest.mark.parametrize("count", [0, 1, 500])
def test_padding_is_skipped(count: int) -> None:
    data = STARTS[5] + entry(0) + padding(count) + entry(1) + padding(9)
    assert [record.entry_id for record in journal_records(data)] == [0, 1]


def test_a_torn_last_record_ends_the_journal() -> None:
    journal = STARTS[5] + entry(0) + entry(1)
    for length in range(len(STARTS[5] + entry(0)), len(journal)):
        assert [record.entry_id for record in journal_records(journal[:length])] == [0]


@pytest.mark.parametrize("size", [-1, -257, -(2**31), 3])
def test_hostile_sizes_are_decode_errors(size: int) -> None:
    with pytest.raises(DecodeError):
        list(journal_records(STARTS[5] + struct.pack(">i", size) + bytes(100)))


@pytest.mark.parametrize(
    "ids", [(4, 1, 5, 0), (4, 1, -2, 0), (4, 1, 0, -1), (-1, 1, 0, 0), (-4, -1, 0, 0), (2**62, 7, 2**40, 3)]
)
def test_plausible_bytes_that_are_no_record_are_a_decode_error(ids: tuple[int, int, int, int]) -> None:
    body = struct.pack(">qqqq", *ids) + b"rest"
    data = STARTS[6] + entry(0) + struct.pack(">i", len(body)) + body
    records = journal_records(data)
    assert next(records).entry_id == 0
    with pytest.raises(DecodeError, match="an older journal in a reused file"):
        next(records)


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_hostile_padding_is_a_decode_error(count: int) -> None:
    with pytest.raises(DecodeError):
        list(journal_records(STARTS[5] + struct.pack(">ii", -256, count) + bytes(100)))


@pytest.mark.parametrize("data", [b"", b"BKLG", b"BKLG\0\0\0\x07", b"BKLG\xff\xff\xff\xff", b"\0\0\0\0BKLG"])
def test_other_files_are_decode_errors(data: bytes) -> None:
    with pytest.raises(DecodeError):
        list(journal_records(data))


def test_last_marks_are_decoded() -> None:
    assert decode_mark(bytes.fromhex("000001a1fcb296420000000000008004")) == (0x1A1FCB29642, 0x8004)
    with pytest.raises(DecodeError):
        decode_mark(bytes(15))


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(STARTS)))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes, version: int) -> None:
    for candidate in (data, STARTS[version] + data):
        try:
            list(journal_records(candidate))
        except DecodeError:
            continue
