"""Drop duplicates from a stream of strings."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

HASH_BYTES: Final = 12


class Dedup:
    """Recognises strings that were seen before, using 12 bytes of memory per string."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def is_new(self, text: str) -> bool:
        """Add a string. Returns True the first time it is seen."""
        encoded, before = text.encode("utf-8", "surrogatepass"), len(self._hashes)
        self._hashes.add(blake2b(encoded, digest_size=HASH_BYTES).digest())
        return len(self._hashes) > before
