"""Fixtures that the tests of `decode` and `encode` share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from tests.cli.program import pulsar_meta_here
from tests.cli.values import LEDGER, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs the program in the test's directory."""

    def call(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return pulsar_meta_here(*arguments, stdin=stdin, folder=tmp_path)

    return call


@pytest.fixture
def ledger_file(tmp_path: Path) -> Path:
    """Return a file that contains a ledger list in an envelope."""
    file = tmp_path / "ledger.bin"
    file.write_bytes(wrap_envelope(LEDGER, "zstd"))
    return file
