"""Paths that came before, so that each value is looked at once."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MARK_BYTES: Final = 12


class TakenPaths:
    """Paths that were taken: a few bytes of each are kept, since there may be as many as a store has."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def take(self, path: str) -> bool:
        """Take a path; return whether it is new."""
        mark, before = blake2b(path.encode(), digest_size=MARK_BYTES).digest(), len(self._marks)
        self._marks.add(mark)
        return len(self._marks) > before
