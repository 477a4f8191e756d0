"""Files of frames."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, NotFoundError, UsageError
from pulsar_meta.codecs.frames.frame import encode_frame
from pulsar_meta.entries.base import EntrySource
from pulsar_meta.entries.sources import open_entries
from pulsar_meta.proto.PulsarApi_pb2 import MessageMetadata
from tests.cli.program import pulsar_meta_here
from tests.contracts.entry_source import EntrySourceContract, Held

FRAMES = (b"one", b"", b"three" * 1000)


def write(path: Path, positions: list[tuple[int, int]] | None = None) -> None:
    path.write_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES))
    if positions is not None:
        lines = [json.dumps({"ledger": ledger, "entry": entry}) for ledger, entry in positions]
        path.with_name(path.name + ".idx").write_text("\n".join(lines))


class TestPositions(EntrySourceContract):
    """Positions are in FILE.idx, in any order."""

    @pytest.fixture
    def held(self) -> Held:
        return {7: [0, 4], 2**40: [2]}

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[EntrySource]:
        write(tmp_path / "some.frames", [(7, 4), (2**40, 2), (7, 0)])
        with open_entries([f"frames:{tmp_path / 'some.frames'}"]) as source:
            yield source

    def test_each_frame_is_where_the_index_says(self, source: EntrySource) -> None:
        entries = [source.read(*position) for position in ((7, 4), (2**40, 2), (7, 0))]
        assert [bytes(entry.data) for entry in entries] == list(FRAMES)
        assert not any(entry.bookie for entry in entries)


class TestCounted(EntrySourceContract):
    """If FILE.idx is missing, frames are numbered from 0 in ledger 0."""

    @pytest.fixture
    def held(self) -> Held:
        return {0: [0, 1, 2]}

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[EntrySource]:
        write(tmp_path / "some.frames")
        with open_entries([f"frames:{tmp_path / 'some.frames'}"]) as source:
            yield source


def test_a_file_truncated_at_any_length_keeps_its_complete_frames(tmp_path: Path) -> None:
    path = tmp_path / "some.frames"
    write(path, [(7, 4), (7, 5), (7, 6)])
    content = path.read_bytes()
    for length in range(30):
        path.write_bytes(content[:length])
        complete = (length >= 7) + (length >= 11)
        if not complete and length:
            with pytest.raises(DecodeError, match="claims"):
                open_entries([f"frames:{path}"])
            continue
        with open_entries([f"frames:{path}"]) as source:
            assert [entry.entry_id for entry in source.read_many(7)] == [4, 5, 6][:complete]
            assert len(source.faults) == 1


def test_a_truncated_file_is_shown_up_to_the_cut_and_the_command_fails(tmp_path: Path) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    frame = encode_frame(metadata, b"payload")
    file = tmp_path / "frames"
    file.write_bytes((len(frame).to_bytes(4, "big") + frame) * 3 + len(frame).to_bytes(4, "big") + frame[:9])
    done = pulsar_meta_here("dump-entries", "--entries", f"frames:{file}", "-o", "ndjson")
    assert (done.returncode, done.stdout.count(b"\n")) == (4, 3)
    assert b"a frame claims" in done.stderr


@pytest.mark.parametrize(
    "index",
    ["", '{"ledger": 1, "entry": 0}', "no json\n" * 3, '{"ledger": -1, "entry": 0}\n' * 3, "[]\n" * 3],
)
def test_wrong_positions_are_an_error(tmp_path: Path, index: str) -> None:
    path = tmp_path / "some.frames"
    write(path)
    path.with_name("some.frames.idx").write_text(index)
    with pytest.raises(DecodeError):
        open_entries([f"frames:{path}"])


def test_missing_files_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_entries([f"frames:{tmp_path / 'none'}"])
    with pytest.raises(UsageError):
        open_entries(["frames:"])


def test_two_incomplete_files_of_frames_are_no_fault(tmp_path: Path) -> None:
    """Each file has only some entries of the ledger, and neither is reported as incomplete."""
    sources = []
    for first in (0, 10):
        metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
        frames = [encode_frame(metadata, b"x%d" % at) for at in range(5)]
        file = tmp_path / f"frames{first}"
        file.write_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        index = tmp_path / f"frames{first}.idx"
        index.write_text("".join(f'{{"ledger": 7, "entry": {first + at}}}\n' for at in range(5)))
        sources += ["--entries", f"frames:{file}"]
    done = pulsar_meta_here("dump-entries", "7", *sources, "-o", "ndjson")
    assert (done.returncode, done.stdout.count(b"\n"), b"no source has" in done.stderr) == (0, 10, False)
