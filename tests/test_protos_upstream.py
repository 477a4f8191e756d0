"""The script that compares our .proto files with upstream's names everything that we don't know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ROOT / "proto" / "pulsar_meta" / "proto" / "MLDataFormats.proto"
UPSTREAM = Path("managed-ledger/src/main/proto/MLDataFormats.proto")


def compared(folder: Path, text: str) -> tuple[int, list[str]]:
    """Run the script on a folder that has one file of upstream; return its exit code and lines."""
    file = folder / "pulsar" / UPSTREAM
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    script = ROOT / "scripts" / "protos_upstream.py"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    code, lines = compared(tmp_path, OURS.read_text())
    assert code == 3
    assert any("MLDataFormats.proto: 16 messages compared, 0 unknown" in line for line in lines)
    assert any(line.endswith("pulsar-common/src/main/proto/PulsarApi.proto") for line in lines)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "message LongProperty {",
            "message LongProperty {\n  optional bytes added = 77;",
            "MLDataFormats.proto: LongProperty: field added = 77",
        ),
        (
            "enum CompressionType {",
            "enum CompressionType {\n  BROTLI = 99;",
            "MLDataFormats.proto: CompressionType: value BROTLI = 99",
        ),
        (
            "required int64 value = 2;",
            "required uint64 value = 2;",
            "MLDataFormats.proto: LongProperty: field value = 2 is uint64, ours is int64",
        ),
    ],
)
def test_unknown_parts_are_printed(tmp_path: Path, old: str, new: str, line: str) -> None:
    text = OURS.read_text()
    assert old in text
    code, lines = compared(tmp_path, text.replace(old, new, 1))
    assert code == 1
    assert line in lines
