"""Whether a snapshot's file is, bit for bit, the one that was written in the order that its foot names."""

from __future__ import annotations

import io
import json
import os
from typing import BinaryIO, Final, cast

from pulsar_meta.codecs.checksum import crc32c_of_file
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.json_text import Document
from pulsar_meta.codecs.snapshot_lines import is_foot
from pulsar_meta.codecs.snapshot_order import KEYS
from pulsar_meta.stores.ordered_lines import OrderedLines
from pulsar_meta.stores.zstd_frames import ZstdFrames
from pulsar_meta.stores.zstd_stream import MAGIC

# A foot has some hundred bytes.
LONGEST_FOOT: Final = 1 << 12
# What is read ahead: a few lines.
AHEAD: Final = 1 << 13


def ordered_lines(file: BinaryIO, max_line: int) -> OrderedLines | None:
    """Return what finds the lines of a snapshot by halves, and closes `file`.

    None, and `file` stays open, where no foot says that they are in order, or where the file is not byte for
    byte what its foot says. OSError.
    """
    packed = os.pread(file.fileno(), len(MAGIC), 0) == MAGIC
    foot = _foot_of(file, packed=packed)
    order, before = foot.get("order"), foot.get("bytes_before")
    if type(order) is not str or order not in KEYS or type(before) is not int:
        return None
    if crc32c_of_file(file, before) != foot.get("crc32c_before"):
        return None
    if not packed:
        return OrderedLines(file, before, order, max_line)
    try:
        frames = ZstdFrames(file, before, largest=2 * max_line)
    except DecodeError:
        return None
    unpacked = cast(BinaryIO, io.BufferedReader(frames, AHEAD))
    return OrderedLines(unpacked, frames.size, order, max_line)


def _foot_of(file: BinaryIO, *, packed: bool) -> Document:
    """Return the foot at the end of a file, which says itself where it begins; empty where there is none."""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - LONGEST_FOOT)
    end = os.pread(file.fileno(), LONGEST_FOOT, start)
    at = _before(end, len(end), packed=packed)
    while at >= 0:
        foot = _read_foot(end[at:], packed=packed)
        if foot.get("bytes_before") == start + at:
            return foot
        at = _before(end, at, packed=packed) if packed else -1
    return {}


def _before(end: bytes, at: int, *, packed: bool) -> int:
    """Return where a foot could begin before an offset: a frame of zstd, or the last line."""
    return end.rfind(MAGIC, 0, at) if packed else end.rfind(b"\n", 0, at - 1) + 1


def _read_foot(data: bytes, *, packed: bool) -> Document:
    try:
        line = _unpacked(data) if packed else data
        found = json.loads(line) if line.startswith(b"{") and line.endswith(b"\n") else {}
    except (DecodeError, ValueError, RecursionError):
        return {}
    return found if is_foot(found) else {}


def _unpacked(frame: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().decompress(
            frame, max_output_size=LONGEST_FOOT, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise DecodeError(f"not zstd: {error}") from error
