"""What ledgers say of the topic they belong to: indexes, producers, times of data; ledgers named by others.

Needs NumPy. Sources: apache/pulsar MLDataFormats.proto (PositionInfo), RawMessageImpl.java (compacted data),
DelayedMessageIndexBucketSegment.proto, PIP-70 (indexes go on from ledger to ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from pulsar_meta.codecs.columns.column import Column
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry
from pulsar_meta.codecs.frames.raw_message import decode_raw_message
from pulsar_meta.entries.base import EntrySource, RawEntry, read_each
from pulsar_meta.jobs.ledger_columns import read_columns
from pulsar_meta.jobs.rebuild.kinds import Kind
from pulsar_meta.jobs.topics.cursors import states_of
from pulsar_meta.proto.MLDataFormats_pb2 import PositionInfo

# Producers that are remembered of a ledger.
MOST_PRODUCERS: Final = 64
_COLUMNS: Final = (
    "first_index", "last_index", "producer_name", "sequence_id", "num_messages", "publish_time",
    "broker_timestamp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sequence:
    """A producer's first sequence id in a ledger, and those that can come after its last one there."""

    first: int
    after: frozenset[int]


@dataclass(frozen=True, slots=True)
class DataClues:
    """What the messages of a ledger say; None where they do not. Times are milliseconds.

    `times_by_broker` is false where only producers' clocks are known.
    """

    ledger_id: int
    messages: int = 0
    first_index: int | None = None
    last_index: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    times_by_broker: bool = False
    producers: Mapping[str, Sequence] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mention:
    """A ledger of a topic that names data ledgers of the same topic by their ids."""

    ledger_id: int
    kind: Kind
    named: frozenset[int]


def data_clues(source: EntrySource, ledger_id: int, digest_type: DigestType | None) -> DataClues:
    """Return what the messages of a data ledger say. What the source raises goes through."""
    ends: dict[str, tuple[tuple[int, int], tuple[int, int, int]]] = {}
    indexes, times, by_broker = list[int](), list[int](), True
    messages = 0
    for columns in read_columns(source, ledger_id, _COLUMNS, digest_type=digest_type):
        indexes += [*_ends(columns["first_index"]), *_ends(columns["last_index"])]
        broker = columns["broker_timestamp"]
        by_broker = by_broker and bool(broker.present.all())
        times += _ends(broker if broker.present.any() else columns["publish_time"])
        messages += int(columns["num_messages"].values[columns["num_messages"].present].sum())
        _add_producers(ends, columns)
    producers = {
        name: Sequence(first, frozenset((last + 1, last + max(count, 1))))
        for name, ((_, first), (_, last, count)) in ends.items()
    }
    return DataClues(
        ledger_id,
        messages,
        min(indexes, default=None),
        max(indexes, default=None),
        min(times, default=None),
        max(times, default=None),
        by_broker and bool(times),
        producers,
    )


def mention(source: EntrySource, ledger_id: int, kind: Kind, digest_type: DigestType | None) -> Mention:
    """Return which data ledgers a ledger of this kind names: none where it is of a kind that does not."""
    if kind == "cursor":
        states = (state for _, state in states_of(source, ledger_id) if isinstance(state, PositionInfo))
        named = {one for state in states for one in _ledgers_in(state)}
    elif kind == "compacted":
        named = {
            decode_raw_message(data).message_id.ledgerId for data in _contents(source, ledger_id, digest_type)
        }
    else:
        named = set()
    return Mention(ledger_id, kind, frozenset(named))


def _ends(column: Column) -> list[int]:
    there = column.values[column.present]
    return [int(there.min()), int(there.max())] if there.size else []


def _add_producers(
    ends: dict[str, tuple[tuple[int, int], tuple[int, int, int]]], columns: Mapping[str, Column]
) -> None:
    names, entries = columns["producer_name"], columns["entry_id"].values
    sequences, counts = columns["sequence_id"].values, columns["num_messages"].values
    for code in np.unique(names.values[names.present]).tolist():
        name = (names.names or ())[code]
        # Markers have no sequence: theirs is -1.
        rows = np.flatnonzero(names.present & (names.values == code) & (sequences >= 0))
        if not rows.size or (name not in ends and len(ends) >= MOST_PRODUCERS):
            continue
        low, high = rows[np.argmin(entries[rows])], rows[np.argmax(entries[rows])]
        first = int(entries[low]), int(sequences[low])
        last = int(entries[high]), int(sequences[high]), int(counts[high])
        known = ends.get(name, (first, last))
        ends[name] = min(first, known[0]), max(last, known[1])


def _ledgers_in(state: PositionInfo) -> Iterator[int]:
    """Yield the ledgers that a cursor's state speaks of."""
    yield state.ledgerId
    for messages in state.individualDeletedMessages:
        yield messages.upperEndpoint.ledgerId
    yield from (batch.position.ledgerId for batch in state.batchedEntryDeletionIndexInfo)
    yield from (ranges.key for ranges in state.individualDeletedMessageRanges)


def _contents(source: EntrySource, ledger_id: int, digest_type: DigestType | None) -> Iterable[memoryview]:
    for _, outcome in read_each(source, ledger_id):
        if isinstance(outcome, RawEntry):
            try:
                yield decode_bookie_entry(outcome.data, digest_type).data
            except DecodeError:
                continue
