"""Offloaded ledgers, whose objects `offload_objects` builds from the description of their format."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest

from pulsar_meta.codecs.bookie_files.offload import decode_offload_index
from pulsar_meta.codecs.errors import (
    DecodeError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from pulsar_meta.codecs.frames.bookie_entry import decode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from tests.codecs.bookie_files.offload_objects import blocks, index, offloaded, segments
from tests.contracts.entry_source import EntrySourceContract, Held

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
OTHER_UUID = "ffffffff-0000-4000-8000-0123456789ab"
FRAMES = [bytes([number % 251]) * (number * 37 % 900) for number in range(400)]


def put(folder: Path, key: str, objects: tuple[bytes, bytes]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / key).write_bytes(objects[0])
    (folder / f"{key}-index").write_bytes(objects[1])


class TestManyBlocks(EntrySourceContract):
    @pytest.fixture
    def held(self) -> Held:
        return {12: range(400), 2**40: range(3)}

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[EntrySource]:
        put(tmp_path / "objects", f"{UUID}-ledger-12", offloaded(FRAMES))
        put(tmp_path / "objects", f"{UUID}-ledger-{2**40}", offloaded(FRAMES[:3]))
        with open_entries([f"offload:{tmp_path / 'objects'}"]) as source:
            yield source

    def test_the_frames_are_what_was_offloaded(self, source: EntrySource) -> None:
        read = list(source.read_many(12))
        assert [bytes(entry.data) for entry in read] == FRAMES
        assert not any(entry.bookie for entry in read)


class TestSegments(EntrySourceContract):
    """Format 2: several ledgers in one object."""

    @pytest.fixture
    def held(self) -> Held:
        return {3: range(150), 4: range(200), 2**40: range(2)}

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[EntrySource]:
        put(tmp_path, UUID, segments({3: FRAMES[:150], 4: FRAMES[150:350], 2**40: FRAMES[:2]}))
        with open_entries([f"offload:{tmp_path}"]) as source:
            yield source


def test_entries_larger_than_one_fetch_are_read(tmp_path: Path) -> None:
    frames = [b"small", b"x" * (3 << 20), b"", b"y" * (9 << 20), b"last"]
    put(tmp_path, f"{UUID}-ledger-1", offloaded(frames, 16 << 20))
    with open_entries([f"offload:{tmp_path}"]) as source:
        assert [bytes(entry.data) for entry in source.read_many(1)] == frames
        assert [bytes(source.read(1, number).data) for number in (4, 3, 0, 1)] == [
            frames[number] for number in (4, 3, 0, 1)
        ]


def holds_frames(source: EntrySource, ledger: int) -> bool:
    with suppress(DecodeError):
        return bool(
            decode_frame(decode_bookie_entry(source.read(ledger, 0).data).data).metadata.producer_name
        )
    return False


def test_entries_of_a_real_topic_survive_offloading(capture: Callable[[str], Path], tmp_path: Path) -> None:
    with open_entries([f"bookie-disk:{capture('pulsar-4.0.7')}/bookie0"]) as disk:
        ledger = max(
            (ledger_id for ledger_id in disk.ledgers() if holds_frames(disk, ledger_id)),
            key=lambda ledger_id: disk.last_entry(ledger_id) or 0,
        )
        frames = [bytes(decode_bookie_entry(entry.data).data) for entry in disk.read_many(ledger)]
    put(tmp_path, f"{UUID}-ledger-{ledger}", offloaded(frames, 64 << 10))
    with open_entries([f"offload:file://{tmp_path}"]) as source:
        read = [decode_frame(entry.data) for entry in source.read_many(ledger)]
    assert [frame.checksum for frame in read] == ["ok"] * len(frames)
    assert len(frames) >= 50


def test_any_file_system_of_fsspec_can_be_read() -> None:
    memory = fsspec.filesystem("memory")
    data, index = offloaded(FRAMES)
    memory.pipe({f"/bucket/{UUID}-ledger-5": data, f"/bucket/{UUID}-ledger-5-index": index})
    with open_entries(["offload:memory://bucket"]) as source:
        assert source.ledgers() == [5]
        assert bytes(source.read(5, 399).data) == FRAMES[399]
    memory.rm("/bucket", recursive=True)


def test_a_failed_offload_is_skipped_if_there_is_another(tmp_path: Path) -> None:
    data, index = offloaded(FRAMES)
    put(tmp_path, f"{UUID}-ledger-12", (data[:-100], index))
    put(tmp_path, f"{OTHER_UUID}-ledger-12", (data, index))
    with open_entries([f"offload:{tmp_path}"]) as source:
        assert [bytes(entry.data) for entry in source.read_many(12)] == FRAMES
    (tmp_path / f"{OTHER_UUID}-ledger-12-index").unlink()
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="data object of"):
        source.read(12, 0)


def test_a_ledger_that_claims_too_many_entries_is_an_error(tmp_path: Path) -> None:
    data, rows = blocks(FRAMES, 4096)
    put(tmp_path, f"{UUID}-ledger-12", (data, index(rows, len(data), 2**62)))
    with open_entries([f"offload:{tmp_path}"]) as source, pytest.raises(DecodeError, match="metadata claims"):
        list(source.read_many(12))


def test_urls_without_offloaded_ledgers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file or folder"):
        open_entries([f"offload:{tmp_path}/nowhere"])
    with pytest.raises(NotFoundError, match="no offloaded ledger"):
        open_entries([f"offload:{tmp_path}"])
    with pytest.raises(UsageError, match="offload:URL"):
        open_entries(["offload:"])
    with pytest.raises(UsageError, match="nosuch"):
        open_entries(["offload:nosuch://bucket"])


def test_data_that_cannot_be_fetched_is_unreachable(tmp_path: Path) -> None:
    put(tmp_path, f"{UUID}-ledger-12", offloaded(FRAMES))
    with open_entries([f"offload:{tmp_path}"]) as source:
        source.last_entry(12)
        (tmp_path / f"{UUID}-ledger-12").write_bytes(b"")
        with pytest.raises(UnreachableError, match="expected"):
            source.read(12, 5)


@pytest.mark.parametrize("form", [0, 1])
def test_a_truncated_or_changed_index_is_a_decode_error(form: int) -> None:
    index = (offloaded(FRAMES) if form == 0 else segments({3: FRAMES[:150], 4: FRAMES}))[1]
    decode_offload_index(index)
    for size in range(len(index)):
        with pytest.raises(DecodeError):
            decode_offload_index(index[:size])
    with pytest.raises(DecodeError):
        decode_offload_index(index + b"\0")
    chance = random.Random(form)
    for _ in range(2000):
        changed = bytearray(index)
        at = chance.randrange(len(changed))
        changed[at : at + 4] = chance.choice(
            [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0"]
        )
        try:
            decode_offload_index(bytes(changed[: len(index)]))
        except DecodeError:
            continue


def test_a_changed_data_object_yields_entries_or_a_decode_error(tmp_path: Path) -> None:
    data, index = offloaded(FRAMES)
    chance = random.Random(7)
    for _ in range(150):
        changed = bytearray(data)
        at = chance.randrange(len(changed) - 4)
        changed[at : at + 4] = chance.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
        put(tmp_path, f"{UUID}-ledger-12", (bytes(changed), index))
        # Any other exception is a bug and fails the test.
        with open_entries([f"offload:{tmp_path}"]) as source, suppress(DecodeError):
            assert all(entry.entry_id >= 0 for entry in source.read_many(12))
