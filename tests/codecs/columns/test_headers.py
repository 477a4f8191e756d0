"""Sums of many entries: both are computed from one pass over the payload, and damage anywhere is seen."""

from __future__ import annotations

import random

import google_crc32c
import numpy as np
import pytest

from pulsar_meta.codecs.columns.headers import PADDING, HeaderReader
from pulsar_meta.codecs.columns.sums import crc32c_of, crc32c_of_words, joined
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata


def frames() -> list[bytes]:
    """Return frames with and without the broker's part and a checksum, short ones and a long one."""
    metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=2**40)
    metadata.properties.add(key="region", value="eu")
    broker = BrokerEntryMetadata(broker_timestamp=2**40, index=70)
    return [
        encode_frame(metadata, b"payload" * size, broker_metadata=one, checksum=checked)
        for one in (broker, None)
        for checked in (True, False)
        for size in (0, 1, 60)
    ]


def fits(data: bytes, digest: DigestType) -> bool:
    """Return whether the codec for one entry finds nothing wrong with both sums."""
    try:
        entry = decode_bookie_entry(data, digest)
        frame = decode_frame(entry.data)
    except DecodeError:
        return False
    return entry.digest == "ok" and frame.checksum != "bad"


def whole(entries: list[bytes], digest: DigestType | None) -> list[bool]:
    data = b"".join([*entries, bytes(PADDING)])
    sizes = np.array([len(entry) for entry in entries])
    found: list[bool] = (
        HeaderReader(digest_type=digest).read(data, np.cumsum(sizes) - sizes, sizes).whole.tolist()
    )
    return found


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32"])
def test_a_damaged_byte_never_passes(digest: DigestType) -> None:
    chance = random.Random(3)
    for frame in frames():
        entry = encode_bookie_entry(7, 300, 299, 70_000, frame, digest_type=digest)
        damaged = [
            entry[:at] + bytes([entry[at] ^ chance.randrange(1, 256)]) + entry[at + 1 :]
            for at in range(len(entry))
        ]
        assert whole([entry], digest) == [True]
        assert not any(whole(damaged, digest))
        assert not any(fits(one, digest) for one in damaged)


def test_a_checksum_that_does_not_fit_a_digest_that_does_is_seen() -> None:
    for frame in frames()[:3]:
        at = frame.index(b"\x0e\x01") + 2
        for place in range(at, at + 4):
            other = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
            entry = encode_bookie_entry(7, 300, 299, 70_000, other)
            assert decode_bookie_entry(entry, "CRC32C").digest == "ok"
            assert whole([entry], "CRC32C") == [False]


def test_joined_sums_are_those_of_the_whole() -> None:
    chance = random.Random(4)
    texts = [(chance.randbytes(40), chance.randbytes(size)) for size in (0, 1, 255, 256, 70_000, 2**24 + 3)]
    data = b"".join(second for _, second in texts)
    sizes = np.array([len(second) for _, second in texts])
    ends = np.cumsum(sizes)
    table = np.frombuffer(b"".join(first for first, _ in texts), np.uint64).reshape(-1, 5)
    words = [np.ascontiguousarray(word) for word in table.T]
    found = joined(crc32c_of_words(words, 37), crc32c_of(data, ends - sizes, ends), sizes)
    assert found.tolist() == [google_crc32c.value(first[:37] + second) for first, second in texts]
