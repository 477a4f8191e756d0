"""Entry logs: records, locations, the ledgers map, and damage."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.bookie_files.entry_log import (
    Damage,
    Record,
    decode_log_header,
    ledgers_map,
    record_at,
    scan_records,
    split_location,
)
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry

HEADER = b"BKLO" + struct.pack(">iqi", 1, 0, 0) + bytes(1004)
DIRECT = HEADER + struct.pack(">iq", 3068, -1) + bytes(3060)


def record(ledger: int, entry: int, data: bytes = b"some data") -> bytes:
    body = encode_bookie_entry(ledger, entry, entry - 1, 0, data)
    return struct.pack(">i", len(body)) + body


def map_record(sizes: dict[int, int]) -> bytes:
    rows = b"".join(struct.pack(">qq", *row) for row in sizes.items())
    return struct.pack(">iqqi", 20 + len(rows), -1, -2, len(sizes)) + rows


def ids_of(log: bytes) -> list[tuple[int, int]]:
    return [(r.ledger_id, r.entry_id) for r in scan_records(log) if isinstance(r, Record)]


def damaged(log: bytes) -> list[tuple[int, int]]:
    return [(d.offset, d.end) for d in scan_records(log) if isinstance(d, Damage)]


def test_records_are_found_by_scanning_and_by_location() -> None:
    first, second, third = record(7, 0), record(9, 0, b""), record(7, 1)
    at = 1024 + len(first + second + third)
    header = b"BKLO" + struct.pack(">iqi", 1, at, 2) + bytes(1004)
    sizes = {7: len(first + third), 9: len(second)}
    log = header + first + second + third + map_record(sizes)
    assert ids_of(log) == [(7, 0), (9, 0), (7, 1)]
    assert damaged(log) == []
    assert ledgers_map(log, decode_log_header(log)) == sizes
    for entry in scan_records(log):
        assert isinstance(entry, Record)
        assert record_at(log, entry.offset) == entry
    assert split_location(5 << 32 | 1028) == (5, 1028)


@pytest.mark.parametrize("fill", [b"\0" * 5000, b"\xf0" * 777, b"\0" * 3, b"\xff" * 9])
def test_padding_between_records_is_skipped(fill: bytes) -> None:
    log = HEADER + record(1, 0) + fill + record(1, 1) + fill
    assert ids_of(log) == [(1, 0), (1, 1)]
    assert damaged(log) == []


def test_logs_written_with_direct_io_are_read() -> None:
    first = record(3, 0)
    block = first + b"\xf0" * (4096 - len(first))
    log = DIRECT + block + record(3, 1) + bytes(1 << 20)
    assert ids_of(log) == [(3, 0), (3, 1)]
    assert damaged(log) == []


@pytest.mark.parametrize("log", [b"", HEADER, HEADER + bytes(100_000), HEADER[:500]])
def test_logs_without_records_are_empty(log: bytes) -> None:
    assert list(scan_records(log)) == []


def test_a_torn_last_record_is_reported_as_damage() -> None:
    last = record(1, 1)
    for length in range(24, len(last)):
        log = HEADER + record(1, 0) + last[:length]
        assert ids_of(log) == [(1, 0)]
        assert damaged(log) == [(len(log) - length, len(log))]


def test_a_broken_size_affects_no_other_record() -> None:
    parts = [record(1, entry, b"x" * 300) for entry in range(5)]
    log = bytearray(HEADER + b"".join(parts))
    at = 1024 + len(parts[0])
    for size in (2**31 - 1, 17, 100_000):
        struct.pack_into(">i", log, at, size)
        assert ids_of(bytes(log)) == [(1, 0), (1, 2), (1, 3), (1, 4)]
        assert damaged(bytes(log)) == [(at, at + len(parts[1]))]


@pytest.mark.parametrize("offset", [-1, 0, 3, 1025, 2**31, 1024 + 4 + 40])
def test_a_location_without_a_record_is_a_decode_error(offset: int) -> None:
    with pytest.raises(DecodeError):
        record_at(HEADER + record(1, 0), offset)


@pytest.mark.parametrize(
    ("offset", "count"), [(0, 0), (1024, 1), (2**62, 1), (-5, 1), (1024, -1), (1024, 2**31 - 1), (1020, 1)]
)
def test_wrong_ledger_maps_are_ignored(offset: int, count: int) -> None:
    log = b"BKLO" + struct.pack(">iqi", 1, offset, count) + bytes(1004) + record(1, 0)
    assert ledgers_map(log, decode_log_header(log)) is None


def test_log_headers_are_decoded() -> None:
    for length in range(1024):
        with pytest.raises(DecodeError):
            decode_log_header(HEADER[:length])
    with pytest.raises(DecodeError, match="BKLO"):
        decode_log_header(b"BKLG" + HEADER[4:])


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    end = 0
    for item in scan_records(HEADER + data):
        assert end <= item.offset <= 1024 + len(data)
        end = item.offset


@pytest.mark.parametrize("name", ["pulsar-4.2.4", "pulsar-2.8.2"])
def test_scanning_a_real_log_finds_no_damage(name: str, capture: Callable[[str], Path]) -> None:
    current = capture(name) / "bookie0" / "current"
    records = [item for log in sorted(current.glob("*.log")) for item in scan_records(log.read_bytes())]
    assert len(records) > 6000
    assert not any(isinstance(item, Damage) for item in records)
