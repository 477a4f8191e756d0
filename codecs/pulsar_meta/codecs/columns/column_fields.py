"""The fields of many protobuf messages at once: all rows step from field to field together.

A `FieldWalk` goes through one message per row and keeps the varints and the places of strings that it
was asked for. A row that does anything unusual (a group, a wrong size, a number over 64 bits, a missing
required field) is marked `odd`; whoever asked reads it again with the codec for one entry, so that an
unusual message means the same here as there.

Source: protobuf encoding; the last one of several equal fields counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column_words import Positions, Rows, WordReader, Words

VARINT: Final = 0
FIXED64: Final = 1
SIZED: Final = 2
FIXED32: Final = 5

_WIRE_TYPES: Final = (VARINT, FIXED64, SIZED, FIXED32)

# Sizes over this are never right: an entry is smaller.
_LARGEST: Final = np.uint64(1 << 31)
_EVERY: Final[Rows] = np.ones(0, bool)

# Rows of the whole walk: their numbers, or all of them.
Selection = Positions | slice


def varint_tag(number: int) -> int:
    """Return the tag of field `number` where it holds an integer, an enum or a bool."""
    return number << 3 | VARINT


def sized_tag(number: int) -> int:
    """Return the tag of field `number` where it holds a string, bytes or a message."""
    return number << 3 | SIZED


@dataclass(frozen=True, slots=True)
class Shape:
    """What must hold in a message: the tags it needs, the messages inside it, the tags left to the codec."""

    required: tuple[int, ...] = ()
    nested: Mapping[int, Shape] = field(default_factory=dict)
    unusual: frozenset[int] = frozenset()


@dataclass(slots=True)
class Found:
    """One field of every row: its number or the place of its bytes, and where it is there at all."""

    values: Words
    present: Rows
    sizes: Positions


class FieldWalk:
    """One walk over as many messages as there are rows, each from `start` to `end`."""

    def __init__(self, reader: WordReader, start: Positions, end: Positions, wanted: Iterable[int]) -> None:
        self._reader = reader
        self._start = start
        self._end = end
        self.odd: Rows = start > end
        self.found = {tag: _nothing(len(start)) for tag in wanted}

    def run(self, shape: Shape) -> None:
        """Step through all fields of all rows."""
        for tag in shape.required:
            if tag not in self.found:
                self.found[tag] = _nothing(len(self._start))
        rows, at, end = self._unfinished(slice(None), self._start, self._end)
        while at.size:
            at = self._step(rows, at, end, shape)
            rows, at, end = self._unfinished(rows, at, end)
        for tag in shape.required:
            self.odd |= ~self.found[tag].present

    def _unfinished(
        self, rows: Selection, at: Positions, end: Positions
    ) -> tuple[Selection, Positions, Positions]:
        """Return what is left to do; a row that stepped over its end is odd."""
        more = at < end
        if more.all():
            return rows, at, end
        over = at > end
        if over.any():
            self.odd[_chosen(rows, over)] = True
        return _chosen(rows, more), at[more], end[more]

    def _step(self, rows: Selection, at: Positions, end: Positions, shape: Shape) -> Positions:
        """Take one field of each of `rows`; return where the next one of each begins."""
        words = self._reader.words(at)
        groups = _groups(words)
        if len(groups) == 1:
            tag, width, _ = groups[0]
            return self._take(_Fields(tag, width, rows, at, end, words), shape)
        following = np.empty_like(at)
        for tag, width, same in groups:
            fields = _Fields(tag, width, _chosen(rows, same), at[same], end[same], words[same])
            following[same] = self._take(fields, shape)
        return following

    def _take(self, fields: _Fields, shape: Shape) -> Positions:
        """Take fields of one tag; return where the next ones begin, past the end for odd rows."""
        tag, kind = fields.tag, fields.tag & 7
        body = fields.at + fields.width
        if tag < 8 or tag in shape.unusual or not fields.width or kind not in _WIRE_TYPES:
            return fields.end + 1
        if kind in (FIXED64, FIXED32):
            following: Positions = body + (8 if kind == FIXED64 else 4)
            return following
        shifted = fields.words >> np.uint64(8 * fields.width)
        values, lengths = self._reader.varints_of(shifted, body, 8 - fields.width)
        body += lengths
        if kind == VARINT:
            self._keep(fields, values)
        else:
            body = self._take_sized(fields, body, values, shape)
        return body if lengths.all() else np.where(lengths == 0, fields.end + 1, body)

    def _take_sized(self, fields: _Fields, body: Positions, claimed: Words, shape: Shape) -> Positions:
        sizes = np.minimum(claimed, _LARGEST).view(np.int64)
        following: Positions = body + sizes
        self._keep(fields, body.view(np.uint64), sizes)
        inner = shape.nested.get(fields.tag)
        if inner is not None:
            walk = FieldWalk(self._reader, body, np.minimum(following, fields.end), ())
            walk.run(inner)
            following[walk.odd] = fields.end[walk.odd] + 1
        return following

    def _keep(self, fields: _Fields, values: Words, sizes: Positions | None = None) -> None:
        found = self.found.get(fields.tag)
        if found is not None:
            found.values[fields.rows] = values
            found.present[fields.rows] = True
            if sizes is not None:
                found.sizes[fields.rows] = sizes


@dataclass(frozen=True, slots=True)
class _Fields:
    """The next field of some rows, which all have the same tag."""

    tag: int
    width: int
    rows: Selection
    at: Positions
    end: Positions
    words: Words


def _chosen(rows: Selection, mask: Rows) -> Positions:
    return np.flatnonzero(mask) if isinstance(rows, slice) else rows[mask]


def _nothing(count: int) -> Found:
    return Found(np.zeros(count, np.uint64), np.zeros(count, bool), np.zeros(count, np.int64))


def _groups(words: Words) -> list[tuple[int, int, Rows]]:
    """Return (tag, its length in bytes, the rows that have it); length 0 where it is over two bytes."""
    low = words & np.uint64(0xFF)
    if low[0] < 0x80 and (low == low[0]).all():
        return [(int(low[0]), 1, _EVERY)]
    first = low.view(np.int64)
    second = ((words >> np.uint64(8)) & np.uint64(0xFF)).astype(np.int64)
    two = first >= 0x80
    widths = np.where(two, np.where(second < 0x80, 2, 0), 1)
    keys = np.where(two, (first & 0x7F) | (second << 7), first) * 4 + widths
    if (keys == keys[0]).all():
        return [(int(keys[0]) >> 2, int(keys[0]) & 3, _EVERY)]
    return [(int(key) >> 2, int(key) & 3, keys == key) for key in np.unique(keys)]
