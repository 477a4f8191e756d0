"""Pulsar's compression codecs, for values of the metadata store and for message payloads, and their limits.

LZ4 and Snappy are raw blocks, and ZSTD is a single frame. Java writes ZLIB with a sync flush and never
finishes the stream, so the stream has no final block and no checksum. Source: apache/pulsar
pulsar-common/…/common/compression/CompressionCodec{LZ4,ZLib,Zstd,Snappy}.java.

Uncompressed sizes have limits, because a few KB of compressed bytes can claim gigabytes. Data that unpacks to
less than `USUAL_RATIO` times its stored size is always accepted, because the stored bytes already bound it.
Snappy has a lower ratio.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.errors import DecodeError, LimitError, UsageError

# The environment variable with which users of the program set the limit in bytes, and the default.
MAX_UNPACKED: Final = "PULSAR_META_MAX_UNPACKED"
DEFAULT_MAX_UNPACKED: Final = 512 << 20
# Brokers' records and logs compress to a tenth at most, ZooKeeper's snapshots to a thirtieth.
USUAL_RATIO: Final = 64
# Snappy compresses to a 22nd at most, and ZooKeeper's snapshots of Pulsar's records to a seventh.
USUAL_SNAPPY_RATIO: Final = 16
# Values up to this size, in bytes, are not counted.
HARMLESS: Final = 1 << 18


class Limits:
    """The limits of this process, which all depend on `max_unpacked`, the bytes of an uncompressed file.

    A value of the metadata store may grow to 1/128 of it, because parsing needs many times its size. All
    values of a run that grew by more than `USUAL_RATIO` may have 1/8 of it together.
    """

    def __init__(self, max_unpacked: int = DEFAULT_MAX_UNPACKED) -> None:
        self.max_unpacked = max_unpacked
        self._spent: int | None = None

    def start_run(self, max_unpacked: int) -> None:
        """Set the limit, and count the values of a run. Without a run, each value is only checked alone."""
        self.max_unpacked, self._spent = max_unpacked, 0

    def for_file(self, stored: int, ratio: int = USUAL_RATIO) -> int:
        """Return the largest uncompressed size that is accepted for `stored` compressed bytes."""
        return max(self.max_unpacked, stored * ratio)

    def check_file(self, stored: int, unpacked: int, ratio: int = USUAL_RATIO) -> None:
        """Raise LimitError if `stored` compressed bytes unpack to `unpacked` bytes, and that is too many."""
        limit = self.for_file(stored, ratio)
        if unpacked > limit:
            raise _error(f"{stored} compressed bytes unpack to more than {limit} bytes")

    def check_value(self, stored: int, unpacked: int) -> None:
        """Raise LimitError if a value claims to unpack to too many bytes, alone or with the run's others."""
        if unpacked <= HARMLESS or unpacked <= stored * USUAL_RATIO:
            return
        limit = self.max_unpacked // 128
        if unpacked > limit:
            raise _error(f"{stored} bytes claim to unpack to {unpacked} bytes, the limit is {limit}")
        if self._spent is None:
            return
        total = self.max_unpacked // 8
        if self._spent + unpacked > total:
            raise _error(
                f"{stored} bytes claim to unpack to {unpacked} bytes, and this run's limit is {total}"
            )
        self._spent += unpacked


def _error(problem: str) -> LimitError:
    return LimitError(f"{problem} (raise the limit with {MAX_UNPACKED})")


# The program sets them when it starts.
LIMITS: Final = Limits()


# Indexed by their numbers in both CompressionType enums (MLDataFormats.proto and PulsarApi.proto).
CODECS: Final = ("none", "lz4", "zlib", "zstd", "snappy")
DEFAULT_MAX_SIZE: Final = 256 * 2**20

# The maximum compression ratio, from each format's densest element, rounded up.
_DENSEST: Final = {"none": 1, "lz4": 255, "zlib": 1032, "zstd": 2**17, "snappy": 22}
_SLACK: Final = 64
# The empty stored block that a sync flush ends with (RFC 1951, 3.2.4).
_SYNC_FLUSH: Final = b"\x00\x00\xff\xff"
_contexts: Final = threading.local()
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# Magic, the longest frame header, one empty block, a checksum.
_LONGEST_EMPTY_FRAME: Final = 4 + 14 + 3 + 4


def compress(codec: str, raw: bytes | memoryview) -> bytes:
    """Compress `raw` as Pulsar does. Raises UsageError if the codec does not exist."""
    if codec not in _COMPRESSORS:
        raise UsageError(f"unknown codec {codec!r}: choose {', '.join(CODECS)}")
    return _COMPRESSORS[codec](bytes(raw))


def decompress(codec: str, data: bytes | memoryview, size: int, *, max_size: int = DEFAULT_MAX_SIZE) -> bytes:
    """Decompress `data` into `size` bytes, the size that its writer stored with it.

    Raises DecodeError if the size is negative, above `max_size`, impossible or wrong, or if `data` is
    corrupt. The size is checked before memory is allocated.
    """
    if codec not in _DECOMPRESSORS:
        raise UsageError(f"unknown codec {codec!r}: choose {', '.join(CODECS)}")
    check_claim(codec, len(data), size, max_size)
    raw = _DECOMPRESSORS[codec](bytes(data), size)
    if len(raw) != size:
        more = "more than" if len(raw) > size else f"only {len(raw)} of"
        raise DecodeError(f"{codec}: {more} the {size} bytes that are claimed", offset=len(data))
    return raw


