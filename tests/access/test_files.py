"""Reading small files, and removing the temporary directories that killed processes leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from pulsar_meta.access.files import PREFIX, ScratchDirectory, read_any, read_regular
from pulsar_meta.access.urls import read_secret
from pulsar_meta.codecs.errors import DecodeError, UsageError


def test_only_ordinary_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    for limit in (0, 4):
        with pytest.raises(DecodeError, match=f"more than {limit} bytes"):
            read_regular(tmp_path / "file", limit)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DecodeError, match="not an ordinary file"):
            read_regular(path, 5)
    with pytest.raises(DecodeError, match="more than 5 bytes"):
        read_any(Path("/dev/zero"), 5)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 5)


def test_a_secret_file_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match="plausible size"):
        read_secret("file:/dev/zero")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


CHILD = (
    "import sys, time; from pulsar_meta.access.files import ScratchDirectory\n"
    "made = ScratchDirectory(); (made.path / 'file').write_text('x')\n"
    "print('made', flush=True); time.sleep(60)"
)


def test_the_next_start_removes_the_directory_of_a_killed_process(temporary: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"made\n"
    own = ScratchDirectory()
    # Directories of running processes stay, our own included.
    another = ScratchDirectory()
    assert len(list(temporary.glob(PREFIX + "*"))) == 3
    another.cleanup()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 5
    while len(list(temporary.iterdir())) > 1 and time.monotonic() < deadline:
        ScratchDirectory().cleanup()
    assert list(temporary.iterdir()) == [own.path]
    own.cleanup()
    own.cleanup()
    assert list(temporary.iterdir()) == []


def test_links_and_files_with_the_prefix_are_not_removed(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "file").write_text("x")
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}file").write_text("x")
    ScratchDirectory().cleanup()
    assert (elsewhere / "file").exists()
    assert {path.name for path in temporary.iterdir()} == {f"{PREFIX}link", f"{PREFIX}file"}
