"""Values as ZooKeeper writes them to files: big-endian numbers, lengths before strings and buffers.

Source: apache/zookeeper zookeeper-jute, BinaryInputArchive.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.reader import Buffer, byte_view

INT: Final = Struct(">i")
LONG: Final = Struct(">q")
# No list that a snapshot or a transaction holds is longer: it bounds what a damaged length can ask for.
MAX_ITEMS: Final = 100_000_000


class Jute:
    """A cursor over bytes; every method takes the next value. DecodeError where the bytes end before it."""

    __slots__ = ("at", "view")

    def __init__(self, data: Buffer, at: int = 0) -> None:
        """Begin at offset `at` of `data`."""
        self.view = byte_view(data)
        self.at = at

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.view) - self.at

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        """Take the values of a fixed layout."""
        try:
            found = layout.unpack_from(self.view, self.at)
        except error:
            raise self._short(layout.size) from None
        self.at += layout.size
        return found

    def int32(self) -> int:
        """Take a signed number of 4 bytes."""
        return int(self.unpack(INT)[0])

    def int64(self) -> int:
        """Take a signed number of 8 bytes."""
        return int(self.unpack(LONG)[0])

    def flag(self) -> bool:
        """Take a byte that is 0 or not."""
        return self.take(1)[0] != 0

    def take(self, size: int) -> memoryview:
        """Take `size` bytes as a view."""
        if not 0 <= size <= self.left:
            raise self._short(size)
        self.at += size
        return self.view[self.at - size : self.at]

    def buffer(self) -> memoryview | None:
        """Take bytes behind their length, None for the length -1."""
        size = self.int32()
        return None if size == -1 else self.take(size)

    def text(self) -> str:
        """Take a string; the null string, which only damage makes, is a DecodeError."""
        start, data = self.at, self.buffer()
        try:
            return str(data or b"", "utf-8")
        except UnicodeDecodeError:
            raise DecodeError("expected UTF-8 text", offset=start) from None

    def count(self) -> int:
        """Take the length of a list, 0 for the null list."""
        start, number = self.at, self.int32()
        if not -1 <= number <= min(MAX_ITEMS, self.left):
            raise DecodeError(f"expected the length of a list, found {number}", offset=start)
        return max(number, 0)

    def _short(self, size: int) -> DecodeError:
        return DecodeError(f"expected {size} bytes, found {self.left}", offset=self.at)
