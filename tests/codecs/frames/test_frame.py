"""Entry frames: their four shapes, damage, and the indexes that follow from Pulsar's rules."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.backends import crc32c
from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.frame import decode_frame, encode_frame, split_broker_metadata
from pulsar_meta.proto.PulsarApi_pb2 import BrokerEntryMetadata, MessageMetadata

# Made by hand after PIP-70 and Commands.java: 9 bytes of broker metadata, a checksum, "hello".
BROKER = bytes.fromhex("0e02000000090880d095ffbc311004")
CHECKSUM = bytes.fromhex("0e01064f1851")
REST = bytes.fromhex("0000000f0a02703110071880d095ffbc31480568656c6c6f")
SHAPES = {
    "broker and checksum": BROKER + CHECKSUM + REST,
    "broker only": BROKER + REST,
    "checksum only": CHECKSUM + REST,
    "neither": REST,
}
HOSTILE = (-1, -(2**31), 2**31 - 1, 40)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_survives_a_round_trip(shape: str) -> None:
    data = SHAPES[shape]
    frame = decode_frame(data)
    assert (frame.index, frame.broker_timestamp) == (
        (4, 1700000000000) if "broker" in shape else (None, None)
    )
    assert frame.checksum == ("ok" if "checksum" in shape else "absent")
    assert (frame.metadata.producer_name, frame.metadata.sequence_id) == ("p1", 7)
    assert bytes(frame.payload) == b"hello"
    assert bytes(data[frame.metadata_offset :]) == REST
    written = encode_frame(
        frame.metadata,
        frame.payload,
        broker_metadata=frame.broker_metadata,
        checksum=frame.stored_checksum is not None,
    )
    assert written == data


@pytest.mark.parametrize("shape", SHAPES)
def test_truncated_frames_are_refused_or_fail_their_checksum(shape: str) -> None:
    data = SHAPES[shape]
    start_of_payload = len(data) - len(b"hello")
    for length in range(len(data)):
        if length < start_of_payload:
            with pytest.raises(DecodeError):
                decode_frame(data[:length])
        else:
            # The payload extends to the end of the entry, so only the checksum can reveal the truncation.
            frame = decode_frame(data[:length])
            assert frame.checksum == ("bad" if "checksum" in shape else "absent")


def test_trailing_bytes_fail_the_checksum() -> None:
    assert decode_frame(SHAPES["broker and checksum"] + b"x").checksum == "bad"


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize(("before", "after"), [(b"\x0e\x02", BROKER[6:] + REST), (CHECKSUM, REST[4:])])
def test_hostile_sizes_are_refused_with_their_offset(before: bytes, after: bytes, size: int) -> None:
    with pytest.raises(DecodeError, match="claims") as caught:
        decode_frame(before + struct.pack(">I", size & 0xFFFFFFFF) + after)
    assert caught.value.offset == len(before)


def test_a_frame_without_required_fields_is_refused() -> None:
    with pytest.raises(DecodeError, match="producer_name"):
        decode_frame(bytes.fromhex("00000002 1007"))


def test_unknown_broker_metadata_survives() -> None:
    broker = BrokerEntryMetadata.FromString(b"\x08\x01\x10\x02" + b"\x9a\x06\x03abc")
    frame = decode_frame(encode_frame(MessageMetadata(producer_name="p", sequence_id=0, publish_time=0), b""))
    data = encode_frame(frame.metadata, b"", broker_metadata=broker)
    metadata = decode_frame(data).broker_metadata
    assert metadata is not None
    assert metadata.SerializeToString().endswith(b"abc")
    assert split_broker_metadata(data)[0] == broker


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (9, 9)),
        ({"num_messages_in_batch": 1}, (9, 9)),
        ({"num_messages_in_batch": 4}, (6, 9)),
        ({"num_messages_in_batch": 4, "txnid_most_bits": 0, "txnid_least_bits": 0}, (9, 9)),
        ({"num_messages_in_batch": 40}, (-30, 9)),
        ({"num_messages_in_batch": -3}, (9, 9)),
    ],
)
def test_the_index_range_follows_from_the_batch_size(
    fields: dict[str, int], expected: tuple[int, int]
) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, **fields)  # type: ignore[arg-type]
    frame = decode_frame(encode_frame(metadata, b"", broker_metadata=BrokerEntryMetadata(index=9)))
    assert frame.index_range == expected


@pytest.mark.usefixtures("backend")
def test_crc32c_can_be_continued() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"1234", memoryview(b"56789")) == 0xE3069283


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes) -> None:
    for candidate in (data, BROKER + data, CHECKSUM + data):
        try:
            decode_frame(candidate)
        except DecodeError:
            continue


u64 = st.integers(0, 2**64 - 1)


@settings(deadline=None)
@given(
    u64, u64, u64, st.binary(max_size=50), st.booleans(), st.none() | st.tuples(u64, u64),
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=3),
)  # fmt: skip
def test_frames_survive_a_round_trip(
    sequence: int, published: int, event: int, payload: bytes, checksum: bool,
    broker: tuple[int, int] | None, properties: list[tuple[str, str]],
) -> None:  # fmt: skip
    metadata = MessageMetadata(
        producer_name="p", sequence_id=sequence, publish_time=published, event_time=event
    )
    for key, value in properties:
        metadata.properties.add(key=key, value=value)
    broker_metadata = (
        None if broker is None else BrokerEntryMetadata(broker_timestamp=broker[0], index=broker[1])
    )
    frame = decode_frame(encode_frame(metadata, payload, broker_metadata=broker_metadata, checksum=checksum))
    assert (frame.metadata, frame.broker_metadata, bytes(frame.payload)) == (
        metadata,
        broker_metadata,
        payload,
    )
    assert frame.checksum == ("ok" if checksum else "absent")
