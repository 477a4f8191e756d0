"""The parts of many frames at once: where each one's two protobuf messages lie, and their fields.

Needs NumPy. Sources: apache/pulsar Commands.java; PulsarApi.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column_fields import FieldWalk, Found, Shape, sized_tag, varint_tag
from pulsar_meta.codecs.columns.column_heads import MARGIN, Heads, Place, anywhere, common, nearer
from pulsar_meta.codecs.columns.column_words import Positions, Rows
from pulsar_meta.codecs.columns.entry_row import COMPRESSIONS
from pulsar_meta.codecs.frames.frame import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC

BROKER_FIELDS: Final = {"broker_timestamp": varint_tag(1), "index": varint_tag(2)}
MESSAGE_FIELDS: Final = {
    "producer_name": sized_tag(1),
    "sequence_id": varint_tag(2),
    "publish_time": varint_tag(3),
    "compression": varint_tag(8),
    "uncompressed_size": varint_tag(9),
    "num_messages_in_batch": varint_tag(11),
    "event_time": varint_tag(12),
    "encryption_keys": sized_tag(13),
    "marker_type": varint_tag(20),
    "txnid_least_bits": varint_tag(22),
    "txnid_most_bits": varint_tag(23),
    "chunk_id": varint_tag(29),
}

_KEY_VALUE: Final = Shape(required=(sized_tag(1), sized_tag(2)))
_ENCRYPTION_KEYS: Final = Shape(required=(sized_tag(1), sized_tag(2)), nested={sized_tag(3): _KEY_VALUE})
_MESSAGE_METADATA: Final = Shape(
    required=(sized_tag(1), varint_tag(2), varint_tag(3)),
    nested={sized_tag(4): _KEY_VALUE, sized_tag(13): _ENCRYPTION_KEYS},
    # compacted_batch_indexes in the packed form have numbers inside.
    unusual=frozenset({sized_tag(31)}),
)


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The fields of each row's frame by name, and the rows that the codec for one entry must read.

    Those rows are `odd`, some of them only because their metadata does not fit into the heads: `long`.
    """

    fields: dict[str, Found]
    has_metadata: Rows
    has_checksum: Rows
    odd: Rows
    long: Rows


def read_frames(heads: Heads, start: int, ends: Positions, fields: set[str]) -> FrameColumns:
    """Read the frames in [start, ends) of the entries, each of 4 bytes at least.

    Without any field of MessageMetadata in `fields` that message is passed over.
    """
    bounds = _Bounds(ends, heads.width - MARGIN)
    head = heads.big_endian(start)
    has_metadata: Rows = (head >> np.uint64(48)) == BROKER_METADATA_MAGIC
    broker_size = ((head >> np.uint64(16)) & np.uint64(0xFFFFFFFF)).view(np.int64)
    at = bounds.within(np.where(has_metadata, start + 6 + broker_size, start), 4, start)
    broker = FieldWalk(heads, _tags(BROKER_FIELDS, fields))
    broker.run(nearer(start + 6, at), at, Shape())
    has_checksum: Rows = (heads.big_endian(at) >> np.uint64(48)) == CHECKSUM_MAGIC
    at = bounds.within(np.where(has_checksum, at + 6, at), 4, at)
    message = FieldWalk(heads, _tags(MESSAGE_FIELDS, fields))
    if message.found:
        size = (heads.big_endian(at) >> np.uint64(32)).view(np.int64)
        message.run(at + 4, bounds.within(at + 4 + size, 0, at + 4), _MESSAGE_METADATA)
    found = _named(BROKER_FIELDS, broker) | _named(MESSAGE_FIELDS, message)
    odd = bounds.broken | bounds.long | broker.odd | message.odd | _unusual(found)
    return FrameColumns(found, has_metadata, has_checksum, odd, bounds.long & ~bounds.broken)


class _Bounds:
    """Takes note of the rows that claim more bytes than there are: `broken`, or than heads hold: `long`."""

    def __init__(self, ends: Positions, reach: int) -> None:
        self._ends, self._reach = ends, reach
        self.broken: Rows = np.zeros(len(ends), bool)
        self.long: Rows = np.zeros(len(ends), bool)

    def within(self, at: Positions, more: int, known: Place) -> Place:
        """Return `at`, but `known` in the rows that do not have `more` bytes there."""
        place = common(at)
        broken, long = place + more > self._ends, place + more > self._reach
        if not anywhere(broken | long):
            return place
        self.broken |= broken
        self.long |= long
        return common(np.where(broken | long, known, place))


def _tags(tags: dict[str, int], fields: set[str]) -> list[int]:
    return [tag for name, tag in tags.items() if name in fields]


def _named(tags: dict[str, int], walk: FieldWalk) -> dict[str, Found]:
    return {name: walk.found[tag] for name, tag in tags.items() if tag in walk.found}


def _unusual(found: dict[str, Found]) -> Rows:
    """Tell where a number means something else than its bits: unknown compression, an index over 2⁶³-1."""
    odd: Rows = np.zeros(1, bool)
    if "compression" in found:
        odd = odd | (found["compression"].values >= len(COMPRESSIONS))
    if "index" in found:
        odd = odd | (found["index"].values >> np.uint64(63) != 0)
    return odd
