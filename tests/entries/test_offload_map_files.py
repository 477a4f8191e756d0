"""MapFiles of Pulsar's file system offloader, written with Hadoop's own MapFile.Writer."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_meta.codecs.bookie_files.offload import SequenceHeader, decode_records, decode_sequence_header
from pulsar_meta.codecs.errors import DecodeError, NotFoundError, PulsarMetaError
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.offload import open_offload
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.DataFormats_pb2 import LedgerMetadataFormat
from tests.contracts.entry_source import EntrySourceContract, Held

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
FRAMES = [random.Random(number).randbytes(number * 37 % 900) for number in range(400)]
LARGE = [b"a" * 100_000, random.Random(1).randbytes(300_000), b""] * 3


class Hadoop:
    """Writes MapFiles with Hadoop's own classes, which are part of Spark."""

    def __init__(self, session: Any) -> None:
        self.java = session.sparkContext._jvm
        self.io = self.java.org.apache.hadoop.io
        self.settings = session.sparkContext._jsc.hadoopConfiguration()

    def write(self, folder: Path, ledger_id: int, frames: list[bytes], compression_type: str) -> Path:
        """Offload a ledger with a `compression_type` of NONE, RECORD or BLOCK."""
        place = folder / f"{ledger_id}-{UUID}"
        system = self.java.org.apache.hadoop.fs.FileSystem.getLocal(self.settings)
        kind = self.java.java.lang.Class.forName
        key, value = kind("org.apache.hadoop.io.LongWritable"), kind("org.apache.hadoop.io.BytesWritable")
        compression = getattr(self.java.org.apache.hadoop.io.SequenceFile.CompressionType, compression_type)
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


def test_bookkeepers_custom_metadata_is_read(topic: Path) -> None:
    with open_offload(f"offload:{topic}") as source:
        assert source.custom_metadata(77) == {"component": "managed-ledger"}
        assert source.custom_metadata(78) == {}


def test_the_url_can_name_a_single_ledger(topic: Path) -> None:
    with open_entries([f"offload:{topic}/12-{UUID}"]) as source:
        assert source.ledgers() == [12]
        assert bytes(source.read(12, 399).data) == FRAMES[399]


def test_a_map_file_without_index_is_read_from_the_start(topic: Path, tmp_path: Path) -> None:
    shutil.copytree(topic / f"12-{UUID}", tmp_path / f"12-{UUID}")
    (tmp_path / f"12-{UUID}" / "index").unlink()
    with open_entries([f"offload:{tmp_path}"]) as source:
        assert bytes(source.read(12, 300).data) == FRAMES[300]


def test_folders_that_are_no_map_files_are_refused(tmp_path: Path) -> None:
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


def test_a_truncated_file_yields_its_complete_records_or_an_error(topic: Path) -> None:
    content = (topic / f"{2**40}-{UUID}" / "data").read_bytes()
    header = decode_sequence_header(content)
    records = list(decode_records(content[header.size :], header))
    ends = {header.size, *(header.size + record.end for record in records)}
    for size in range(len(content)):
        try:
            cut = content[:size]
            read = list(decode_records(cut[header.size :], decode_sequence_header(cut)))
        except DecodeError:
            continue
        assert size in ends
        assert read == records[: len(read)]


def test_changed_bytes_yield_entries_or_an_error(topic: Path, tmp_path: Path) -> None:
    place = tmp_path / f"12-{UUID}"
    shutil.copytree(topic / f"12-{UUID}", place)
    chance = random.Random(7)
    for name in ("data", "index"):
        content = (place / name).read_bytes()
        for _ in range(150):
            changed, at = bytearray(content), chance.randrange(len(content) - 4)
            changed[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
            (place / name).write_bytes(changed)
            with open_entries([f"offload:{tmp_path}"]) as source:
                try:
                    ids = [entry.entry_id for entry in source.read_many(12)]
                    assert ids == list(range(len(ids)))
                    assert source.read(12, 300).entry_id == 300
                except PulsarMetaError:
                    continue
        (place / name).write_bytes(content)


def build_block(sizes: tuple[bytes, bytes, bytes, bytes], count: bytes) -> tuple[bytes, SequenceHeader]:
    """Build a block of a file from its parts."""
    header = SequenceHeader("", compressed=True, by_blocks=True, sync=bytes(16), size=0)
    parts = [zlib.compress(part) for part in sizes]
    body = b"".join(encode_vlong(len(part)) + part for part in parts)
    return struct.pack(">i", -1) + header.sync + count + body, header


def encode_vlong(number: int) -> bytes:
    """Encode a number like Hadoop's WritableUtils.writeVLong."""
    if number < 128:
        return bytes([number])
    data = number.to_bytes((number.bit_length() + 7) // 8)
    return bytes([256 - 112 - len(data)]) + data


@pytest.mark.parametrize(
    ("count", "parts"),
    [
        (b"\xff", (b"", b"", b"", b"")),
        (b"\x00", (b"", b"", b"", b"")),
        (encode_vlong(2_000_000), (bytes(2_000_000), b"", bytes(2_000_000), b"")),
        (b"\x01", (b"\x08", bytes(8), b"\x09", b"short")),
        (b"\x01", (b"\x08", bytes(8), b"\x01", b"long")),
        (b"\x01", (b"\x07", bytes(8), b"\x01", b"1")),
        (b"\x02", (b"\x08", bytes(16), b"\x01", b"1")),
    ],
)
def test_a_broken_block_is_a_decode_error(count: bytes, parts: tuple[bytes, ...]) -> None:
    data, header = build_block(parts, count)  # type: ignore[arg-type]
    with pytest.raises(DecodeError) as caught:
        list(decode_records(data, header))
    assert type(caught.value) is DecodeError


def test_a_complete_block_built_by_hand_is_read() -> None:
    keys = struct.pack(">qq", 5, 6)
    data, header = build_block((b"\x08\x08", keys, b"\x01\x02", b"abc"), b"\x02")
    records = [(record.key, bytes(record.value)) for record in decode_records(data, header)]
    assert records == [(5, b"a"), (6, b"bc")]


def test_a_file_that_ends_after_a_sync_mark_is_an_error(topic: Path, tmp_path: Path) -> None:
    place = tmp_path / f"12-{UUID}"
    shutil.copytree(topic / f"12-{UUID}", place)
    content = (place / "data").read_bytes()
    header = decode_sequence_header(content)
    mark = content.rfind(b"\xff\xff\xff\xff" + header.sync)
    assert mark > 0
    (place / "data").write_bytes(content[: mark + 20])
    (place / "index").unlink()
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="expected"):
        list(source.read_many(12))


def test_a_failed_offload_is_skipped_if_there_is_another(topic: Path, tmp_path: Path) -> None:
    """The file of the failed offload is empty or lacks its end."""
    other = UUID.replace("0a", "0b", 1)
    for name in (UUID, other):
        shutil.copytree(topic / f"12-{UUID}", tmp_path / f"12-{name}")
    data = tmp_path / f"12-{UUID}" / "data"
    content = data.read_bytes()
    for size in (len(content) - 30, 0):
        data.write_bytes(content[:size])
        with open_entries([f"offload:{tmp_path}"]) as source:
            assert [bytes(entry.data) for entry in source.read_many(12)] == FRAMES


def test_a_missing_ledger_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file or folder"):
        open_entries([f"offload:{tmp_path}/12-{UUID}"])
