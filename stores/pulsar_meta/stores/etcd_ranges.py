"""How far the questions of a scan of etcd reach.

etcd counts the keys of a whole range, however few of them it is to send: were each question to reach to the
end, their time would grow with the square of the store. So a range ends behind a prefix of its keys, a longer
one where too many were counted, a shorter one where all were read. Where it ends is a matter of speed only:
each range begins where the one before ended. Source: etcd server/storage/mvcc/index.go (Revisions).
"""

from __future__ import annotations

from typing import Final

# As many keys are counted in a fraction of the time that a page of them takes.
COUNTED: Final = 1 << 15
# Behind every key that begins alike: no byte of UTF-8 is as large.
LAST: Final = b"\xff"


class Reach:
    """The end of the next range of a scan, excluded."""

    def __init__(self, below: bytes, end: bytes) -> None:
        """All keys to come begin with `below`; `end` is the end of the scan."""
        self.end = self.last = end
        self._below = below
        self._prefix = below

    def narrow(self, count: int, first: bytes, last: bytes) -> None:
        """So many keys were in the range, and there are more behind this page of them."""
        if count > COUNTED:
            self._end_behind(last[: _alike(first, last) + 1], last)

    def widen(self) -> None:
        """All keys of the range were read. A byte less: an empty range costs little, one too wide much."""
        self._end_behind(self._prefix[:-1], self.end)

    def _end_behind(self, prefix: bytes, read: bytes) -> None:
        self._prefix = prefix if len(prefix) > len(self._below) else self._below
        self.end = self.last if self._prefix == self._below else prefix + LAST
        if self.end <= read:
            self.end = self.last


def _alike(first: bytes, last: bytes) -> int:
    """Return how many bytes both begin with."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(last)))
