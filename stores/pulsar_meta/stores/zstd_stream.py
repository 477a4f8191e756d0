"""A zstd file as a plain byte stream, which says when the file ends too early, unless a part is enough."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from pulsar_meta.codecs.errors import DecodeError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x28\xb5\x2f\xfd"
# A block of four bytes can stand for 128 KiB: small pieces bound what one of them can turn into.
PIECE = 1 << 10


class ZstdStream(io.RawIOBase):
    """The uncompressed bytes of `file`, frame after frame; DecodeError for bad or cut-off input."""

    def __init__(self, file: BinaryIO, *, partial: bool = False) -> None:
        """Take over `file`, which stands at the first frame; `partial`: a frame that is cut off just ends."""
        import zstandard

        self._file, self._partial = file, partial
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame = self._decompressor.decompressobj()
        self._error = zstandard.ZstdError
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` and return how many bytes went in; 0 at the end."""
        while not self._ready:
            piece = self._file.read(PIECE)
            if not piece:
                if not self._partial:
                    self._check_end()
                return 0
            self._ready = memoryview(self._unpack(piece))
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        # An empty view would keep what it is a part of.
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
                self._frame = self._decompressor.decompressobj()
            try:
                out += self._frame.decompress(piece)
            except self._error as error:
                raise DecodeError(f"not zstd: {error}", offset=self._file.tell() - len(piece)) from error
            piece = self._frame.unused_data if self._frame.eof else b""
        return out

    def _check_end(self) -> None:
        if not self._frame.eof:
            raise DecodeError("the zstd file ends in the middle of a frame", offset=self._file.tell())
