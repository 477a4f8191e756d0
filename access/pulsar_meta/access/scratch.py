"""Temporary directories: what a killed process leaves, the next one removes.

Each is locked (flock) as long as its process lives, wherever that runs; the lock goes with the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "pulsar-meta-scratch-"


class ScratchDirectory:
    """A new directory of our own below the temporary one (TMPDIR), until `cleanup`."""

    def __init__(self) -> None:
        """Make it, after removing those of processes that are no more."""
        self._lock: int | None = None
        parent = Path(tempfile.gettempdir())
        remove_abandoned(parent)
        # It has another name until it is locked, or somebody could think it abandoned.
        unlocked = Path(tempfile.mkdtemp(prefix=".pulsar-meta-", dir=parent))
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = unlocked.rename(parent / (PREFIX + unlocked.name.rpartition("-")[2]))

    def cleanup(self) -> None:
        """Remove it with everything in it. Safe to call twice."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def without_scratch(text: str) -> str:
    """Return `text` with files in such a directory by their names alone: each process has another one."""
    return re.sub(re.escape(str(Path(tempfile.gettempdir()) / PREFIX)) + r"[^/\s]*/?", "", text)


def remove_abandoned(parent: Path) -> None:
    """Remove the directories that killed processes of this user left in `parent`."""
    with suppress(OSError):
        for left in parent.glob(PREFIX + "*"):
            with suppress(OSError):
                _remove_unlocked(left)


def _remove_unlocked(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(number).st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(number)
