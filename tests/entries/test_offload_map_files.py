"""MapFiles as Pulsar's file system offloader keeps them, written by Hadoop's own MapFile.Writer."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_meta.codecs.bookie_files.sequence_file import (
    SequenceHeader,
    decode_records,
    decode_sequence_header,
)
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.offload import open_offload
from pulsar_meta.entries.registry import open_entries
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.contracts.entry_source import EntrySourceContract, Held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
FRAMES = [random.Random(number).randbytes(number * 37 % 900) for number in range(400)]
LARGE = [b"a" * 100_000, random.Random(1).randbytes(300_000), b""] * 3


class Hadoop:
    """Writes MapFiles by Hadoop's own classes, which come with Spark."""

    def __init__(self, session: Any) -> None:
        self.java = session.sparkContext._jvm
        self.io = self.java.org.apache.hadoop.io
        self.settings = session.sparkContext._jsc.hadoopConfiguration()

    def write(self, folder: Path, ledger_id: int, frames: list[bytes], how: str) -> Path:
        """Offload a ledger; `how` is NONE, RECORD or BLOCK."""
        place = folder / f"{ledger_id}-{UUID}"
        system = self.java.org.apache.hadoop.fs.FileSystem.getLocal(self.settings)
        kind = self.java.java.lang.Class.forName
        key, value = kind("org.apache.hadoop.io.LongWritable"), kind("org.apache.hadoop.io.BytesWritable")
        compression = getattr(self.java.org.apache.hadoop.io.SequenceFile.CompressionType, how)
        writer = self.io.MapFile.Writer(self.settings, system, str(place), key, value, compression)
        metadata = LedgerMetadataFormat(quorumSize=1, ensembleSize=1, length=0)
        metadata.state, metadata.lastEntryId = LedgerMetadataFormat.CLOSED, len(frames) - 1
        metadata.customMetadata.add(key="component", value=b"managed-ledger")
        for number, data in enumerate([metadata.SerializeToString(), *frames], -1):
            writer.append(self.io.LongWritable(number), self.io.BytesWritable(bytearray(data)))
        writer.close()
        return place


@pytest.fixture(scope="module")
def hadoop(session: SparkSession) -> Hadoop:
    return Hadoop(session)


@pytest.fixture(scope="module", params=["NONE", "RECORD", "BLOCK"])
def topic(request: pytest.FixtureRequest, hadoop: Hadoop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic's folder with three ledgers."""
    folder = tmp_path_factory.mktemp("offloaded")
    for ledger_id, frames in ((12, FRAMES), (2**40, FRAMES[:1]), (77, LARGE)):
        hadoop.write(folder, ledger_id, frames, request.param)
    return folder


class TestMapFiles(EntrySourceContract):
    @pytest.fixture
    def held(self) -> Held:
        return {12: range(400), 2**40: range(1), 77: range(9)}

    @pytest.fixture
    def source(self, topic: Path) -> Iterator[EntrySource]:
        with open_entries([f"offload:{topic}"]) as source:
            yield source

    def test_the_frames_are_what_was_offloaded(self, source: EntrySource) -> None:
        assert [bytes(entry.data) for entry in source.read_many(12)] == FRAMES
        assert [bytes(entry.data) for entry in source.read_many(77)] == LARGE


def test_what_bookkeeper_knew_of_a_ledger(topic: Path) -> None:
    with open_offload(f"offload:{topic}") as source:
        assert source.custom_metadata(77) == {"component": "managed-ledger"}
        assert source.custom_metadata(78) == {}


def test_one_ledger_may_be_named(topic: Path) -> None:
    with open_entries([f"offload:{topic}/12-{UUID}"]) as source:
        assert source.ledgers() == [12]
        assert bytes(source.read(12, 399).data) == FRAMES[399]


def test_without_its_index_it_is_read_from_the_start(topic: Path, tmp_path: Path) -> None:
    shutil.copytree(topic / f"12-{UUID}", tmp_path / f"12-{UUID}")
    (tmp_path / f"12-{UUID}" / "index").unlink()
    with open_entries([f"offload:{tmp_path}"]) as source:
        assert bytes(source.read(12, 300).data) == FRAMES[300]


def test_what_is_no_map_file_is_told(tmp_path: Path) -> None:
    place = tmp_path / f"12-{UUID}"
    place.mkdir()
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="no file 'data'"):
        source.read(12, 0)
    (place / "data").write_bytes(b"nothing of the kind")
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="SequenceFile"):
        source.read(12, 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="no offloaded ledger"):
        open_entries([f"offload:{tmp_path / 'empty'}"])


