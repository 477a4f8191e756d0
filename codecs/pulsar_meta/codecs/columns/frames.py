"""Many frames at once: where their two protobuf messages lie, their fields, and the columns made of these.

Needs NumPy. Sources: apache/pulsar Commands.java; PulsarApi.proto.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pulsar_meta.codecs.columns.column import COMPRESSIONS, VERDICTS, Column
from pulsar_meta.codecs.columns.fields import FieldWalk, Found, Inner, Shape, sized_tag, varint_tag
from pulsar_meta.codecs.columns.words import (
    MARGIN,
    Heads,
    Place,
    Positions,
    Rows,
    anywhere,
    common,
    nearer,
    number_texts,
    replaced,
)
from pulsar_meta.codecs.frames.bookie_entry import DIGEST_SIZES, HEADER, DigestType
from pulsar_meta.codecs.frames.frame import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

_SIZED_TYPES: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def tags_of(kind: type[Message]) -> dict[str, int]:
    """Return the tags of a message's fields by their names; there are integers and what has a size."""
    return {
        one.name: sized_tag(one.number) if one.type in _SIZED_TYPES else varint_tag(one.number)
        for one in kind.DESCRIPTOR.fields
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

_ABSENT: Final = VERDICTS.index("absent")
_UNCHECKED: Final = VERDICTS.index("unchecked")
_INT32: Final = frozenset({"marker_type", "chunk_id"})


@dataclass(frozen=True, slots=True)
class FrameColumns:
    """The fields of each row's frame by name, and the rows that the codec for one entry must read.

    Those rows are `odd`, some of them only because their metadata does not fit into the heads: `long`.
    The places are where the frame's checksum stands, if it has one, where what that covers begins, and where
    the payload does.
    """

    fields: dict[str, Found]
    has_metadata: Rows
    has_checksum: Rows
    odd: Rows
    long: Rows
    checksum_at: Place = 0
    message_at: Place = 0
    payload_at: Place = 0
    properties: list[Inner] = field(default_factory=list)

    def with_rows(self, rows: Positions, others: FrameColumns) -> FrameColumns:
        """Return what `others` say of some rows, and these of the rest."""
        left = np.ones(len(self.odd), bool)
        left[rows] = False
        return FrameColumns(
            {name: one.with_rows(rows, others.fields[name]) for name, one in self.fields.items()},
            replaced(self.has_metadata, rows, others.has_metadata),
            replaced(self.has_checksum, rows, others.has_checksum),
            replaced(self.odd, rows, others.odd),
            replaced(self.long, rows, others.long),
            checksum_at=replaced(np.full(len(left), self.checksum_at), rows, others.checksum_at),
            message_at=replaced(np.full(len(left), self.message_at), rows, others.message_at),
            payload_at=replaced(np.full(len(left), self.payload_at), rows, others.payload_at),
            properties=[one.only(left) for one in self.properties]
            + [Inner(rows[one.rows], one.found) for one in others.properties],
        )


def read_frames(heads: Heads, start: int, ends: Positions, fields: set[str]) -> FrameColumns:
    """Read the frames in [start, ends) of the entries, each of 4 bytes at least.

    Without any field of MessageMetadata in `fields` that message is passed over.
    """
    broker = FieldWalk(heads, _tags(BROKER_TAGS, fields))
    message = FieldWalk(heads, _tags(MESSAGE_TAGS, fields))
    return _read(heads, start, ends, (broker, Shape()), (message, _MESSAGE_METADATA))


def read_whole_frames(heads: Heads, start: int, ends: Positions) -> FrameColumns:
    """Read all fields of the frames, properties too; rows with fields that no schema knows are odd."""
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
    if message.found:
        size = (heads.big_endian(at) >> np.uint64(32)).view(np.int64)
        payload_at = bounds.within(at + 4 + size, 0, at + 4)
        message.run(at + 4, payload_at, shape)
    found = _named(BROKER_TAGS, broker) | _named(MESSAGE_TAGS, message)
    odd = bounds.broken | bounds.long | broker.odd | message.odd | _unusual(found)
    return FrameColumns(
        found,
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
    """Return where a number means something else than its bits: unknown compression, an index over 2⁶³-1."""
    odd: Rows = np.zeros(1, bool)
    if "compression" in found:
        odd = odd | (found["compression"].values >= len(COMPRESSIONS))
    if "index" in found:
        odd = odd | (found["index"].values >> np.uint64(63) != 0)
    return odd


@dataclass(frozen=True, slots=True)
class Layout:
    """How entries lie in their buffer: as a bookie has them with a digest, or as frames."""

    bookie: bool
    digest_type: DigestType | None

    @property
    def head(self) -> int:
        """The bytes of an entry before its frame."""
        return HEADER.size + DIGEST_SIZES[self.digest_type or "CRC32C"] if self.bookie else 0


class EntryRun:
    """Entries decoded from their heads. The columns mean nothing in the rows that are `odd`."""

    def __init__(self, layout: Layout, heads: Heads, sizes: Positions, wanted: tuple[str, ...]) -> None:
        self.layout, self.heads, self.sizes = layout, heads, sizes
        fields: set[str] = set().union(*(_made_of(name) for name in wanted))
        self.frames: FrameColumns = read_frames(heads, layout.head, sizes, fields)
        self.every: Rows = np.ones(len(sizes), bool)
        self.odd = self.frames.odd | self._other_digest()

    def column(self, name: str) -> Column:
        """Return a column by its name."""
        if name in _MADE:
            return _MADE[name][1](self)
        found = self.frames.fields[name]
        values = found.values.view(np.int64)
        return Column(values.astype(np.int32).astype(np.int64) if name in _INT32 else values, found.present)

    def header(self, offset: int) -> Column:
        """Return the number at `offset` of the bookie entry's header."""
        return Column(self.heads.big_endian(offset).view(np.int64), self.every & self.layout.bookie)

    def full(self, values: Positions | Rows, names: tuple[str, ...] | None = None) -> Column:
        """Return a column that every entry has."""
        return Column(values, self.every, names)

    def _other_digest(self) -> Rows:
        """Return where the digest seems to be a CRC32: eight bytes, of which the first four are zeros."""
        if not self.layout.bookie or self.layout.digest_type is not None:
            return ~self.every
        zeros: Rows = (self.heads.words(HEADER.size) << np.uint64(32)) == 0
        return zeros


def _made_of(name: str) -> frozenset[str]:
    return _MADE[name][0] if name in _MADE else frozenset({name})


def _producer_name(run: EntryRun) -> Column:
    found = run.frames.fields["producer_name"]
    at = found.values.view(np.int64)
    return run.full(*number_texts(run.heads, at, found.sizes, found.present & ~run.odd))


def _message_count(run: EntryRun) -> Positions:
    # The field is an int32; a batch of none or fewer counts as one message.
    counts: Positions = run.frames.fields["num_messages_in_batch"].values.astype(np.int32).astype(np.int64)
    return np.maximum(counts, 1)


def _first_index(run: EntryRun) -> Column:
    index, transaction = run.frames.fields["index"], run.frames.fields["txnid_most_bits"]
    width = np.where(transaction.present, 1, _message_count(run))
    return Column(index.values.view(np.int64) - width + 1, index.present)


def _last_index(run: EntryRun) -> Column:
    index = run.frames.fields["index"]
    return Column(index.values.view(np.int64), index.present)


def _digest(run: EntryRun) -> Column:
    return Column(np.full(len(run.sizes), _UNCHECKED), run.every & run.layout.bookie, VERDICTS)


# Columns that are not simply the field of their name: the fields they are made of, and how.
_MADE: Final[dict[str, tuple[frozenset[str], Callable[[EntryRun], Column]]]] = {
    "ledger_id": (frozenset(), lambda run: run.header(0)),
    "entry_id": (frozenset(), lambda run: run.header(8)),
    "size": (frozenset(), lambda run: run.full(run.sizes - run.layout.head)),
    "broken": (frozenset({"sequence_id", "compression"}), lambda run: run.full(~run.every)),
    "has_metadata": (frozenset(), lambda run: run.full(run.frames.has_metadata)),
    "digest": (frozenset(), _digest),
    "frame_checksum": (
        frozenset({"sequence_id"}),
        lambda run: run.full(np.where(run.frames.has_checksum, _UNCHECKED, _ABSENT), VERDICTS),
    ),
    "first_index": (frozenset({"index", "num_messages_in_batch", "txnid_most_bits"}), _first_index),
    "last_index": (frozenset({"index"}), _last_index),
    "num_messages": (frozenset({"num_messages_in_batch"}), lambda run: run.full(_message_count(run))),
    "encrypted": (
        frozenset({"encryption_keys"}),
        lambda run: run.full(run.frames.fields["encryption_keys"].present),
    ),
    "compression": (
        frozenset({"compression"}),
        lambda run: run.full(run.frames.fields["compression"].values.view(np.int64), COMPRESSIONS),
    ),
    "producer_name": (frozenset({"producer_name"}), _producer_name),
}
