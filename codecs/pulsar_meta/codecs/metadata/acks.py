"""Decode a cursor's acknowledgements: entries by ledger, and batch indexes inside entries.

- A MessageRange excludes its lower end and includes its upper end. If the ends are in two ledgers (old
  records), the entries that it covers depend on the sizes of the ledgers.
- In a LongListMap, a set bit is an acknowledged entry. In `deleteSet`, a set bit is a batch index that is not
  acknowledged yet.
- If a PositionInfo has both forms, brokers read the ranges and ignore the bit maps.

Source: apache/pulsar ManagedCursorImpl.java (recoverIndividualDeletedMessages, recoverBatchDeletedIndexes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import lt
from typing import Literal

from pulsar_meta.codecs.errors import LimitError
from pulsar_meta.proto.MLDataFormats_pb2 import (
    BatchedEntryDeletionIndexInfo,
    LongListMap,
    ManagedCursorInfo,
    MessageRange,
    PositionInfo,
)

# Ranges, bit sets ("long arrays", since apache/pulsar#9292), or no acknowledgements.
AckForm = Literal["ranges", "bitset", "none"]
_WORD = 2**64 - 1
# The largest number of runs in the bit sets of a cursor. By default, brokers write 10000 ranges
# (managedLedgerMaxUnackedRangesToPersist). A few hundred compressed bytes can claim millions.
MAX_RUNS = 1 << 20
# Fewer words than this can't have more runs.
_HARMLESS_WORDS = MAX_RUNS // 32


@dataclass(frozen=True, slots=True)
class Acks:
    """Individual acknowledgements after the mark-delete position.

    `entries` maps a ledger to its acknowledged entries as (first, last), both inclusive, in the order of the
    record. `spanning` has ranges over several ledgers, each as two (ledger, entry): the first is excluded,
    the second included.
    """

    entries: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    spanning: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)

    @property
    def range_count(self) -> int:
        """The number of ranges."""
        return sum(map(len, self.entries.values())) + len(self.spanning)

    @property
    def entry_count(self) -> int:
        """The number of acknowledged entries, without ranges over several ledgers."""
        return sum([last - first + 1 for ranges in self.entries.values() for first, last in ranges])


def acks_of(state: ManagedCursorInfo | PositionInfo) -> Acks:
    """Return the acknowledgements that a broker would read from a cursor's state."""
    if len(state.individualDeletedMessages) or isinstance(state, ManagedCursorInfo):
        return acks_of_ranges(state.individualDeletedMessages)
    return acks_of_bit_maps(state.individualDeletedMessageRanges)


def check_bit_sets(state: ManagedCursorInfo | PositionInfo, size: int) -> None:
    """Raise LimitError if the bit sets of a cursor's state have more than `MAX_RUNS` runs together.

    `size` is the size of the state's message in bytes.
    """
    if size <= _HARMLESS_WORDS:
        # A word takes at least one byte. Almost all states are small, and reading their fields is slow.
        return
    bit_sets = [batch.deleteSet for batch in state.batchedEntryDeletionIndexInfo]
    if isinstance(state, PositionInfo):
        bit_sets += [item.values for item in state.individualDeletedMessageRanges]
    if sum(map(len, bit_sets)) <= _HARMLESS_WORDS:
        return
    runs = 0
    for words in bit_sets:
        # A run begins at each set bit after a clear bit. Runs over several words count more than once.
        runs += sum((word & ~(word << 1) & _WORD).bit_count() for word in words if word not in (0, -1))
        if runs > MAX_RUNS:
            raise LimitError(f"the bit sets have more than {MAX_RUNS} runs (read the bytes with -o raw)")


def has_acks(state: ManagedCursorInfo | PositionInfo) -> bool:
    """Return True if a cursor's state has individual acknowledgements in any form."""
    return bool(len(state.individualDeletedMessages)) or ack_form(state) != "none"


def ack_form(state: ManagedCursorInfo | PositionInfo) -> AckForm:
    """Return the form of the individual acknowledgements that a broker would read."""
    if len(state.individualDeletedMessages):
        return "ranges"
    by_bits = isinstance(state, PositionInfo) and len(state.individualDeletedMessageRanges)
    return "bitset" if by_bits else "none"


def acks_of_ranges(ranges: Iterable[MessageRange]) -> Acks:
    """Return the acknowledgements in a list of ranges."""
    return acks_of_ends(range_ends(ranges))


def range_ends(ranges: Iterable[MessageRange]) -> list[int]:
    """Return four numbers per range: ledger and entry of its lower end, then of its upper end."""
    ends: list[int] = []
    for item in ranges:
        lower, upper = item.lowerEndpoint, item.upperEndpoint
        ends += (lower.ledgerId, lower.entryId, upper.ledgerId, upper.entryId)
    return ends


def acks_of_ends(ends: Sequence[int]) -> Acks:
    """Return the acknowledgements in ranges, given as numbers by `range_ends`. Empty ranges are ignored."""
    lower, before, upper, last = ends[0::4], ends[1::4], ends[2::4], ends[3::4]
    if lower == upper and len(set(lower)) == 1 and all(map(lt, before, last)):
        # A shortcut for the usual case: all ranges in one ledger, none of them empty.
        return Acks({lower[0]: [(entry + 1, end) for entry, end in zip(before, last, strict=True)]})
    acks = Acks()
    for first_ledger, entry, ledger, end in zip(lower, before, upper, last, strict=True):
        if first_ledger != ledger:
            acks.spanning.append(((first_ledger, entry), (ledger, end)))
        elif entry < end:
            acks.entries.setdefault(ledger, []).append((entry + 1, end))
    return acks


def acks_of_bit_maps(maps: Iterable[LongListMap]) -> Acks:
    """Return the acknowledgements in bit maps; bit b of word w is entry 64·w+b."""
    acks = Acks()
    for item in maps:
        runs = list(set_runs(item.values))
        if runs:
            acks.entries.setdefault(item.key, []).extend(runs)
    return acks


def unacked_indexes(batch: BatchedEntryDeletionIndexInfo) -> list[tuple[int, int]]:
    """Return the runs of batch indexes that are not acknowledged, both ends inclusive."""
    return list(set_runs(batch.deleteSet))


def acked_indexes(unacked: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs of acknowledged batch indexes before the last unacknowledged one.

    All later indexes are acknowledged, too, but the record does not have the size of the batch.
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
