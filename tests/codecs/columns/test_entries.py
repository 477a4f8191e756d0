"""Reading entries into columns gives what the codec for a single entry gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.bookie_files.entry_log import Damage, Record, scan_records
from pulsar_meta.codecs.columns.entries import Column, Row, columns_of, decode_row, reader_for, wrapped
from pulsar_meta.codecs.columns.headers import WIDTHS
from pulsar_meta.codecs.columns.records import find_records
from pulsar_meta.codecs.columns.words import EVERY, LONGEST_VARINT, MARGIN, Heads, Positions
from pulsar_meta.codecs.errors import UsageError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.codecs.frames.row_schema import HEADER_COLUMNS
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata
from tests.nightly import examples, mostly_at_night

CAPTURES = (
    "pulsar-2.8.2", "pulsar-3.0.7", "pulsar-4.0.7", "pulsar-4.2.4", "pulsar-4.2.4-3bookies",
    "pulsar-4.2.4-killed", "pulsar-5.0.0-M1",
)  # fmt: skip


def logs_of(folder: Path) -> Iterator[bytes]:
    for path in sorted(folder.glob("bookie*/current/*.log")):
        if path.stat().st_size:
            yield path.read_bytes()


def expected(row: Mapping[str, object]) -> dict[str, object]:
    """Wrap integers to signed 64 bits, as columns store them."""
    return {name: wrapped(value) if type(value) is int else value for name, value in row.items()}


def columns_in(
    data: bytes,
    offsets: Positions,
    sizes: Positions,
    names: Sequence[str] = HEADER_COLUMNS,
    *,
    bookie: bool = True,
    verify: bool = False,
) -> dict[str, Column]:
    """Decode columns, and leave to the single codec what only it can decode."""
    if not len(sizes):
        # A reader always gets at least one entry.
        return {}
    view = memoryview(data)
    headers = reader_for(names, bookie=bookie, verify=verify).read(view, offsets, sizes)

    def row(at: int) -> Row:
        return decode_row(view[offsets[at] : offsets[at] + sizes[at]], bookie=bookie, verify=verify)

    return columns_of(headers, names, headers.whole, row)


def rows_of(columns: dict[str, Column]) -> list[dict[str, object]]:
    lists = {name: column.tolist() for name, column in columns.items()}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


@pytest.mark.parametrize(
    ("name", "verify"),
    mostly_at_night(
        product(CAPTURES, (False, True)),
        ("pulsar-2.8.2", False),
        ("pulsar-4.2.4-3bookies", True),
        ("pulsar-5.0.0-M1", True),
    ),
)
def test_columns_and_codec_agree_on_every_entry_of_a_capture(
    capture: Callable[[str], Path], name: str, verify: bool
) -> None:
    seen = 0
    for log in logs_of(capture(name)):
        view = memoryview(log)
        places = find_records(log)
        columns = columns_in(log, places.offsets, places.sizes, verify=verify)
        rows = rows_of(columns)
        for at, size, row in zip(places.offsets.tolist(), places.sizes.tolist(), rows, strict=True):
            assert row == expected(decode_row(view[at : at + size], verify=verify))
        seen += len(rows)
    assert seen > 1000


@pytest.mark.parametrize("name", CAPTURES)
def test_the_arrays_have_the_records_of_a_scan(capture: Callable[[str], Path], name: str) -> None:
    for log in logs_of(capture(name)):
        places = find_records(log)
        scanned = [(item.offset, item.size) for item in scan_records(log) if isinstance(item, Record)]
        assert list(zip(places.offsets.tolist(), places.sizes.tolist(), strict=True)) == scanned


@pytest.mark.parametrize("seed", range(12))
def test_records_of_all_sizes_are_found_even_after_damage(seed: int) -> None:
    chance = random.Random(seed)
    log = bytearray(1024)
    for number in range(chance.randrange(20_000)):
        # Payloads that contain the ledger's id look like the start of a record.
        ledger = chance.choice((7, 7, 7, 8)) if seed % 2 else 7
        payload = chance.choice((b"", ledger.to_bytes(8) * 9, bytes(chance.randrange(90))))
        data = encode_bookie_entry(ledger, number, -1, number, payload)
        log += len(data).to_bytes(4) + data
    if seed % 3 == 0:
        log[len(log) // 2 : len(log) // 2 + 40] = chance.randbytes(40)
    places = find_records(log)
    scanned = list(scan_records(log))
    records = [(item.offset, item.size) for item in scanned if isinstance(item, Record)]
    assert list(zip(places.offsets.tolist(), places.sizes.tolist(), strict=True)) == records
    assert list(places.damage) == [item for item in scanned if isinstance(item, Damage)]


def test_almost_no_entry_of_a_topic_needs_the_single_codec(capture: Callable[[str], Path]) -> None:
    log = max(logs_of(capture("pulsar-4.0.7")), key=len)
    places = find_records(log)
    broken = columns_in(log, places.offsets, places.sizes, ["broken"])["broken"].values
    headers = reader_for(HEADER_COLUMNS).read(log, places.offsets[~broken], places.sizes[~broken])
    assert np.count_nonzero(~headers.whole) <= len(places.offsets) // 500


@pytest.mark.parametrize("size", [300, 2000])
def test_entries_with_long_metadata_are_read_in_columns(size: int) -> None:
    frames = []
    for number in range(500):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=number)
        metadata.properties.add(key="k", value="v" * (size + number % 5 if number % 4 else 0))
        frames.append(encode_frame(metadata, b"payload"))
    check_frames(frames)
    data = b"".join(frames) + bytes(WIDTHS[-1])
    sizes = np.array([len(frame) for frame in frames])
    assert reader_for(HEADER_COLUMNS, bookie=False).read(data, np.cumsum(sizes) - sizes, sizes).whole.all()


@pytest.mark.parametrize("seed", range(40))
def test_damaged_logs_are_read_as_by_the_codec(capture: Callable[[str], Path], seed: int) -> None:
    chance = random.Random(seed)
    log = max(logs_of(capture("pulsar-4.2.4")), key=len)
    start = chance.randrange(1024, len(log) - 30_000)
    damaged = bytearray(log[:1024] + log[start : start + chance.randrange(2_000, 30_000)])
    for _ in range(chance.randrange(30)):
        damaged[chance.randrange(1024, len(damaged))] = chance.randrange(256)
    if seed % 3 == 0:
        at = chance.randrange(1024, len(damaged))
        damaged[at : at + 700] = bytes([chance.choice([0, 0xF0])]) * chance.randrange(1500)
    data = bytes(damaged)
    places = find_records(data)
    scanned = [(item.offset, item.size) for item in scan_records(data) if isinstance(item, Record)]
    assert list(zip(places.offsets.tolist(), places.sizes.tolist(), strict=True)) == scanned
    assert list(places.damage) == [item for item in scan_records(data) if isinstance(item, Damage)]
    rows = rows_of(columns_in(data, places.offsets, places.sizes))
    view = memoryview(data)
    assert rows == [expected(decode_row(view[at : at + size])) for at, size in scanned]


def test_broken_frames_read_the_same_in_columns() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=2**64 - 1, publish_time=1_700_000_000_000)
    metadata.properties.add(key="k", value="ü")
    metadata.encryption_keys.add(key="e", value=b"\x00").metadata.add(key="m", value="v")
    metadata.compacted_batch_indexes.extend([1, 300])
    metadata.num_chunks_from_msg, metadata.chunk_id = 3, 2
    frame = encode_frame(
        metadata, b"payload", broker_metadata=BrokerEntryMetadata(broker_timestamp=5, index=7)
    )
    broken = [bytearray(frame) for _ in range(len(frame) * 12)]
    for number, damaged in enumerate(broken):
        damaged[number // 12] = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x12, 0x22, 0x6A, 0x40, 0xFA, 0x0B)[number % 12]
    cut = [frame[:size] for size in range(len(frame))]
    check_frames([frame, *map(bytes, broken), *cut])


fields = st.builds(
    MessageMetadata,
    producer_name=st.text(max_size=40),
    sequence_id=st.integers(0, 2**64 - 1),
    publish_time=st.integers(0, 2**64 - 1),
    num_messages_in_batch=st.none() | st.integers(-(2**31), 2**31 - 1),
    compression=st.none() | st.integers(0, 4),
    uncompressed_size=st.none() | st.integers(0, 2**32 - 1),
    event_time=st.none() | st.integers(0, 2**64 - 1),
    marker_type=st.none() | st.integers(-(2**31), 2**31 - 1),
    txnid_most_bits=st.none() | st.integers(0, 2**64 - 1),
    txnid_least_bits=st.none() | st.integers(0, 2**64 - 1),
    chunk_id=st.none() | st.integers(-(2**31), 2**31 - 1),
    partition_key=st.none() | st.text(max_size=300),
    schema_version=st.none() | st.binary(max_size=9),
)
brokers = st.none() | st.builds(
    BrokerEntryMetadata,
    broker_timestamp=st.none() | st.integers(0, 2**64 - 1),
    index=st.none() | st.integers(0, 2**64 - 1),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(fields, brokers, st.booleans(), st.binary(max_size=50)), min_size=1, max_size=12))
def test_numbers_of_any_size_survive(
    entries: list[tuple[MessageMetadata, BrokerEntryMetadata | None, bool, bytes]],
) -> None:
    check_frames(
        [
            encode_frame(metadata, payload, broker_metadata=broker, checksum=checksum)
            for metadata, broker, checksum, payload in entries
        ]
    )


@settings(deadline=None)
@given(st.lists(st.binary(max_size=120), max_size=20))
def test_any_bytes_give_a_row(frames: list[bytes]) -> None:
    check_frames(frames)


def check_frames(frames: list[bytes]) -> None:
    """Compare columns and codec on frames, with and without bytes after the last frame."""
    for tail in (b"", bytes(WIDTHS[-1])):
        data = b"".join(frames) + tail
        sizes = np.array([len(frame) for frame in frames], np.int64)
        offsets = np.cumsum(sizes) - sizes
        rows = rows_of(columns_in(data, offsets, sizes, bookie=False))
        assert rows == [expected(decode_row(memoryview(frame), bookie=False)) for frame in frames]


def test_each_entrys_digest_type_is_detected() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    frame = encode_frame(metadata, b"x" * 50)
    kinds = ("CRC32C", "CRC32", "HMAC", "DUMMY") * 3
    entries = [
        encode_bookie_entry(5, number, number - 1, 60, frame, digest_type=kind)  # type: ignore[arg-type]
        for number, kind in enumerate(kinds)
    ]
    data = b"".join(entries) + bytes(WIDTHS[-1])
    sizes = np.array([len(entry) for entry in entries])
    offsets = np.cumsum(sizes) - sizes
    columns = columns_in(data, offsets, sizes, ["entry_id", "size", "broken", "publish_time"])
    assert columns["entry_id"].tolist() == list(range(12))
    assert columns["size"].tolist() == [len(frame)] * 12
    assert columns["broken"].tolist() == [False] * 12
    assert columns["publish_time"].tolist() == [2] * 12


def test_an_unknown_column_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown column 'colour'"):
        reader_for(["colour"])


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(0, 30))
def test_varints_of_every_length_are_read(numbers: list[int], offset: int) -> None:
    width = offset + LONGEST_VARINT + MARGIN
    data = b"".join(bytes(offset) + varint(number).ljust(width - offset, b"\xff") for number in numbers)
    starts = np.arange(len(numbers)) * width
    for at in (offset, np.full(len(numbers), offset)):
        heads = Heads(data, starts, width)
        values, lengths = heads.varints(at, EVERY, heads.words(at), 8)
        assert values.tolist() == numbers
        expected = [len(varint(number)) for number in numbers]
        assert np.broadcast_to(lengths, len(numbers)).tolist() == expected


def varint(number: int) -> bytes:
    low = bytes([number & 0x7F])
    return low if number < 0x80 else bytes([low[0] | 0x80]) + varint(number >> 7)
