"""Checksums and digests of many entries: each payload is read once, and any damage is detected."""

from __future__ import annotations

import random

import google_crc32c
import numpy as np
import pytest

from pulsar_meta.codecs.columns.headers import PADDING, HeaderReader, crc32c_of, crc32c_of_words, joined
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import DigestType, decode_bookie_entry, encode_bookie_entry
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata


def frames() -> list[bytes]:
    """Build frames with and without broker metadata and a checksum, and with payloads of several sizes."""
    metadata = MessageMetadata(producer_name="p", sequence_id=5, publish_time=2**40)
    metadata.properties.add(key="region", value="eu")
    broker = BrokerEntryMetadata(broker_timestamp=2**40, index=70)
    return [
        encode_frame(metadata, b"payload" * size, broker_metadata=part, checksum=checked)
        for part in (broker, None)
        for checked in (True, False)
        for size in (0, 1, 60)
    ]


def is_intact(data: bytes, digest: DigestType) -> bool:
    """Return True if the codec for a single entry accepts the digest and the checksum."""
    try:
        entry = decode_bookie_entry(data, digest)
        frame = decode_frame(entry.data)
    except DecodeError:
        return False
    return entry.digest == "ok" and frame.checksum != "bad"


def intact(entries: list[bytes], digest: DigestType | None) -> list[bool]:
    data = b"".join([*entries, bytes(PADDING)])
    sizes = np.array([len(entry) for entry in entries])
    result: list[bool] = (
        HeaderReader(digest_type=digest).read(data, np.cumsum(sizes) - sizes, sizes).whole.tolist()
    )
    return result


@pytest.mark.parametrize("digest", ["CRC32C", "CRC32"])
def test_a_damaged_byte_never_passes(digest: DigestType) -> None:
    chance = random.Random(3)
    for frame in frames():
        entry = encode_bookie_entry(7, 300, 299, 70_000, frame, digest_type=digest)
        damaged = [
            entry[:at] + bytes([entry[at] ^ chance.randrange(1, 256)]) + entry[at + 1 :]
            for at in range(len(entry))
        ]
        assert intact([entry], digest) == [True]
        assert not any(intact(damaged, digest))
        assert not any(is_intact(data, digest) for data in damaged)


def test_a_wrong_checksum_with_a_correct_digest_is_detected() -> None:
    for frame in frames()[:3]:
        at = frame.index(b"\x0e\x01") + 2
        for place in range(at, at + 4):
            other = frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
            entry = encode_bookie_entry(7, 300, 299, 70_000, other)
            assert decode_bookie_entry(entry, "CRC32C").digest == "ok"
            assert intact([entry], "CRC32C") == [False]


@pytest.mark.usefixtures("backend")
def test_combined_checksums_equal_those_of_the_joined_data() -> None:
    chance = random.Random(4)
    texts = [(chance.randbytes(40), chance.randbytes(size)) for size in (0, 1, 255, 256, 70_000, 2**24 + 3)]
    data = b"".join(second for _, second in texts)
    sizes = np.array([len(second) for _, second in texts])
    ends = np.cumsum(sizes)
    table = np.frombuffer(b"".join(first for first, _ in texts), np.uint64).reshape(-1, 5)
    words = [np.ascontiguousarray(word) for word in table.T]
    sums = joined(crc32c_of_words(words, 37), crc32c_of(data, ends - sizes, ends), sizes)
    assert sums.tolist() == [google_crc32c.value(first[:37] + second) for first, second in texts]
