"""What is in an entry: decided as Pulsar's consumer decides, split to the byte."""

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
def test_a_batch_in_each_codec(codec: str) -> None:
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


def test_presence_makes_a_batch_not_the_count() -> None:
    one = join_batch(BATCH[:1])
    (batched,) = opened(one, num_messages_in_batch=1).messages
    assert (batched.batch_index, bytes(batched.payload)) == (0, b"payload 0")
    (plain,) = opened(one).messages
    assert (plain.batch_index, plain.index, bytes(plain.payload)) == (None, 9, one)


def test_a_size_on_an_uncompressed_entry_decides_nothing() -> None:
    (message,) = opened(b"hello", uncompressed_size=999).messages
    assert bytes(message.payload) == b"hello"


def test_every_message_of_a_batch_in_a_transaction_has_the_index_of_one() -> None:
    entry = opened(join_batch(BATCH), num_messages_in_batch=3, txnid_most_bits=0, txnid_least_bits=1)
    assert [message.index for message in entry.messages] == [9, 9, 9]


def test_without_broker_metadata_there_is_no_index() -> None:
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
def test_what_cannot_be_opened_says_why(fields: dict[str, Any], reason: str) -> None:
    assert opened(b"\xff\xff\xff\xff opaque", **fields) == OpenedEntry((), reason)


def test_one_chunk_of_one_is_a_message() -> None:
    assert [bytes(m.payload) for m in opened(b"whole", num_chunks_from_msg=1, chunk_id=0).messages] == [
        b"whole"
    ]


def test_placeholders_of_compaction_are_shown_as_such() -> None:
    gone = (SingleMessageMetadata(payload_size=0, compacted_out=True), b"")
    entry = opened(join_batch([BATCH[0], gone, BATCH[2]]), num_messages_in_batch=3)
    assert [message.compacted_out for message in entry.messages] == [False, True, False]


def test_batches_that_kept_no_placeholders_are_numbered_by_what_was_kept() -> None:
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
def test_what_does_not_fit_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        opened(join_batch(BATCH), **fields)


@pytest.mark.parametrize(
    ("payload", "count", "whole"),
    [
        (join_batch(BATCH[:2]), 3, 2),
        (join_batch(BATCH)[:-1], 3, 2),
        (join_batch(BATCH) + b"x", 3, 3),
        (join_batch(BATCH), 2, 2),
        (b"\xff\xff", 3, 0),
    ],
)
def test_the_whole_messages_before_a_fault(payload: bytes, count: int, whole: int) -> None:
    with pytest.raises(DecodeError):
        opened(payload, num_messages_in_batch=count)
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=count)
    frame = decode_frame(
        encode_frame(metadata, payload, broker_metadata=BrokerEntryMetadata(index=6 + count))
    )
    entry = open_entry(frame, partly=True)
    assert entry.fault is not None
    assert [(m.batch_index, m.index, bytes(m.payload)) for m in entry.messages] == [
        (place, 7 + place, b"payload %d" % place) for place in range(whole)
    ]


def test_a_compression_that_does_not_exist_is_refused() -> None:
    head = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0).SerializeToString() + b"\x40\x09"
    with pytest.raises(DecodeError, match="number 9"):
        open_entry(decode_frame(struct.pack(">I", len(head)) + head + b"payload"))


def test_a_batch_truncated_at_every_length() -> None:
    whole = join_batch(BATCH)
    ends = {0, *(len(join_batch(BATCH[:count])) for count in (1, 2, 3))}
    for length in range(len(whole) + 1):
        if length in ends:
            assert len(list(split_batch(whole[:length], 3))) <= 3
        else:
            with pytest.raises(DecodeError):
                list(split_batch(whole[:length], 3))


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1])
def test_hostile_sizes(size: int) -> None:
    with pytest.raises(DecodeError):
        list(split_batch(struct.pack(">i", size) + b"x" * 20, 1))
    head = SingleMessageMetadata(payload_size=size).SerializeToString()
    with pytest.raises(DecodeError):
        list(split_batch(struct.pack(">I", len(head)) + head + b"x" * 20, 1))


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(-3, 2**31 - 1))
def test_nothing_but_decode_error_leaves(data: bytes, count: int) -> None:
    for codec in range(5):
        try:
            opened(data, compression=codec, uncompressed_size=100, num_messages_in_batch=count)
        except DecodeError:
            continue


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.binary(max_size=20), st.text(max_size=4), st.integers(0, 2**64 - 1)), max_size=9)
)
def test_round_trip(messages: list[tuple[bytes, str, int]]) -> None:
    batch = [
        (SingleMessageMetadata(payload_size=len(payload), partition_key=key, sequence_id=sequence), payload)
        for payload, key, sequence in messages
    ]
    found = [(metadata, bytes(payload)) for metadata, payload in split_batch(join_batch(batch), len(batch))]
    assert found == batch
