"""Entries decoded together: from where they lie to their columns. Needs NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import Column
from pulsar_meta.codecs.columns.column_frames import FrameColumns, read_frames
from pulsar_meta.codecs.columns.column_heads import Heads
from pulsar_meta.codecs.columns.column_texts import number_texts
from pulsar_meta.codecs.columns.column_words import Positions, Rows
from pulsar_meta.codecs.columns.entry_row import COMPRESSIONS, VERDICTS
from pulsar_meta.codecs.frames.bookie_entry import DIGEST_SIZES, HEADER, DigestType

_ABSENT: Final = VERDICTS.index("absent")
_UNCHECKED: Final = VERDICTS.index("unchecked")
_INT32: Final = frozenset({"marker_type", "chunk_id"})


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
        """Tell where the digest seems to be a CRC32: eight bytes, of which the first four are zeros."""
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
    return Column(np.maximum(index.values.view(np.int64) - width + 1, 0), index.present)


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
