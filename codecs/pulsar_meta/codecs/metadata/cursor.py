"""Values of cursors: the record in the store and the PositionInfo in a cursor ledger.

Source: apache/pulsar MLDataFormats.proto, MetaStoreImpl.java, ManagedCursorImpl.java, PIP-381.
"""

from __future__ import annotations

from typing import Final

from pulsar_meta.codecs.compression import DEFAULT_MAX_SIZE
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.envelope import MAGIC, open_envelope
from pulsar_meta.codecs.protobuf.parse import parse_message
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo, PositionInfo

# The cursorsLedgerId of a record that itself holds the cursor's state.
STATE_IN_RECORD: Final = -1

_POSITION_INFO_BEGINS: Final = 0x08
_FOOTER_BEGINS: Final = ord("{")


def decode_cursor(data: bytes, *, max_size: int = DEFAULT_MAX_SIZE) -> ManagedCursorInfo:
    """Return the message in a store value, plain or in an envelope; DecodeError where there is none."""
    envelope = open_envelope(data, max_size=max_size) if data[:2] == MAGIC else None
    return parse_message(ManagedCursorInfo, data if envelope is None else envelope.payload)


def decode_position_info(data: bytes | memoryview) -> PositionInfo:
    """Return the message in an entry of a cursor ledger (without the bookie's header and digest).

    DecodeError for everything else, naming the two forms that only other builds of Pulsar write: the
    footer of a state split over several entries (PIP-381), and entries that DataStax's fork compresses.
    """
    foreign = foreign_position_form(data)
    if foreign:
        raise DecodeError(foreign, offset=0)
    return parse_message(PositionInfo, data)


def foreign_position_form(data: bytes | memoryview) -> str | None:
    """Name the form of a cursor-ledger entry that no Apache release writes, or return None."""
    first = data[0] if len(data) else _POSITION_INFO_BEGINS
    if first == _FOOTER_BEGINS:
        return "the footer of a cursor state that is split over several entries (PIP-381), not a PositionInfo"
    if first != _POSITION_INFO_BEGINS and len(data) > 4 and first < 0x08:
        size = int.from_bytes(data[:4], "big")
        return f"looks like a compressed cursor entry (DataStax: size {size}, then the codec's bytes)"
    return None
