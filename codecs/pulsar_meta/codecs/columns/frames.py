"""Decode many frames at once into the places and fields of their two protobuf messages.

Needs NumPy. Sources: apache/pulsar Commands.java; PulsarApi.proto.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pulsar_meta.codecs.columns.fields import (
    FieldColumn,
    FieldWalk,
    InnerMessages,
    Shape,
    sized_tag,
    varint_tag,
)
from pulsar_meta.codecs.columns.words import (
    MARGIN,
    Heads,
    Place,
    Positions,
    Rows,
    anywhere,
    common,
    nearer,
    replaced,
)
from pulsar_meta.codecs.compression import CODECS
from pulsar_meta.codecs.frames.frame import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

_SIZED_TYPES: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def tags_of(kind: type[Message]) -> dict[str, int]:
    """Return the tags of a message's fields by name; every field is an integer or has a size."""
    return {
        field.name: sized_tag(field.number) if field.type in _SIZED_TYPES else varint_tag(field.number)
        for field in kind.DESCRIPTOR.fields
    }


BROKER_TAGS: Final = tags_of(BrokerEntryMetadata)
MESSAGE_TAGS: Final = tags_of(MessageMetadata)
PROPERTIES: Final = MESSAGE_TAGS["properties"]

_KEY_VALUE: Final = Shape(required=(sized_tag(1), sized_tag(2)))
_ENCRYPTION_KEYS: Final = Shape(required=(sized_tag(1), sized_tag(2)), nested={sized_tag(3): _KEY_VALUE})
_MESSAGE_METADATA: Final = Shape(
    required=(sized_tag(1), varint_tag(2), varint_tag(3)),
    nested={PROPERTIES: _KEY_VALUE, MESSAGE_TAGS["encryption_keys"]: _ENCRYPTION_KEYS},
    # compacted_batch_indexes in the packed form have numbers inside.
    unusual=frozenset({sized_tag(31)}),
)
# A KeyValue without a field that the schema does not know.
WHOLE_PAIR: Final = replace(_KEY_VALUE, known=frozenset(_KEY_VALUE.required))
_WHOLE_BROKER: Final = Shape(known=frozenset(BROKER_TAGS.values()))
_WHOLE_MESSAGE: Final = replace(
    _MESSAGE_METADATA,
    nested=_MESSAGE_METADATA.nested | {PROPERTIES: WHOLE_PAIR},
    known=frozenset(MESSAGE_TAGS.values()),
)


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The fields of each row's frame by name, and the rows that the codec for one entry must decode.

    Those rows are `odd`; some of them only because their metadata does not fit into the heads (`long`).
    The places are those of the frame's checksum, if it has one, of the bytes that it covers, and of the
    payload.
    """

    fields: dict[str, FieldColumn]
    has_metadata: Rows
    has_checksum: Rows
    odd: Rows
    long: Rows
    checksum_at: Place = 0
    message_at: Place = 0
    payload_at: Place = 0
    properties: list[InnerMessages] = field(default_factory=list)

    def with_rows(self, rows: Positions, others: FrameColumns) -> FrameColumns:
        """Return columns with the values of `others` in some rows."""
        left = np.ones(len(self.odd), bool)
        left[rows] = False
        return FrameColumns(
            {name: column.with_rows(rows, others.fields[name]) for name, column in self.fields.items()},
            replaced(self.has_metadata, rows, others.has_metadata),
            replaced(self.has_checksum, rows, others.has_checksum),
            replaced(self.odd, rows, others.odd),
            replaced(self.long, rows, others.long),
            checksum_at=replaced(np.full(len(left), self.checksum_at), rows, others.checksum_at),
            message_at=replaced(np.full(len(left), self.message_at), rows, others.message_at),
            payload_at=replaced(np.full(len(left), self.payload_at), rows, others.payload_at),
            properties=[pairs.only(left) for pairs in self.properties]
            + [InnerMessages(rows[pairs.rows], pairs.columns) for pairs in others.properties],
        )


def read_frames(heads: Heads, start: int, ends: Positions, fields: Collection[str]) -> FrameColumns:
    """Decode some fields of the frames in [start, ends) of the entries, each at least 4 bytes long.

    MessageMetadata is skipped if none of its fields is among `fields`.
    """
    broker = FieldWalk(heads, _tags(BROKER_TAGS, fields))
    message = FieldWalk(heads, _tags(MESSAGE_TAGS, fields))
    return _read(heads, start, ends, (broker, Shape()), (message, _MESSAGE_METADATA))


def read_whole_frames(heads: Heads, start: int, ends: Positions) -> FrameColumns:
    """Read all fields of the frames, including properties; rows with unknown fields are odd."""
    broker = FieldWalk(heads, BROKER_TAGS.values())
    message = FieldWalk(heads, MESSAGE_TAGS.values(), gathered=PROPERTIES)
    return _read(heads, start, ends, (broker, _WHOLE_BROKER), (message, _WHOLE_MESSAGE))


def _read(
    heads: Heads,
    start: int,
    ends: Positions,
    broker_part: tuple[FieldWalk, Shape],
    message_part: tuple[FieldWalk, Shape],
) -> FrameColumns:
    bounds = _Bounds(ends, heads.width - MARGIN)
    head = heads.big_endian(start)
    has_metadata: Rows = (head >> np.uint64(48)) == BROKER_METADATA_MAGIC
    broker_size = ((head >> np.uint64(16)) & np.uint64(0xFFFFFFFF)).view(np.int64)
    at = bounds.within(np.where(has_metadata, start + 6 + broker_size, start), 4, start)
    broker, shape = broker_part
    broker.run(nearer(start + 6, at), at, shape)
    has_checksum: Rows = (heads.big_endian(at) >> np.uint64(48)) == CHECKSUM_MAGIC
    checksum_at = nearer(2 + at, heads.width - MARGIN)
    at = bounds.within(np.where(has_checksum, at + 6, at), 4, at)
    message, shape = message_part
    payload_at: Place = at
    if message.columns:
        size = (heads.big_endian(at) >> np.uint64(32)).view(np.int64)
        payload_at = bounds.within(at + 4 + size, 0, at + 4)
        message.run(at + 4, payload_at, shape)
    columns = _named(BROKER_TAGS, broker) | _named(MESSAGE_TAGS, message)
    odd = bounds.broken | bounds.long | broker.odd | message.odd | _unusual(columns)
    return FrameColumns(
        columns,
        has_metadata,
        has_checksum,
        odd,
        bounds.long & ~bounds.broken,
        checksum_at,
        at,
        payload_at,
        message.inner,
    )


class _Bounds:
    """Marks rows that claim more bytes than they have (`broken`), or than the heads hold (`long`)."""

    def __init__(self, ends: Positions, reach: int) -> None:
        self._ends, self._reach = ends, reach
        self.broken: Rows = np.zeros(len(ends), bool)
        self.long: Rows = np.zeros(len(ends), bool)

    def within(self, at: Positions, more: int, known: Place) -> Place:
        """Return `at`, or `known` in rows that do not have `more` bytes after it."""
        place = common(at)
        broken, long = place + more > self._ends, place + more > self._reach
        if not anywhere(broken | long):
            return place
        self.broken |= broken
        self.long |= long
        return common(np.where(broken | long, known, place))


def _tags(tags: dict[str, int], fields: Collection[str]) -> list[int]:
    return [tag for name, tag in tags.items() if name in fields]


def _named(tags: dict[str, int], walk: FieldWalk) -> dict[str, FieldColumn]:
    return {name: walk.columns[tag] for name, tag in tags.items() if tag in walk.columns}


def _unusual(columns: dict[str, FieldColumn]) -> Rows:
    """Find numbers that need care: an unknown compression, or an index over 2⁶³-1."""
    odd: Rows = np.zeros(1, bool)
    if "compression" in columns:
        odd = odd | (columns["compression"].values >= len(CODECS))
    if "index" in columns:
        odd = odd | (columns["index"].values >> np.uint64(63) != 0)
    return odd
