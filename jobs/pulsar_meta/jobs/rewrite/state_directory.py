"""Where undo files lie unless told otherwise: the XDG state directory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path


def undo_directory() -> Path:
    """Return the directory of undo files (not made yet). Source: XDG Base Directory Specification 0.8."""
    told = os.environ.get("XDG_STATE_HOME", "")
    base = Path(told) if os.path.isabs(told) else Path.home() / ".local" / "state"
    return base / "pulsar-meta" / "undo"


def new_undo_path(command: str) -> Path:
    """Return the name of an undo file that no other run has."""
    now = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9))
    return undo_directory() / f"{stamp}.{now % 10**9:09d}-{command}-{os.getpid()}.ndjson"


def undo_paths() -> Iterator[Path]:
    """Yield the undo files in the state directory, the newest first."""
    directory = undo_directory()
    if directory.is_dir():
        yield from sorted(directory.glob("*.ndjson"), reverse=True)
