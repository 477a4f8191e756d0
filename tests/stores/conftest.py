"""Shared by the tests of several stores."""

from __future__ import annotations

from pathlib import Path


def writable_copy(database: Path, target: Path) -> Path:
    """Copy a database, whose files may be read-only, to a directory that a test may write to."""
    target.mkdir()
    for file in database.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target
