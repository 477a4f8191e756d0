"""Decode the fields of many protobuf messages at once; all rows step from field to field together.

A `FieldWalk` walks through one message of each entry, and keeps the requested varints and places of
strings. A row that does anything unusual (a group, a wrong size, a number over 64 bits, a missing
required field) is marked `odd`; the caller decodes it again with the codec for one entry, so that an
unusual message means the same in both.

Source: protobuf encoding; the last one of several equal fields counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.words import (
    EVERY,
    Heads,
    Place,
    Positions,
    Rows,
    Selection,
    Words,
    anywhere,
    common,
    everywhere,
    nearer,
    picked,
)

VARINT: Final = 0
FIXED64: Final = 1
SIZED: Final = 2
FIXED32: Final = 5

_WIRE_TYPES: Final = (VARINT, FIXED64, SIZED, FIXED32)

# Entries are smaller, so a larger size is always wrong.
_LARGEST: Final = np.uint64(1 << 31)
_NOTHING: Final[Positions] = np.zeros(0, np.int64)


def varint_tag(number: int) -> int:
    """Return the tag of field `number` if it is an integer, an enum or a bool."""
    return number << 3 | VARINT


def sized_tag(number: int) -> int:
    """Return the tag of field `number` if it is a string, bytes or a message."""
    return number << 3 | SIZED


# A key and a value.
PAIR: Final = (sized_tag(1), sized_tag(2))


@dataclass(frozen=True, slots=True)
class Shape:
    """Rules for a message: tags that it needs, messages inside it, tags that are left to the codec.

    With `known` every other tag is left to the codec, too.
    """

    required: tuple[int, ...] = ()
    nested: dict[int, Shape] = field(default_factory=dict)
    unusual: frozenset[int] = frozenset()
    known: frozenset[int] | None = None


@dataclass(slots=True)
class FieldColumn:
    """One field of every row: its number or the place of its bytes, and a mask of the rows that have it."""

    values: Words
    present: Rows
    sizes: Positions

    def of(self, rows: Selection | Rows) -> FieldColumn:
        """Return the field of some rows."""
        return FieldColumn(self.values[rows], self.present[rows], self.sizes[rows])

    def with_rows(self, rows: Positions, others: FieldColumn) -> FieldColumn:
        """Return the field with other values in some rows; changes it in place if any row has it."""
        column = self
        if not self.present.any():
            # Columns without any value share their zeros.
            if not others.present.any():
                return self
            column = FieldColumn(self.values.copy(), self.present.copy(), self.sizes.copy())
        column.values[rows], column.present[rows], column.sizes[rows] = (
            others.values,
            others.present,
            others.sizes,
        )
        return column


@dataclass(frozen=True, slots=True)
class InnerMessages:
    """At most one inner message per row: the numbers of the `rows` that have one, and its fields by tag.

    The columns have values for these rows only.
    """

    rows: Positions
    columns: Mapping[int, FieldColumn]

    def only(self, rows: Rows) -> InnerMessages:
        """Return the inner messages of some rows."""
        kept = rows[self.rows]
        return InnerMessages(self.rows[kept], {tag: column.of(kept) for tag, column in self.columns.items()})


class FieldWalk:
    """One walk over a message in each row, which is in [start, end) of its entry.

    `inner` collects the fields of the nested messages with the tag `gathered`, in order within each row.
    """

    def __init__(self, heads: Heads, wanted: Iterable[int], gathered: int | None = None) -> None:
        self._heads = heads
        self._gathered = gathered
        self.odd: Rows = np.zeros(heads.count, bool)
        # Most fields are absent from all rows, so their columns share one array of zeros.
        self._nothing = _nothing(heads.count)
        self.columns = dict.fromkeys(wanted, self._nothing)
        self.inner: list[InnerMessages] = []

    def run(self, start: Place, end: Place, shape: Shape) -> None:
        """Walk through all fields of all rows."""
        for tag in shape.required:
            self.columns.setdefault(tag, self._nothing)
        self._walk(EVERY, start, end, shape)
        for tag in shape.required:
            self.odd |= ~self.columns[tag].present

    def _walk(self, rows: Selection, at: Place, end: Place, shape: Shape) -> None:
        """Step from field to field; a row that steps over its end is odd."""
        while True:
            more = at < end
            if not everywhere(more):
                over = at > end
                if anywhere(over):
                    self.odd[rows if isinstance(over, bool) else _some(rows, np.flatnonzero(over))] = True
                if not anywhere(more):
                    return
                left = np.flatnonzero(more)
                rows, at, end = _some(rows, left), picked(at, left), picked(end, left)
            at = self._step(rows, at, end, shape)

    def _step(self, rows: Selection, at: Place, end: Place, shape: Shape) -> Place:
        """Decode one field of each of `rows`; return the places of the next fields."""
        words = self._heads.words(at, rows)
        groups = _groups(words)
        if len(groups) == 1:
            tag, width, _ = groups[0]
            return self._take(_Fields(tag, width, rows, at, end, words), shape)
        following = np.empty(len(words), np.int64)
        for tag, width, same in groups:
            fields = _Fields(tag, width, _some(rows, same), picked(at, same), picked(end, same), words[same])
            following[same] = self._take(fields, shape)
        return following

    def _take(self, fields: _Fields, shape: Shape) -> Place:
        """Decode fields with the same tag; return the places of the next ones, past the end for odd rows."""
        tag, kind = fields.tag, fields.tag & 7
        body = fields.at + fields.width
        if tag < 8 or tag in shape.unusual or not fields.width or kind not in _WIRE_TYPES:
            return fields.end + 1
        if shape.known is not None and tag not in shape.known:
            return fields.end + 1
        if kind in (FIXED64, FIXED32):
            return body + (8 if kind == FIXED64 else 4)
        words, known = fields.words >> np.uint64(8 * fields.width), 8 - fields.width
        if kind == VARINT and tag not in self.columns:
            return body + self._heads.varint_lengths(body, fields.rows, words, known)
        values, lengths = self._heads.varints(body, fields.rows, words, known)
        if kind == SIZED:
            return self._take_sized(fields, lengths, values, shape)
        self._keep(fields, values)
        return body + lengths

    def _take_sized(self, fields: _Fields, length: Place, claimed: Words, shape: Shape) -> Place:
        """Decode fields with a size, which is a varint of `length` bytes."""
        body = fields.at + fields.width + length
        sizes = np.minimum(claimed, _LARGEST).view(np.int64)
        following = body + common(sizes)
        self._keep(fields, body, sizes)
        inner = shape.nested.get(fields.tag)
        if inner is None:
            return following
        if inner.required == PAIR and isinstance(length, int) and everywhere(following <= fields.end):
            pairs = self._pairs(fields, fields.width + length, sizes)
            if pairs is not None:
                if fields.tag == self._gathered:
                    self.inner.append(InnerMessages(np.arange(self._heads.count)[fields.rows], pairs))
                return following
        walk = FieldWalk(self._heads.of(fields.rows), ())
        walk.run(body, nearer(following, fields.end), inner)
        if fields.tag == self._gathered:
            self.inner.append(InnerMessages(np.arange(self._heads.count)[fields.rows], walk.columns))
        return np.where(walk.odd, fields.end + 1, following) if anywhere(walk.odd) else following

    def _pairs(self, fields: _Fields, skipped: int, sizes: Positions) -> dict[int, FieldColumn] | None:
        """Return the fields of messages that are a short key and a short value; None if any of them is not.

        The messages begin after `skipped` bytes of the fields' words, and end within the fields.
        """
        head = fields.words >> np.uint64(8 * skipped)
        key_sizes = (head >> np.uint64(8) & np.uint64(0xFF)).view(np.int64)
        key_at = fields.at + (skipped + 2)
        at = key_at + key_sizes
        right = (head & np.uint64(0x80FF) == PAIR[0]) & (key_sizes + 4 <= sizes)
        if skipped > 6 or not right.all():
            return None
        value_sizes = self._heads.byte(at + 1, fields.rows).astype(np.int64)
        right = (self._heads.byte(at, fields.rows) == PAIR[1]) & (value_sizes < 0x80)
        if not (right & (key_sizes + value_sizes + 4 == sizes)).all():
            return None
        every = np.ones(len(sizes), bool)
        keys = np.broadcast_to(key_at, sizes.shape).view(np.uint64)
        return {
            PAIR[0]: FieldColumn(keys, every, key_sizes),
            PAIR[1]: FieldColumn((at + 2).view(np.uint64), every, value_sizes),
        }

    def _keep(self, fields: _Fields, values: Words | Place, sizes: Positions | None = None) -> None:
        column = self.columns.get(fields.tag)
        if column is self._nothing:
            column = self.columns[fields.tag] = _nothing(self._heads.count)
        if column is not None:
            column.values[fields.rows] = values
            column.present[fields.rows] = True
            if sizes is not None:
                column.sizes[fields.rows] = sizes


@dataclass(frozen=True, slots=True)
class _Fields:
    """The next field of some rows, which all have the same tag."""

    tag: int
    width: int
    rows: Selection
    at: Place
    end: Place
    words: Words


def _some(rows: Selection, numbers: Positions) -> Selection:
    """Return some of `rows`, by their numbers among them."""
    return numbers if isinstance(rows, slice) else rows[numbers]


def _nothing(count: int) -> FieldColumn:
    return FieldColumn(np.zeros(count, np.uint64), np.zeros(count, bool), np.zeros(count, np.int64))


def _groups(words: Words) -> list[tuple[int, int, Positions]]:
    """Return (tag, its length in bytes, words that begin with it); the length is 0 if it is over two bytes.

    If all words have the same tag, the list of words is empty.
    """
    low = words.astype(np.uint8)
    if low[0] < 0x80 and (low == low[0]).all():
        return [(int(low[0]), 1, _NOTHING)]
    keys = np.where(low < 0x80, low, words.astype(np.uint16))
    left = keys
    groups: list[tuple[int, int, Positions]] = []
    while left.size:
        groups.append((*_tag_of(int(left[0])), np.flatnonzero(keys == left[0])))
        left = left[left != left[0]]
    return groups


def _tag_of(start: int) -> tuple[int, int]:
    """Return the tag in a field's first two bytes, read little-endian, and its length; 0 if it is longer."""
    if start < 0x80:
        return start, 1
    return (start & 0x7F) | (start >> 8 << 7), 2 if start < 0x8000 else 0
