"""A sequence of zstd frames reads like one decompressed file, from any position."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import zstandard

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.stores.snapshot_file import ZstdFrames

pytestmark = pytest.mark.usefixtures("backend")
# Repeated bytes, incompressible bytes, and text of many blocks.
PIECES = (bytes(300_000), os.urandom(1000), b"some text " * 50_000, b"x", os.urandom(200_000))


def opened(file: Path, *frames: bytes, largest: int = 1 << 20) -> ZstdFrames:
    file.write_bytes(b"".join(frames) + b"what follows")
    return ZstdFrames(file.open("rb"), sum(map(len, frames)), largest)


@pytest.mark.parametrize("checksum", [False, True])
def test_any_part_can_be_read(tmp_path: Path, checksum: bool) -> None:
    compress = zstandard.ZstdCompressor(write_checksum=checksum).compress
    content = b"".join(PIECES)
    with io.BufferedReader(opened(tmp_path / "file", *map(compress, PIECES))) as file:
        assert file.read() == content
        for at in (0, 299_999, 300_000, 301_000, 700_000, len(content) - 1, len(content), len(content) + 5):
            assert file.seek(at) == at
            assert file.read(2000) == content[at : at + 2000]


def test_frames_without_a_size_and_too_large_ones_are_refused(tmp_path: Path) -> None:
    compressor = zstandard.ZstdCompressor().compressobj()
    frame = compressor.compress(b"text") + compressor.flush()
    with pytest.raises(DecodeError, match="does not record its size"):
        opened(tmp_path / "file", frame)
    with pytest.raises(DecodeError, match="too large"):
        opened(tmp_path / "file", zstandard.compress(bytes(2000)), largest=1999)


def test_garbage_and_truncated_frames_are_refused(tmp_path: Path) -> None:
    frame_bytes = zstandard.compress(os.urandom(1000))
    for frame in (b"not zstd at all", frame_bytes[:500]):
        with pytest.raises(DecodeError):
            opened(tmp_path / "file", frame).read()