def test_cut_anywhere_it_ends_in_an_error(topic: Path) -> None:
    whole = (topic / f"{2**40}-{UUID}" / "data").read_bytes()
    header = decode_sequence_header(whole)
    found = list(decode_records(whole, header, header.size))
    ends = {header.size, *(record.end for record in found)}
    for size in range(len(whole)):
        try:
            cut = whole[:size]
            again = list(decode_records(cut, decode_sequence_header(cut), header.size))
        except DecodeError:
            continue
        assert size in ends
        assert again == found[: len(again)]


def test_changed_bytes_end_in_an_error_or_in_entries(topic: Path, tmp_path: Path) -> None:
    place = tmp_path / f"12-{UUID}"
    shutil.copytree(topic / f"12-{UUID}", place)
    chance = random.Random(7)
    for name in ("data", "index"):
        whole = (place / name).read_bytes()
        for _ in range(150):
            changed, at = bytearray(whole), chance.randrange(len(whole) - 4)
            changed[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
            (place / name).write_bytes(changed)
            with open_entries([f"offload:{tmp_path}"]) as source:
                try:
                    ids = [entry.entry_id for entry in source.read_many(12)]
                    assert ids == list(range(len(ids)))
                    assert source.read(12, 300).entry_id == 300
                except PulsarMetaError:
                    continue
        (place / name).write_bytes(whole)


def hand_made(sizes: tuple[bytes, bytes, bytes, bytes], count: bytes) -> tuple[bytes, SequenceHeader]:
    """Return a block of a file with these parts."""
    header = SequenceHeader("", "", compressed=True, by_blocks=True, sync=bytes(16), size=0)
    parts = [zlib.compress(part) for part in sizes]
    body = b"".join(encoded(len(part)) + part for part in parts)
    return struct.pack(">i", -1) + header.sync + count + body, header


def encoded(number: int) -> bytes:
    """Return a number as WritableUtils.writeVLong writes it."""
    if number < 128:
        return bytes([number])
    data = number.to_bytes((number.bit_length() + 7) // 8)
    return bytes([256 - 112 - len(data)]) + data


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (b"\xff", (b"", b"", b"", b"")),
        (b"\x00", (b"", b"", b"", b"")),
        (encoded(2_000_000), (bytes(2_000_000), b"", bytes(2_000_000), b"")),
        (b"\x01", (b"\x08", bytes(8), b"\x09", b"short")),
        (b"\x01", (b"\x08", bytes(8), b"\x01", b"long")),
        (b"\x01", (b"\x07", bytes(8), b"\x01", b"1")),
        (b"\x02", (b"\x08", bytes(16), b"\x01", b"1")),
    ],
)
def test_a_broken_block_is_an_error_and_little_work(count: bytes, parts: tuple[bytes, ...]) -> None:
    data, header = hand_made(parts, count)  # type: ignore[arg-type]
    with pytest.raises(DecodeError) as caught:
        list(decode_records(data, header))
    assert type(caught.value) is DecodeError


def test_a_whole_block_made_by_hand_is_read() -> None:
    keys = struct.pack(">qq", 5, 6)
    data, header = hand_made((b"\x08\x08", keys, b"\x01\x02", b"abc"), b"\x02")
    found = [(record.key, bytes(record.value)) for record in decode_records(data, header)]
    assert found == [(5, b"a"), (6, b"bc")]


def test_nothing_behind_a_sync_mark_is_the_end(topic: Path, tmp_path: Path) -> None:
    place = tmp_path / f"12-{UUID}"
    shutil.copytree(topic / f"12-{UUID}", place)
    whole = (place / "data").read_bytes()
    header = decode_sequence_header(whole)
    mark = whole.rfind(b"\xff\xff\xff\xff" + header.sync)
    assert mark > 0
    (place / "data").write_bytes(whole[: mark + 20])
    (place / "index").unlink()
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="expected"):
        list(source.read_many(12))


def test_an_offload_that_failed_is_passed_over(topic: Path, tmp_path: Path) -> None:
    """Also where its end only is missing, or all of it."""
    other = UUID.replace("0a", "0b", 1)
    for name in (UUID, other):
        shutil.copytree(topic / f"12-{UUID}", tmp_path / f"12-{name}")
    data = tmp_path / f"12-{UUID}" / "data"
    whole = data.read_bytes()
    for size in (len(whole) - 30, 0):
        data.write_bytes(whole[:size])
        with open_entries([f"offload:{tmp_path}"]) as source:
            assert [bytes(entry.data) for entry in source.read_many(12)] == FRAMES


def test_a_ledger_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file or folder"):
        open_entries([f"offload:{tmp_path}/12-{UUID}"])
