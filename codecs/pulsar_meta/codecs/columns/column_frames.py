"""The parts of many frames at once: where each one's two protobuf messages lie, and their fields.

Needs NumPy. Sources: apache/pulsar Commands.java; PulsarApi.proto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column_fields import FieldWalk, Found, Shape, sized_tag, varint_tag
from pulsar_meta.codecs.columns.column_words import Positions, Rows, WordReader, Words
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

    `metadata_at` is where the frame's checksum begins to cover; it stands 4 bytes before.
    """

    fields: dict[str, Found]
    has_metadata: Rows
    has_checksum: Rows
    metadata_at: Positions
    odd: Rows


def read_frames(reader: WordReader, starts: Positions, ends: Positions, fields: set[str]) -> FrameColumns:
    """Read the frames in [starts, ends); every `ends` must leave `MARGIN` bytes of the buffer behind it.

    Without any field of MessageMetadata in `fields` that message is passed over.
    """
    head = _head(reader, starts)
    has_metadata: Rows = (head >> np.uint64(48)) == BROKER_METADATA_MAGIC
    broker_size = ((head >> np.uint64(16)) & np.uint64(0xFFFFFFFF)).view(np.int64)
    broker_at = np.where(has_metadata, starts + 6, starts)
    at = np.where(has_metadata, broker_at + broker_size, starts)
    odd: Rows = at + 4 > ends
    at = np.where(odd, starts, at)
    broker = _walk(
        reader, broker_at, np.where(odd | ~has_metadata, broker_at, at), BROKER_FIELDS, fields, Shape()
    )
    has_checksum: Rows = (_head(reader, at) >> np.uint64(48)) == CHECKSUM_MAGIC
    at = np.where(has_checksum, at + 6, at)
    odd |= broker.odd | (at + 4 > ends)
    found = _named(BROKER_FIELDS, broker)
    if fields & MESSAGE_FIELDS.keys():
        message = _message(reader, at, ends, odd, fields)
        odd |= message.odd
        found |= _named(MESSAGE_FIELDS, message)
    return FrameColumns(found, has_metadata, has_checksum, at, odd | _unusual(found))


def _message(reader: WordReader, at: Positions, ends: Positions, odd: Rows, fields: set[str]) -> FieldWalk:
    at = np.where(odd, ends - 4, at)
    start = at + 4
    size = (_head(reader, at) >> np.uint64(32)).view(np.int64)
    end = start + size
    too_long = end > ends
    walk = _walk(
        reader, start, np.where(odd | too_long, start, end), MESSAGE_FIELDS, fields, _MESSAGE_METADATA
    )
    walk.odd |= too_long
    return walk


def _head(reader: WordReader, at: Positions) -> Words:
    """Return the eight bytes at each position as a big-endian number."""
    return reader.words(at).byteswap()


def _walk(
    reader: WordReader,
    start: Positions,
    end: Positions,
    tags: dict[str, int],
    fields: set[str],
    shape: Shape,
) -> FieldWalk:
    walk = FieldWalk(reader, start, end, [tag for name, tag in tags.items() if name in fields])
    walk.run(shape)
    return walk


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
