"""A mapped file that is truncated while it is read raises an error and does not kill the process."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from pulsar_meta.codecs.errors import DecodeError, UnreachableError
from pulsar_meta.codecs.frames.bookie_entry import encode_bookie_entry
from pulsar_meta.entries.data_files import MappedFile
from pulsar_meta.entries.sources import open_entries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the SIGBUS handler exists only on Linux")

PAGE = mmap.PAGESIZE


def test_a_file_that_is_cut_off_reads_as_zeros_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\1" * (20 * PAGE))
    mapped, other = MappedFile(path), MappedFile(path)
    os.truncate(path, 10 * PAGE)
    assert sum(mapped.view) == 10 * PAGE
    assert zlib.crc32(mapped.view[: 10 * PAGE]) == zlib.crc32(b"\1" * (10 * PAGE))
    with pytest.raises(UnreachableError, match="cannot read a part of the file; it was truncated") as caught:
        mapped.check()
    assert caught.value.source == str(path)
    other.check()
    del mapped
    MappedFile(path).check()


def test_missing_empty_and_special_files(tmp_path: Path) -> None:
    with pytest.raises(DecodeError, match="no longer exists"):
        MappedFile(tmp_path / "none")
    (tmp_path / "empty").write_bytes(b"")
    assert bytes(MappedFile(tmp_path / "empty").view) == b""
    with pytest.raises(DecodeError, match="not an ordinary file"):
        MappedFile(Path("/dev/zero"))


def test_a_bus_error_in_a_foreign_mapping_kills_the_process(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\1" * (2 * PAGE))
    code = (
        "import mmap, os, sys\nfrom pathlib import Path\n"
        "from pulsar_meta.entries.data_files import MappedFile\n"
        f"path = Path({str(path)!r}); MappedFile(path); file = path.open('rb')\n"
        "theirs = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ); os.truncate(path, 1); theirs[-1]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGBUS


def entry_log(path: Path, count: int) -> None:
    """Write an entry log of ledger 5 whose payloads are one page each."""
    with path.open("wb") as out:
        out.write(b"BKLO" + bytes(1020))
        for entry_id in range(count):
            entry = encode_bookie_entry(5, entry_id, entry_id - 1, 0, bytes(PAGE))
            out.write(struct.pack(">i", len(entry)) + entry)


@pytest.mark.parametrize("size", [PAGE, 3 * PAGE, 1500])
def test_truncating_an_entry_log_during_a_read_raises_an_error(tmp_path: Path, size: int) -> None:
    (tmp_path / "current").mkdir()
    log = tmp_path / "current" / "0.log"
    entry_log(log, 20)
    with open_entries([f"bookie-disk:{tmp_path}?index=scan"]) as source:
        assert source.last_entry(5) == 19
        os.truncate(log, size)
        with pytest.raises(UnreachableError) as caught:
            list(source.read_many(5))
        assert (caught.value.exit_code, caught.value.source) == (6, str(log))


def test_truncating_a_frames_file_during_a_read_raises_an_error(tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.write_bytes((struct.pack(">I", PAGE) + bytes(PAGE)) * 20)
    with open_entries([f"frames:{frames}"]) as source:
        os.truncate(frames, PAGE)
        with pytest.raises(UnreachableError):
            list(source.read_many(0))
