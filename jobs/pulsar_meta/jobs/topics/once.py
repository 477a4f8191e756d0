"""What comes once: paths, or lines that are said."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MARK_BYTES: Final = 12


class Once:
    """Texts that came before: a few bytes of each are kept, since there may be many."""

    def __init__(self) -> None:
        self._marks: set[bytes] = set()

    def is_new(self, text: str) -> bool:
        """Take a text; return whether it did not come before."""
        encoded, before = text.encode("utf-8", "surrogatepass"), len(self._marks)
        self._marks.add(blake2b(encoded, digest_size=MARK_BYTES).digest())
        return len(self._marks) > before
