"""The messages of an entry: decided like Pulsar's consumer does, and split exactly."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.compression import CODECS, compress
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import OpenedEntry, join_batch, open_entry, split_batch
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata

BATCH = [
    (
        SingleMessageMetadata(payload_size=0, partition_key=key, sequence_id=number),
        f"payload {number}".encode(),
    )
    for number, key in enumerate("abc")
]


def opened(payload: bytes, index: int | None = 9, **fields: Any) -> OpenedEntry:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, **fields)
    broker = None if index is None else BrokerEntryMetadata(index=index)
    return open_entry(decode_frame(encode_frame(metadata, payload, broker_metadata=broker)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_in_each_codec_is_opened(codec: str) -> None:
    raw = join_batch(BATCH)
    entry = opened(
        compress(codec, raw),
        compression=CODECS.index(codec),
        uncompressed_size=len(raw),
        num_messages_in_batch=3,
    )
    assert entry.unopened is None
    assert [(m.batch_index, m.index, bytes(m.payload)) for m in entry.messages] == [
        (0, 7, b"payload 0"), (1, 8, b"payload 1"), (2, 9, b"payload 2"),
    ]  # fmt: skip


def test_an_entry_is_a_batch_if_the_count_is_present() -> None:
    single = join_batch(BATCH[:1])
    (batched,) = opened(single, num_messages_in_batch=1).messages
    assert (batched.batch_index, bytes(batched.payload)) == (0, b"payload 0")
    (plain,) = opened(single).messages
    assert (plain.batch_index, plain.index, bytes(plain.payload)) == (None, 9, single)


def test_an_uncompressed_entry_ignores_the_uncompressed_size() -> None:
    (message,) = opened(b"hello", uncompressed_size=999).messages
    assert bytes(message.payload) == b"hello"


def test_messages_of_a_transactional_batch_share_one_index() -> None:
    entry = opened(join_batch(BATCH), num_messages_in_batch=3, txnid_most_bits=0, txnid_least_bits=1)
    assert [message.index for message in entry.messages] == [9, 9, 9]


def test_an_entry_without_broker_metadata_has_no_index() -> None:
    messages = opened(join_batch(BATCH), None, num_messages_in_batch=3).messages
    assert [message.index for message in messages] == [None, None, None]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"marker_type": 21}, "marker TXN_COMMIT"),
        ({"marker_type": 0}, "marker UNKNOWN"),
        ({"marker_type": 77}, "marker 77"),
        ({"encryption_keys": [{"key": "k", "value": b"v"}], "num_messages_in_batch": 3}, "encrypted"),
        ({"num_chunks_from_msg": 3, "chunk_id": 1, "compression": 1}, "chunk 2 of 3"),
    ],
)
def test_entries_that_cannot_be_opened_have_a_reason(fields: dict[str, Any], reason: str) -> None:
    assert opened(b"\xff\xff\xff\xff opaque", **fields) == OpenedEntry((), reason)


def test_a_single_chunk_is_a_message() -> None:
    assert [bytes(m.payload) for m in opened(b"whole", num_chunks_from_msg=1, chunk_id=0).messages] == [
        b"whole"
    ]


def test_messages_removed_by_compaction_are_marked() -> None:
    removed = (SingleMessageMetadata(payload_size=0, compacted_out=True), b"")
    entry = opened(join_batch([BATCH[0], removed, BATCH[2]]), num_messages_in_batch=3)
    assert [message.compacted_out for message in entry.messages] == [False, True, False]


def test_compacted_batches_without_placeholders_keep_the_original_indexes() -> None:
    entry = opened(join_batch([BATCH[0], BATCH[2]]), num_messages_in_batch=3, compacted_batch_indexes=[0, 2])
    assert [(message.batch_index, message.index) for message in entry.messages] == [(0, 7), (2, 9)]


@pytest.mark.parametrize(
    "fields",
    [
        {"num_messages_in_batch": 4},
        {"num_messages_in_batch": 2},
        {"num_messages_in_batch": 5, "compacted_batch_indexes": [0, 1, 7]},
        {"num_messages_in_batch": 2**31 - 1},
        {"num_messages_in_batch": 0},
        {"compression": 1, "uncompressed_size": 2**32 - 1},
        {"compression": 3, "uncompressed_size": 10},
    ],
)
def test_wrong_counts_and_sizes_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        opened(join_batch(BATCH), **fields)


@pytest.mark.parametrize(
    ("payload", "count", "complete"),
    [
        (join_batch(BATCH[:2]), 3, 2),
        (join_batch(BATCH)[:-1], 3, 2),
        (join_batch(BATCH) + b"x", 3, 3),
        (join_batch(BATCH), 2, 2),
        (b"\xff\xff", 3, 0),
    ],
)
def test_complete_messages_before_a_fault_are_returned(payload: bytes, count: int, complete: int) -> None:
    with pytest.raises(DecodeError):
        opened(payload, num_messages_in_batch=count)
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=count)
    frame = decode_frame(
        encode_frame(metadata, payload, broker_metadata=BrokerEntryMetadata(index=6 + count))
    )
    entry = open_entry(frame, partly=True)
    assert entry.fault is not None
    assert [(m.batch_index, m.index, bytes(m.payload)) for m in entry.messages] == [
        (place, 7 + place, b"payload %d" % place) for place in range(complete)
    ]


def test_an_unknown_compression_is_refused() -> None:
    metadata = (
        MessageMetadata(producer_name="p", sequence_id=0, publish_time=0).SerializeToString() + b"\x40\x09"
    )
    with pytest.raises(DecodeError, match="unknown compression 9"):
        open_entry(decode_frame(struct.pack(">I", len(metadata)) + metadata + b"payload"))


def test_a_batch_truncated_within_a_message_is_a_decode_error() -> None:
    batch = join_batch(BATCH)
    ends = {0, *(len(join_batch(BATCH[:count])) for count in (1, 2, 3))}
    for length in range(len(batch) + 1):
        if length in ends:
            assert len(list(split_batch(batch[:length], 3))) <= 3
        else:
            with pytest.raises(DecodeError):
                list(split_batch(batch[:length], 3))


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_hostile_sizes_are_decode_errors(size: int) -> None:
    with pytest.raises(DecodeError):
        list(split_batch(struct.pack(">i", size) + b"x" * 20, 1))
    head = SingleMessageMetadata(payload_size=size).SerializeToString()
    with pytest.raises(DecodeError):
        list(split_batch(struct.pack(">I", len(head)) + head + b"x" * 20, 1))


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(-3, 2**31 - 1))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes, count: int) -> None:
    for codec in range(5):
        try:
            opened(data, compression=codec, uncompressed_size=100, num_messages_in_batch=count)
        except DecodeError:
            continue


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=20), st.text(max_size=4), st.integers(0, 2**64 - 1)), max_size=9)
)
def test_batches_survive_a_round_trip(messages: list[tuple[bytes, str, int]]) -> None:
    batch = [
        (SingleMessageMetadata(payload_size=len(payload), partition_key=key, sequence_id=sequence), payload)
        for payload, key, sequence in messages
    ]
    decoded = [(metadata, bytes(payload)) for metadata, payload in split_batch(join_batch(batch), len(batch))]
    assert decoded == batch