def check_claim(codec: str, stored: int, size: int, max_size: int) -> None:
    """Raise DecodeError if `size` is negative, too large, or impossible for `stored` compressed bytes."""
    if size < 0:
        raise DecodeError(f"{codec}: claims a negative size, {size}", offset=0)
    if size > max_size:
        raise DecodeError(f"{codec}: claims {size} bytes, the limit is {max_size} (--max-size)", offset=0)
    if size > stored * _DENSEST[codec] + _SLACK:
        raise DecodeError(f"{codec}: {stored} bytes cannot hold the {size} bytes that are claimed", offset=0)


def _compress_lz4(raw: bytes) -> bytes:
    return backends.lz4().compress(raw)


def _compress_zstd(raw: bytes) -> bytes:
    # Kept, because a context costs more than compressing a small value. Contexts are not thread-safe.
    if not hasattr(_contexts, "compress"):
        _contexts.compress = backends.zstd().compressor(3, True)
    return bytes(_contexts.compress(raw))


def _compress_snappy(raw: bytes) -> bytes:
    import snappy

    return bytes(snappy.compress(raw))


def _decompress_lz4(data: bytes, size: int) -> bytes:
    library = backends.lz4()
    try:
        # The library raises an error for a block that is larger than `size`, but not for a smaller one.
        return library.decompress(data, size)
    except library.error as error:
        raise DecodeError(f"lz4: corrupt block, or more than the {size} bytes that are claimed") from error


def _decompress_zlib(data: bytes, size: int) -> bytes:
    if not data:
        return b""  # Java's Deflater writes no bytes for an empty input.
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise DecodeError(f"zlib: corrupt stream ({error})") from error
    if stream.unused_data:
        at = len(data) - len(stream.unused_data)
        raise DecodeError(f"zlib: {len(stream.unused_data)} bytes after the end of the stream", offset=at)
    if len(raw) == size and not stream.eof and not data.endswith(_SYNC_FLUSH):
        raise DecodeError(
            "zlib: the stream ends neither with its checksum nor with a flush", offset=len(data)
        )
    return raw


def _decompress_zstd(data: bytes, size: int) -> bytes:
    content_size = zstd_header(data).content_size
    if content_size not in (None, size):
        raise DecodeError(f"zstd: the frame holds {content_size} bytes, {size} are claimed", offset=0)
    library = backends.zstd()
    try:
        if content_size == 0:
            return _empty_zstd_frame(data)
        # One byte more than claimed, to detect a larger frame that does not store its size.
        return library.decompress(data, size + 1)
    except library.error as error:
        raise DecodeError(f"zstd: corrupt or truncated frame ({error})") from error


def _empty_zstd_frame(data: bytes) -> bytes:
    # zstandard's one-shot call ignores all bytes after a frame header with size 0.
    stream = backends.zstd().stream()
    raw = stream.decompress(data[:_LONGEST_EMPTY_FRAME])
    if not stream.eof or stream.unused_data or len(data) > _LONGEST_EMPTY_FRAME:
        raise DecodeError("zstd: an empty frame is truncated or followed by other bytes")
    return raw


@dataclass(frozen=True, slots=True)
class ZstdHeader:
    """A Zstandard frame's header of `size` bytes. `content_size` is None if the header doesn't record it."""

    size: int
    content_size: int | None
    has_checksum: bool


def zstd_header(data: bytes) -> ZstdHeader:
    """Read the header at the start of a Zstandard frame (RFC 8878, 3.1.1.1).

    Raises DecodeError if there is none, or if it is truncated.
    """
    if data[:4] != ZSTD_MAGIC or len(data) < 5:
        raise DecodeError("zstd: no frame header", offset=0)
    descriptor = data[4]
    single_segment, kind = descriptor >> 5 & 1, descriptor >> 6
    # A single segment has no window descriptor, and always records its size.
    at = 6 - single_segment + (0, 1, 2, 4)[descriptor & 3]
    width = (single_segment, 2, 4, 8)[kind]
    if len(data) < at + width:
        raise DecodeError("zstd: the frame header is truncated", offset=len(data))
    # Sizes of two bytes begin at 256.
    number = int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)
    return ZstdHeader(at + width, number if width else None, bool(descriptor & 4))


def _decompress_snappy(data: bytes, size: int) -> bytes:
    import snappy

    content_size = snappy_size(data)
    if content_size != size:
        raise DecodeError(f"snappy: the block holds {content_size} bytes, {size} are claimed", offset=0)
    try:
        return bytes(snappy.uncompress(data))
    except snappy.UncompressError as error:
        raise DecodeError("snappy: corrupt block") from error


def recorded_size(codec: str, data: bytes) -> int | None:
    """Return the uncompressed size that compressed bytes begin with, or None if they don't record it.

    Raises DecodeError if the bytes don't begin as the codec's do.
    """
    if codec == "zstd":
        return zstd_header(data).content_size
    return snappy_size(data) if codec == "snappy" else None


def snappy_size(data: bytes) -> int:
    """Return the uncompressed size at the start of a raw Snappy block (a varint of at most five bytes).

    Raises DecodeError if the varint does not end.
    """
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise DecodeError("snappy: no size at the start of the block", offset=0)


_COMPRESSORS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "lz4": _compress_lz4,
    "zlib": zlib.compress,
    "zstd": _compress_zstd,
    "snappy": _compress_snappy,
}
_DECOMPRESSORS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "none": lambda data, size: data,
    "lz4": _decompress_lz4,
    "zlib": _decompress_zlib,
    "zstd": _decompress_zstd,
    "snappy": _decompress_snappy,
}
