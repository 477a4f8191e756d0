"""zstd frames as one file: the bytes are those of the whole, wherever one begins to read."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import zstandard

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.stores.zstd_frames import ZstdFrames

# Blocks of one byte over and over, blocks that could not be made smaller, and many blocks.
PIECES = (bytes(300_000), os.urandom(1000), b"some text " * 50_000, b"x", os.urandom(200_000))


def opened(file: Path, *frames: bytes, largest: int = 1 << 20) -> ZstdFrames:
    file.write_bytes(b"".join(frames) + b"what follows")
    return ZstdFrames(file.open("rb"), sum(map(len, frames)), largest)


@pytest.mark.parametrize("checksum", [False, True])
def test_any_part(tmp_path: Path, checksum: bool) -> None:
    pack = zstandard.ZstdCompressor(write_checksum=checksum).compress
    whole = b"".join(PIECES)
    with io.BufferedReader(opened(tmp_path / "file", *map(pack, PIECES))) as file:
        assert file.read() == whole
        for at in (0, 299_999, 300_000, 301_000, 700_000, len(whole) - 1, len(whole), len(whole) + 5):
            assert file.seek(at) == at
            assert file.read(2000) == whole[at : at + 2000]


def test_frames_that_do_not_say_their_size(tmp_path: Path) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    frame = packer.compress(b"text") + packer.flush()
    with pytest.raises(DecodeError, match="does not say its size"):
        opened(tmp_path / "file", frame)
    with pytest.raises(DecodeError, match="too large"):
        opened(tmp_path / "file", zstandard.compress(bytes(2000)), largest=1999)


def test_what_is_no_frame(tmp_path: Path) -> None:
    whole = zstandard.compress(os.urandom(1000))
    for frame in (b"no zstd, whatever it is", whole[:500]):
        with pytest.raises(DecodeError):
            opened(tmp_path / "file", frame).read()
