"""Read zstd files: as a stream that notices a truncated file, or with random access over sized frames.

Source: RFC 8878, 3.1 (frames, block headers).
"""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, BinaryIO, Final

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.compression import zstd_header
from pulsar_meta.codecs.errors import DecodeError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# How many uncompressed frames to keep in memory.
AT_HAND: Final = 4
_LONGEST_HEADER: Final = 18
_RLE: Final = 1


class ZstdFrames(io.RawIOBase):
    """The uncompressed bytes of the first `end` bytes of `file`, with random access."""

    def __init__(self, file: BinaryIO, end: int, largest: int) -> None:
        """Locate the frames.

        Raises DecodeError if a frame doesn't record its uncompressed size, or has more than `largest` bytes.
        """
        self._file, self._at = file, 0
        # For each frame, its range in the file, and its size and its offset in the uncompressed data.
        self._places, self._starts, self.size = list[tuple[int, int, int]](), list[int](), 0
        self._ready = OrderedDict[int, bytes]()
        at = 0
        while at < end:
            header = zstd_header(self._pread(at, _LONGEST_HEADER))
            if header.content_size is None or header.content_size > largest:
                raise DecodeError("a frame is too large, or does not record its size", offset=at)
            after = self._end_of(at + header.size) + 4 * header.has_checksum
            self._places.append((at, after, header.content_size))
            self._starts.append(self.size)
            self.size += header.content_size
            at = after

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in the uncompressed data, and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from one frame, and return the number of bytes, which is 0 at the end."""
        if self._at >= self.size:
            return 0
        number = bisect_right(self._starts, self._at) - 1
        data, start = self._frame(number), self._at - self._starts[number]
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(data) - start)
        target[:size] = memoryview(data)[start : start + size]
        self._at += size
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _frame(self, number: int) -> bytes:
        data = self._ready.get(number)
        if data is None:
            (at, after, size), library = self._places[number], backends.zstd()
            try:
                data = self._ready[number] = library.decompress(self._pread(at, after - at), size)
            except library.error as error:
                raise DecodeError(f"not zstd: {error}", offset=at) from error
            if len(self._ready) > AT_HAND:
                self._ready.popitem(last=False)
        self._ready.move_to_end(number)
        return data

    def _end_of(self, at: int) -> int:
        """Return the end of the blocks that begin at an offset."""
        last = False
        while not last:
            head = self._pread(at, 3)
            if len(head) < 3:
                raise DecodeError("the zstd file ends in the middle of a frame", offset=at)
            block = int.from_bytes(head, "little")
            last = bool(block & 1)
            at += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
        return at

    def _pread(self, at: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, at)


# A block of four bytes can expand to 128 KiB, so small pieces limit how much is uncompressed at once.
PIECE = 1 << 10


class ZstdStream(io.RawIOBase):
    """The uncompressed bytes of `file`. Reading raises DecodeError for invalid or truncated data."""

    def __init__(self, file: BinaryIO, *, partial: bool = False) -> None:
        """Read from the current position of `file`. With `partial`, a truncated frame is not an error."""
        self._file, self._partial = file, partial
        self._library = backends.zstd()
        self._frame = self._library.stream()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer`, and return the number of bytes, which is 0 at the end."""
        while not self._ready:
            piece = self._file.read(PIECE)
            if not piece:
                if not self._partial:
                    self._check_end()
                return 0
            self._ready = memoryview(self._unpack(piece))
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        # An empty slice would keep the complete buffer alive.
        target[:size], self._ready = self._ready[:size], self._ready[size:] or memoryview(b"")
        return size

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def _unpack(self, piece: bytes) -> bytes:
        out = b""
        while piece:
            if self._frame.eof:
                self._frame = self._library.stream()
            try:
                out += self._frame.decompress(piece)
            except self._library.error as error:
                raise DecodeError(f"not zstd: {error}", offset=self._file.tell() - len(piece)) from error
            piece = self._frame.unused_data if self._frame.eof else b""
        return out

    def _check_end(self) -> None:
        if not self._frame.eof:
            raise DecodeError("the zstd file ends in the middle of a frame", offset=self._file.tell())
