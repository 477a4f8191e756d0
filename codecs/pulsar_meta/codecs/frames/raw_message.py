"""Entries of compacted ledgers: a frame with the position of the entry that it was made from.

    int32 size, MessageIdData, int32 size, frame

Source: apache/pulsar client/impl/RawMessageImpl.java.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import parse_at
from pulsar_meta.codecs.reader import Buffer, byte_view
from pulsar_meta.proto.PulsarApi_pb2 import MessageIdData

_U32: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RawMessage:
    """Where a compacted entry was, and its frame as a view into the bytes given."""

    message_id: MessageIdData
    frame: memoryview = field(repr=False)


def decode_raw_message(data: Buffer) -> RawMessage:
    """Return the parts of a compacted ledger's entry; DecodeError where sizes do not fit to the byte."""
    view = byte_view(data)
    id_end = _end(view, 0)
    frame_end = _end(view, id_end)
    if frame_end != len(view):
        raise DecodeError(f"{len(view) - frame_end} bytes follow the frame", offset=frame_end)
    return RawMessage(parse_at(MessageIdData, view[4:id_end], 4), view[id_end + 4 : frame_end])


def encode_raw_message(message_id: MessageIdData, frame: Buffer) -> bytes:
    """Return the bytes of a compacted ledger's entry."""
    head = message_id.SerializeToString()
    return _U32.pack(len(head)) + head + _U32.pack(len(frame)) + bytes(frame)


def _end(view: memoryview, at: int) -> int:
    """Return where the part ends whose size stands at `at`."""
    size = int(_U32.unpack_from(view, at)[0]) if len(view) >= at + 4 else -1
    if not 0 <= size <= len(view) - at - 4:
        raise DecodeError(f"a part claims {size} bytes, {max(0, len(view) - at - 4)} are left", offset=at)
    return at + 4 + size
