"""Entries of compacted ledgers: a frame with the position of the entry that it was made from.

    int32 size, MessageIdData, int32 size, frame

Source: apache/pulsar client/impl/RawMessageImpl.java.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import sized_message
from pulsar_meta.codecs.reader import Buffer, Reader
from pulsar_meta.proto.PulsarApi_pb2 import MessageIdData


@dataclass(frozen=True, slots=True)
class RawMessage:
    """Where a compacted entry was, and its frame as a view into the bytes given."""

    message_id: MessageIdData
    frame: memoryview = field(repr=False)


def decode_raw_message(data: Buffer) -> RawMessage:
    """Return the parts of a compacted ledger's entry; DecodeError where sizes do not fit to the byte."""
    reader = Reader(data)
    message_id, frame = sized_message(reader, MessageIdData), reader.sized("the frame")
    if reader.left:
        raise DecodeError(f"{reader.left} bytes follow the frame", offset=reader.at)
    return RawMessage(message_id, frame)
