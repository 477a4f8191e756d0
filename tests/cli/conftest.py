"""What the tests of `decode` and `encode` share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from tests.cli.values import LEDGER, PROGRAM, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the program in a directory of the test."""

    def call(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [PROGRAM, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            cwd=tmp_path,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    """Return a file with a ledger list in an envelope."""
    file = tmp_path / "ledger.bin"
    file.write_bytes(wrap_envelope(LEDGER, "zstd"))
    return file
