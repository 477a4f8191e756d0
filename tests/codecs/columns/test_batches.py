"""Splitting many batches at once agrees with the codec for a single batch, which gets the unusual ones."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pulsar_meta.codecs.columns.batches import split_batches, whole_batches
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.batch import join_batch, split_batch
from pulsar_meta.proto.PulsarApi_pb2 import SingleMessageMetadata


def message(chance: random.Random) -> tuple[SingleMessageMetadata, bytes]:
    metadata = SingleMessageMetadata()
    if chance.random() < 0.4:
        metadata.partition_key = "k" * chance.choice((1, 9, 24, 300))
    if chance.random() < 0.4:
        metadata.sequence_id = chance.choice((1, 2**35, 2**64 - 1))
    for _ in range(chance.choice((0, 0, 2))):
        metadata.properties.add(key=chance.choice(("region", "\x18")), value="e" * chance.randrange(200))
    return metadata, chance.randbytes(chance.choice((0, 5, 200)))


def batch(chance: random.Random) -> tuple[bytes, int]:
    count = chance.choice((1, 2, 3, 40))
    data = bytearray(join_batch([message(chance) for _ in range(count)]))
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
    return bytes(data), count + (chance.random() < 0.1)


def read(data: bytes, count: int) -> list[tuple[SingleMessageMetadata, bytes]] | None:
    """Read a batch with the codec for a single batch; return None unless it has `count` messages."""
    try:
        messages = [(metadata, bytes(payload)) for metadata, payload in split_batch(data, count)]
    except DecodeError:
        return None
    return messages if len(messages) == count else None


def test_splitting_many_batches_equals_splitting_each() -> None:
    chance = random.Random(1)
    batches = [batch(chance) for _ in range(400)]
    counts = np.array([count for _, count in batches])
    split = split_batches([data for data, _ in batches], counts)
    strings = split.heads.strings
    key = split.fields["partition_key"]
    for row, (data, count) in enumerate(batches):
        truth = read(data, count)
        if not split.whole[row]:
            continue
        assert truth is not None
        rows = np.flatnonzero(split.rows == row)
        assert split.places[rows].tolist() == list(range(count))
        for at, (metadata, payload) in zip(rows.tolist(), truth, strict=True):
            start = int(split.payload_at[at])
            assert split.data[start : start + int(split.payload_sizes[at])] == payload
            assert int(split.fields["sequence_id"].values[at]) == metadata.sequence_id
            assert bool(key.present[at]) == metadata.HasField("partition_key")
            text, _ = strings(np.array([at]), key.values[[at]].view(np.int64), key.sizes[[at]])
            # protobuf returns bytes if the text is not UTF-8.
            named: str | bytes = metadata.partition_key
            assert text.tobytes() == (named.encode() if isinstance(named, str) else named)
    assert (whole_batches([data for data, _ in batches], counts) == split.whole).all()
    good = [read(data, count) is not None for data, count in batches]
    assert split.whole.sum() > 0.9 * sum(good)
    assert not any(split.whole[row] and not is_good for row, is_good in enumerate(good))


def test_text_that_looks_like_a_tag_is_not_read_as_one() -> None:
    metadata = SingleMessageMetadata(partition_key="\x18\x05" * 12)
    data = join_batch([(metadata, b"payload")] * 3)
    for batches in ([data], [data] * 300, [data, join_batch([(SingleMessageMetadata(), b"")] * 3)]):
        counts = np.full(len(batches), 3)
        assert whole_batches(batches, counts).all()
        assert split_batches(batches, counts).whole.all()


@pytest.mark.parametrize("size", [3, 130])
def test_damage_that_the_codec_detects_is_never_missed(size: int) -> None:
    metadata = SingleMessageMetadata(partition_key="key", sequence_id=5, event_time=2**40)
    metadata.ordering_key, metadata.null_value = b"order", True
    metadata.properties.add(key="a", value="b")
    metadata.properties.add(key="region", value="e" * size)
    data = join_batch([(metadata, b"payload"), (metadata, b"")])
    damaged = [
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    ]
    intact = whole_batches(damaged, np.full(len(damaged), 2))
    assert (split_batches(damaged, np.full(len(damaged), 2)).whole == intact).all()
    accepted = [data for data, fits in zip(damaged, intact.tolist(), strict=True) if fits]
    assert 0 < len(accepted) < len(damaged)
    assert all(read(data, 2) is not None for data in accepted)


def test_a_single_long_batch_is_left_to_the_codec() -> None:
    data = join_batch([(SingleMessageMetadata(), b"x")] * 1000)
    assert split_batches([data], np.array([1000])).whole.tolist() == [False]
    assert split_batches([data] * 8, np.array([1000] * 8)).whole.all()


def test_an_empty_list_of_batches_has_no_messages() -> None:
    split = split_batches([], np.zeros(0, np.int64))
    assert (len(split.rows), len(split.whole)) == (0, 0)
