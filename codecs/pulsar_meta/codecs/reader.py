"""Bounds-checked reading of a buffer from front to back."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_U32: Final = Struct(">I")


def byte_view(data: Buffer) -> memoryview:
    """Return `data` as a view of unsigned bytes. Raises DecodeError if it is not one-dimensional bytes."""
    view = memoryview(data)
    if view.format == "B" and view.contiguous and view.ndim == 1:
        return view
    raise DecodeError("expected a flat run of bytes")


class Reader:
    """Reads numbers and byte strings in order; `at` is the offset of the next one.

    If too few bytes are left, its methods raise a DecodeError with the offset and the name of the expected
    part (`what`, with its article).
    """

    __slots__ = ("at", "view")

    # The error for missing bytes, which subclasses override.
    short: type[DecodeError] = DecodeError

    def __init__(self, data: Buffer, at: int = 0) -> None:
        """Start reading `data` at offset `at`."""
        self.view, self.at = byte_view(data), at

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return max(0, len(self.view) - self.at)

    def numbers(self, shape: Struct, what: str) -> tuple[Any, ...]:
        """Return the next numbers, unpacked with `shape`."""
        at = self.at
        if at + shape.size > len(self.view):
            self.expect(shape.size, what)
        self.at = at + shape.size
        return shape.unpack_from(self.view, at)

    def expect(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes, a size that the format fixes."""
        at, end = self.at, self.at + size
        if end > len(self.view):
            raise self.short(f"expected {size} bytes of {what}, found {self.left}", offset=at)
        self.at = end
        return self.view[at:end]

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes, a size that was read from the data."""
        at, end = self.at, self.at + size
        if size < 0:
            raise DecodeError(f"{what} claims {size} bytes", offset=at)
        if end > len(self.view):
            raise self.short(f"{what} claims {size} bytes, {self.left} are left", offset=at)
        self.at = end
        return self.view[at:end]

    def sized(self, what: str) -> memoryview:
        """Return the next bytes, which are prefixed with their size (an unsigned 32-bit number)."""
        # Inlined because every message of a batch comes through here.
        view, at = self.view, self.at
        start = at + _U32.size
        if start > len(view):
            self.expect(_U32.size, f"the size of {what}")
        size = _U32.unpack_from(view, at)[0]
        if start + size > len(view):
            raise self.short(f"{what} claims {size} bytes, {len(view) - start} are left", offset=at)
        self.at = start + size
        return view[start : self.at]

    def rest(self) -> memoryview:
        """Return all unread bytes without advancing."""
        return self.view[self.at :]
