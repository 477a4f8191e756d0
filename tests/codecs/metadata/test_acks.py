"""Acknowledgements as bit sets and ranges, and the meaning of a managed ledger."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.documents.document import DecodeOptions, decode_document
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.metadata.acks import acked_indexes, acks_of, acks_of_ranges, set_runs, unacked_indexes
from pulsar_meta.codecs.metadata.envelope import decode_cursor, decode_position_info, stored_form
from pulsar_meta.codecs.metadata.managed_meaning import (
    IGNORED_BIT_MAPS,
    managed_ledger_meaning,
    position_meaning,
)
from pulsar_meta.proto.MLDataFormats_pb2 import (
    BatchedEntryDeletionIndexInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    MessageRange,
    NestedPositionInfo,
    PositionInfo,
)


def words_of(bits: set[int]) -> list[int]:
    words = [0] * (max(bits, default=-1) // 64 + 1)
    for bit in bits:
        words[bit // 64] |= 1 << bit % 64
    return [word - 2**64 if word >= 2**63 else word for word in words]


def message_range(lower: tuple[int, int], upper: tuple[int, int]) -> MessageRange:
    return MessageRange(
        lowerEndpoint=NestedPositionInfo(ledgerId=lower[0], entryId=lower[1]),
        upperEndpoint=NestedPositionInfo(ledgerId=upper[0], entryId=upper[1]),
    )


@settings(deadline=None)
@given(st.sets(st.integers(0, 400)) | st.sets(st.integers(0, 400)).map(lambda holes: set(range(300)) - holes))
def test_runs_cover_the_set_bits_and_never_touch(bits: set[int]) -> None:
    runs = list(set_runs(words_of(bits)))
    assert {bit for first, last in runs for bit in range(first, last + 1)} == bits
    assert all(run[1] + 1 < following[0] for run, following in pairwise(runs))


def test_runs_cross_words_and_include_bit_63() -> None:
    assert list(set_runs([])) == []
    assert list(set_runs([0, 0])) == []
    assert list(set_runs([-1, -1])) == [(0, 127)]
    assert list(set_runs([-(2**63), 1])) == [(63, 64)]
    assert list(set_runs([5, 0, 1])) == [(0, 0), (2, 2), (128, 128)]


def test_a_range_is_exclusive_below_and_inclusive_above() -> None:
    acks = acks_of_ranges([message_range((5, -1), (5, 0)), message_range((5, 3), (5, 7))])
    assert acks.entries == {5: [(0, 0), (4, 7)]}
    assert (acks.entry_count, acks.range_count) == (5, 2)


def test_a_range_over_two_ledgers_is_kept_separate() -> None:
    acks = acks_of_ranges([message_range((5, 3), (6, 7)), message_range((7, 4), (7, 4))])
    assert acks.spanning == [((5, 3), (6, 7))]
    assert acks.entries == {}


def test_ranges_take_precedence_over_bit_maps() -> None:
    position = PositionInfo(ledgerId=1, entryId=1)
    position.individualDeletedMessageRanges.add(key=9, values=[6])
    assert acks_of(position).entries == {9: [(1, 2)]}
    position.individualDeletedMessages.append(message_range((1, 1), (1, 3)))
    assert acks_of(position).entries == {1: [(2, 3)]}
    assert position_meaning(position)["note"] == IGNORED_BIT_MAPS


def test_a_set_bit_of_a_batch_is_still_to_be_acknowledged() -> None:
    position = NestedPositionInfo(ledgerId=1, entryId=1)
    batch = BatchedEntryDeletionIndexInfo(position=position, deleteSet=[0b111010])
    assert unacked_indexes(batch) == [(1, 1), (3, 5)]
    assert acked_indexes(unacked_indexes(batch)) == [(0, 0), (2, 2)]
    assert acked_indexes([]) == []


def test_unordered_duplicate_and_uncounted_ledgers_are_reported() -> None:
    info = ManagedLedgerInfo()
    for number, entries in [(9, None), (5, 3), (5, 3), (7, None)]:
        info.ledgerInfo.add(ledgerId=number, entries=entries)
    meaning = managed_ledger_meaning(info)
    assert (meaning["unordered"], meaning["duplicate_ledgers"]) == (True, [5])
    assert (meaning["ledgers_without_entries"], meaning["open_ledger"]) == ([7], 9)
    assert (meaning["first_ledger"], meaning["last_ledger"], meaning["entries"]) == (5, 9, 6)


def test_the_offload_has_a_uuid_and_a_time() -> None:
    info = ManagedLedgerInfo()
    context = info.ledgerInfo.add(ledgerId=1, entries=1).offloadContext
    context.uidMsb, context.uidLsb = -0x1EDCBA9876543211, 0x7FFFFFFFFFFFFFFF
    context.timestamp = 1_700_000_000_000
    offload = managed_ledger_meaning(info)["ledgers"][0]["offload"]
    assert offload["uuid"] == "e1234567-89ab-cdef-7fff-ffffffffffff"
    assert offload["time"] == "2023-11-14T22:13:20.000Z"


EVERY_SECOND_BIT = 0x5555555555555555


@pytest.mark.parametrize("words", [32_769, 200_000])
def test_too_many_runs_are_an_error_and_no_memory(words: int) -> None:
    cursor = ManagedCursorInfo(
        cursorsLedgerId=-1,
        batchedEntryDeletionIndexInfo=[
            {"position": {"ledgerId": 5, "entryId": 0}, "deleteSet": [EVERY_SECOND_BIT] * words}
        ],
    )
    position = PositionInfo(
        ledgerId=5,
        entryId=-1,
        individualDeletedMessageRanges=[{"key": 5, "values": [EVERY_SECOND_BIT] * words}],
    )
    stored = stored_form(cursor.SerializeToString(), "zstd")
    assert len(stored) < 1000
    with pytest.raises(DecodeError, match="more than 1048576 runs"):
        decode_cursor(stored)
    with pytest.raises(DecodeError, match="more than 1048576 runs"):
        decode_position_info(position.SerializeToString())
    for kind, data in (("ManagedCursorInfo", stored), ("PositionInfo", position.SerializeToString())):
        decoded = decode_document(data, source="s", options=DecodeOptions(kind=kind))
        assert decoded.document["value"] is None
        assert "runs" in decoded.document["error"]["message"]


@pytest.mark.parametrize(("word", "words"), [(EVERY_SECOND_BIT, 32_768), (-1, 200_000), (0, 200_000)])
def test_long_bit_sets_with_few_runs_are_read(word: int, words: int) -> None:
    position = PositionInfo(
        ledgerId=5, entryId=-1, individualDeletedMessageRanges=[{"key": 5, "values": [word] * words}]
    )
    assert decode_position_info(position.SerializeToString()).ledgerId == 5
