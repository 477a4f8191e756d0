"""Choose the libraries for LZ4, Zstandard and CRC-32C (Castagnoli).

If lz4, zstandard or google-crc32c is not installed, these modules take its place: cramjam, `compression.zstd`
(backports.zstd before Python 3.14), and fastcrc. They are smaller, and all of them have wheels for musl.
Snappy needs no substitute, because python-snappy is written in Python and uses cramjam.

Every function imports its library when it is first called, because each import takes milliseconds.

Source: RFC 3720 B.4 (the CRC-32C of "123456789" is 0xE3069283).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol

from pulsar_meta.codecs.reader import Buffer


class ZstdStream(Protocol):
    """Decompresses one frame piece by piece."""

    @property
    def eof(self) -> bool:
        """True after the end of the frame."""

    @property
    def unused_data(self) -> bytes:
        """The bytes that follow the frame."""

    def decompress(self, data: bytes, /) -> bytes:
        """Return the bytes that `data` adds. Raises the library's error if they are corrupt."""


class Lz4(NamedTuple):
    """Raw LZ4 blocks."""

    compress: Callable[[bytes], bytes]
    # Takes a block and the largest size of its contents.
    decompress: Callable[[bytes, int], bytes]
    error: type[Exception]


class Zstd(NamedTuple):
    """Zstandard frames."""

    # Takes a level and whether frames have checksums. Frames record the size of their contents.
    compressor: Callable[[int, bool], Callable[[bytes], bytes]]
    # Takes one complete frame and the largest size of its contents.
    decompress: Callable[[bytes, int], bytes]
    stream: Callable[[], ZstdStream]
    error: type[Exception]


class Crc32c(NamedTuple):
    """CRC-32C. `value` accepts any contiguous buffer except a memoryview."""

    value: Callable[[Any], int]
    extend: Callable[[int, bytes], int]


@cache
def has_arrow() -> bool:
    """Return True if PyArrow is installed. Without it, many values are converted one at a time."""
    return find_spec("pyarrow") is not None


@cache
def lz4() -> Lz4:
    """Return the LZ4 library."""
    try:
        import lz4.block as library
    except ImportError:
        return _cramjam()
    return Lz4(
        lambda raw: bytes(library.compress(raw, store_size=False)),
        lambda block, size: bytes(library.decompress(block, uncompressed_size=size)),
        library.LZ4BlockError,
    )


def _cramjam() -> Lz4:
    import cramjam

    def decompress(block: bytes, size: int) -> bytes:
        # `decompress_block` would fill the rest of `size` bytes with zeros.
        raw = bytearray(size)
        return bytes(raw[: cramjam.lz4.decompress_block_into(block, raw)])

    return Lz4(
        lambda raw: bytes(cramjam.lz4.compress_block(raw, store_size=False)),
        decompress,
        cramjam.DecompressionError,
    )


@cache
def zstd() -> Zstd:
    """Return the Zstandard library."""
    try:
        import zstandard as library
    except ImportError:
        return _standard_zstd()
    # Kept, because a context costs more than decompressing a small value. Contexts are not thread-safe.
    contexts = threading.local()

    def decompress(frame: bytes, size: int) -> bytes:
        if not hasattr(contexts, "decompressor"):
            contexts.decompressor = library.ZstdDecompressor()
        raw = contexts.decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
        return bytes(raw)

    return Zstd(
        lambda level, checksum: library.ZstdCompressor(level=level, write_checksum=checksum).compress,
        decompress,
        lambda: library.ZstdDecompressor().decompressobj(),
        library.ZstdError,
    )


def _standard_zstd() -> Zstd:
    if sys.version_info >= (3, 14):
        from compression import zstd as library
    else:
        from backports import zstd as library
    parameter = library.CompressionParameter

    def compressor(level: int, checksum: bool) -> Callable[[bytes], bytes]:
        options: dict[int, int] = {parameter.compression_level: level, parameter.checksum_flag: int(checksum)}
        context = library.ZstdCompressor(options=options)
        return lambda raw: context.compress(raw, mode=library.ZstdCompressor.FLUSH_FRAME)

    def decompress(frame: bytes, size: int) -> bytes:
        stream = library.ZstdDecompressor()
        raw = stream.decompress(frame, max_length=size + 1)
        if not stream.eof or stream.unused_data or len(raw) > size:
            raise library.ZstdError("the frame is truncated, too large, or followed by other bytes")
        return raw

    return Zstd(compressor, decompress, library.ZstdDecompressor, library.ZstdError)


@cache
def crc32c_library() -> Crc32c:
    """Return the CRC-32C library."""
    try:
        import google_crc32c
    except ImportError:
        from fastcrc.crc32 import iscsi

        return Crc32c(iscsi, lambda before, data: iscsi(data, before))
    return Crc32c(google_crc32c.value, google_crc32c.extend)


# The result of checking a checksum. Digests are "unchecked" without the ledger's password.
Verdict = Literal["ok", "bad", "absent", "unchecked"]

# The library only accepts `bytes`, so views are copied in pieces of this size.
_PIECE: Final = 1 << 20


def crc32c(*parts: Buffer, before: int = 0) -> int:
    """Return the CRC-32C of the concatenated `parts`, continuing from `before`, the CRC of earlier bytes."""
    extend, value = crc32c_library().extend, before
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PIECE):
            value = extend(value, bytes(view[start : start + _PIECE]))
    return value


def crc32c_of_file(file: BinaryIO, size: int) -> int | None:
    """Return the CRC-32C of the first `size` bytes of a file, or None if it is shorter. Raises OSError."""
    extend, value, at = crc32c_library().extend, 0, 0
    file.seek(0)
    while at < size:
        piece = file.read(min(_PIECE, size - at))
        if not piece:
            return None
        value = extend(value, piece)
        at += len(piece)
    return value
