"""Streams of frames in the `frames:` form: each behind its 4-byte big-endian size."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.broker_metadata import MetadataAppender, strip_broker_metadata
from pulsar_meta.codecs.frames.frame import decode_frame
from pulsar_meta.jobs.topics.topic import Report

# Far over any message that a broker takes; a claim beyond it is no frame's size.
MAX_FRAME: Final = 1 << 30

_SIZE: Final = struct.Struct(">I")
_PIECE: Final = 1 << 20


@dataclass(slots=True)
class FrameCount:
    """How many frames passed, and how many of them were changed, had no broker metadata, or were bad."""

    frames: int = 0
    changed: int = 0
    bare: int = 0
    bad: int = 0


def read_frames(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the frames of a stream; DecodeError, offset from its start, where the last is cut off."""
    at = 0
    while head := stream.read(4):
        if len(head) < 4:
            raise DecodeError(f"expected the 4 bytes of a frame's size, found {len(head)}", offset=at)
        size = int(_SIZE.unpack(head)[0])
        if size > MAX_FRAME:
            raise DecodeError(f"a frame claims {size} bytes, at most {MAX_FRAME} are taken", offset=at)
        frame = _read(stream, size)
        if len(frame) < size:
            raise DecodeError(f"a frame claims {size} bytes, {len(frame)} are left", offset=at)
        yield frame
        at += 4 + size


def write_frame(frame: bytes | memoryview) -> bytes:
    """Return a frame behind its size."""
    return _SIZE.pack(len(frame)) + bytes(frame)


def strip_frames(frames: Iterator[bytes], count: FrameCount, report: Report) -> Iterator[bytes]:
    """Yield the frames without the broker's part, in the `frames:` form; bare ones pass through.

    So do bad ones, which are no frames or end within their metadata, since what comes after keeps its
    place; each is reported.
    """

    def strip(frame: bytes) -> bytes | memoryview:
        try:
            decode_frame(frame, verify=False)
            bare, had = strip_broker_metadata(frame)
        except DecodeError as error:
            report(error.within(what=f"frame {count.frames}"))
            count.bad += 1
            return frame
        count.changed += had
        count.bare += not had
        return bare

    return _each(frames, count, strip)


def attach_frames(frames: Iterator[bytes], appender: MetadataAppender, count: FrameCount) -> Iterator[bytes]:
    """Yield the frames with the broker's part put on, in the `frames:` form."""

    def attach(frame: bytes) -> bytes:
        count.changed += 1
        return appender.attach(frame)

    return _each(frames, count, attach)


def _each(
    frames: Iterator[bytes], count: FrameCount, change: Callable[[bytes], bytes | memoryview]
) -> Iterator[bytes]:
    for frame in frames:
        try:
            changed = change(frame)
        except DecodeError as error:
            raise error.within(what=f"frame {count.frames}") from error
        count.frames += 1
        yield write_frame(changed)


def _read(stream: IO[bytes], size: int) -> bytes:
    """Return `size` bytes or what there is, taking memory only for bytes that arrive."""
    parts, left = [], size
    while left and (piece := stream.read(min(left, _PIECE))):
        parts.append(piece)
        left -= len(piece)
    return b"".join(parts)
