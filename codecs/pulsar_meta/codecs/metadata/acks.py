"""What a cursor's acknowledgements mean: entries by ledger, and batch indexes inside entries.

- A MessageRange is exclusive at its lower and inclusive at its upper end; where its ends lie in two
  ledgers (old records), what it covers depends on the sizes of the ledgers.
- In a LongListMap a set bit is an acknowledged entry; in `deleteSet` a set bit is a batch index that is
  still to be acknowledged.
- Where a PositionInfo has both forms, brokers read the ranges and ignore the bit maps.

Source: apache/pulsar ManagedCursorImpl.java (recoverIndividualDeletedMessages, recoverBatchDeletedIndexes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Literal

from pulsar_meta.proto.MLDataFormats_pb2 import (
    BatchedEntryDeletionIndexInfo,
    LongListMap,
    ManagedCursorInfo,
    MessageRange,
    PositionInfo,
)

# Ranges, bit sets ("long arrays") as releases write them since apache/pulsar#9292, or nothing.
AckForm = Literal["ranges", "bitset", "none"]
_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Acks:
    """What is acknowledged individually, after the mark-delete position.

    `entries` maps a ledger to its acknowledged entries as (first, last), both inclusive, in the order of
    the record. `spanning` are ranges over several ledgers as ((ledger, entry) exclusive, (ledger, entry)).
    """

    entries: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    spanning: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)

    @property
    def range_count(self) -> int:
        """How many ranges there are."""
        return sum(map(len, self.entries.values())) + len(self.spanning)

    @property
    def entry_count(self) -> int:
        """How many entries are acknowledged, those of ranges over several ledgers not counted."""
        return sum([last - first + 1 for ranges in self.entries.values() for first, last in ranges])


def acks_of(state: ManagedCursorInfo | PositionInfo) -> Acks:
    """Return the acknowledged entries that a broker would read from a cursor's state."""
    if len(state.individualDeletedMessages) or isinstance(state, ManagedCursorInfo):
        return acks_of_ranges(state.individualDeletedMessages)
    return acks_of_bit_maps(state.individualDeletedMessageRanges)


def has_acks(state: ManagedCursorInfo | PositionInfo) -> bool:
    """Return whether a cursor's state has single acknowledgements in any form."""
    return bool(len(state.individualDeletedMessages)) or ack_form(state) != "none"


def ack_form(state: ManagedCursorInfo | PositionInfo) -> AckForm:
    """Return how the single acknowledgements are written down that a broker would read."""
    if len(state.individualDeletedMessages):
        return "ranges"
    by_bits = isinstance(state, PositionInfo) and len(state.individualDeletedMessageRanges)
    return "bitset" if by_bits else "none"


def acks_of_ranges(ranges: Iterable[MessageRange]) -> Acks:
    """Return what a list of ranges covers; empty ones cover nothing."""
    return acks_of_ends(range_ends(ranges))


def range_ends(ranges: Iterable[MessageRange]) -> list[int]:
    """Return four numbers for each range: ledger and entry of its lower end, then of its upper end."""
    ends: list[int] = []
    for item in ranges:
        lower, upper = item.lowerEndpoint, item.upperEndpoint
        ends += (lower.ledgerId, lower.entryId, upper.ledgerId, upper.entryId)
    return ends


def acks_of_ends(ends: Sequence[int]) -> Acks:
    """Return what ranges cover, by the numbers of `range_ends`."""
    lower, before, upper, last = ends[0::4], ends[1::4], ends[2::4], ends[3::4]
    if lower == upper and len(set(lower)) == 1 and all(map(lt, before, last)):
        # As almost all are.
        return Acks({lower[0]: [(entry + 1, end) for entry, end in zip(before, last, strict=True)]})
    acks = Acks()
    for first_ledger, entry, ledger, end in zip(lower, before, upper, last, strict=True):
        if first_ledger != ledger:
            acks.spanning.append(((first_ledger, entry), (ledger, end)))
        elif entry < end:
            acks.entries.setdefault(ledger, []).append((entry + 1, end))
    return acks


def acks_of_bit_maps(maps: Iterable[LongListMap]) -> Acks:
    """Return the runs of set bits; bit b of word w is entry 64·w+b."""
    acks = Acks()
    for item in maps:
        runs = list(set_runs(item.values))
        if runs:
            acks.entries.setdefault(item.key, []).extend(runs)
    return acks


def unacked_indexes(batch: BatchedEntryDeletionIndexInfo) -> list[tuple[int, int]]:
    """Return the runs of batch indexes that are still to be acknowledged, both ends inclusive."""
    return list(set_runs(batch.deleteSet))


def acked_indexes(unacked: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs of acknowledged batch indexes before the last unacknowledged one.

    Those after it are acknowledged too, but the size of the batch is not in the record.
    """
    ends = [-1, *(last for _, last in unacked)]
    return [
        (end + 1, first - 1) for end, (first, _) in zip(ends, unacked, strict=False) if end + 1 <= first - 1
    ]


def set_runs(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the runs of set bits of a java.util.BitSet as (first, last), both inclusive."""
    start = -1
    for at, signed in enumerate(words):
        word, base = signed & _WORD, 64 * at
        if start >= 0:
            ones = _trailing_ones(word)
            if ones == 64:
                continue
            yield start, base + ones - 1
            start, word = -1, word >> ones << ones
        while word:
            low = (word & -word).bit_length() - 1
            ones = _trailing_ones(word >> low)
            if low + ones == 64:
                start = base + low
                break
            yield base + low, base + low + ones - 1
            word = word >> (low + ones) << (low + ones)
    if start >= 0:
        yield start, 64 * len(words) - 1


def _trailing_ones(word: int) -> int:
    inverted = ~word & _WORD
    return (inverted & -inverted).bit_length() - 1 if inverted else 64
