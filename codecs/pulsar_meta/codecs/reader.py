"""The bytes that decoders are given, read from the front and never past their end."""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from pulsar_meta.codecs.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_U32: Final = Struct(">I")


def byte_view(data: Buffer) -> memoryview:
    """Return `data` as a view of unsigned bytes; DecodeError where it is not one flat run of them."""
    view = memoryview(data)
    if view.format == "B" and view.contiguous and view.ndim == 1:
        return view
    raise DecodeError("expected a flat run of bytes")


class Reader:
    """Reads numbers and pieces one after the other; `at` is where the next one begins, in bytes.

    Where too few bytes are left, or a size claims more than are left, it raises a DecodeError that names
    what was expected (`what`, with its article) and the offset.
    """

    __slots__ = ("at", "view")

    # What is raised where bytes are missing.
    short: type[DecodeError] = DecodeError

    def __init__(self, data: Buffer, at: int = 0) -> None:
        """Read `data` from `at` on."""
        self.view, self.at = byte_view(data), at

    @property
    def left(self) -> int:
        """How many bytes there are from here to the end."""
        return max(0, len(self.view) - self.at)

    def numbers(self, shape: Struct, what: str) -> tuple[Any, ...]:
        """Return the next numbers, laid out as `shape`."""
        at = self.at
        if at + shape.size > len(self.view):
            self.expect(shape.size, what)
        self.at = at + shape.size
        return shape.unpack_from(self.view, at)

    def expect(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes, a size that the format has."""
        at, end = self.at, self.at + size
        if end > len(self.view):
            raise self.short(f"expected {size} bytes of {what}, found {self.left}", offset=at)
        self.at = end
        return self.view[at:end]

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes, a size that the bytes before them claim."""
        at, end = self.at, self.at + size
        if size < 0:
            raise DecodeError(f"{what} claims {size} bytes", offset=at)
        if end > len(self.view):
            raise self.short(f"{what} claims {size} bytes, {self.left} are left", offset=at)
        self.at = end
        return self.view[at:end]

    def sized(self, what: str) -> memoryview:
        """Return the bytes that follow their own size, an unsigned number of 32 bits."""
        # Every message of a batch comes through here: no call that is not needed.
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
        """Return all bytes that are left."""
        return self.view[self.at :]
