"""What can still be read of records that are cut, or whose envelope is wrong."""

from __future__ import annotations

from random import Random

import pytest

from pulsar_meta.codecs.compression import CODECS, LIMITS
from pulsar_meta.codecs.errors import LimitError
from pulsar_meta.codecs.metadata.envelope import open_envelope, read_header, wrap_envelope
from pulsar_meta.jobs.repair.salvage import salvage
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedCursorInfo


def cursor(ranges: int = 300) -> ManagedCursorInfo:
    """Make a cursor's record with ranges of irregular sizes."""
    info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=123456, markDeleteEntryId=789)
    rng, entry = Random(5), 1000
    for _ in range(ranges):
        item = info.individualDeletedMessages.add()
        item.lowerEndpoint.ledgerId = item.upperEndpoint.ledgerId = 123456
        item.lowerEndpoint.entryId = entry
        item.upperEndpoint.entryId = entry = entry + rng.randrange(1, 50)
        entry += rng.randrange(1, 99)
    return info


def with_header(value: bytes, codec: int, size: int) -> bytes:
    """Replace what an envelope says about its message."""
    header = bytes((8, codec, 16)) + (varint(size))
    return value[:2] + len(header).to_bytes(4, "big") + header + value[read_header(value).body_at :]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("size", [1, 10**6])
def test_a_wrong_size_loses_nothing(codec: str, size: int) -> None:
    value = wrap_envelope(cursor().SerializeToString(), codec)
    found = salvage(ManagedCursorInfo, with_header(value, CODECS.index(codec), size))
    assert (found.message, found.complete) == (cursor(), True)
    assert found.how.startswith("only the size in its envelope is wrong")


@pytest.mark.parametrize("codec", CODECS)
def test_a_wrong_codec_loses_nothing(codec: str) -> None:
    payload = cursor().SerializeToString()
    value = wrap_envelope(payload, codec)
    for other in {0, 1, 2, 3, 4, 9} - {CODECS.index(codec)}:
        found = salvage(ManagedCursorInfo, with_header(value, other, len(payload)))
        assert (found.message, found.complete) == (cursor(), codec != "none"), other


@pytest.mark.parametrize("codec", [*CODECS, None])
def test_the_position_of_a_truncated_record_is_read(codec: str | None) -> None:
    payload = cursor().SerializeToString()
    value = payload if codec is None else wrap_envelope(payload, codec)
    for share in (0.9, 0.5, 0.3):
        found = salvage(ManagedCursorInfo, value[: int(len(value) * share)])
        if codec == "zstd":
            # The whole record is one block, which is decompressed completely or not at all.
            continue
        assert not found.complete
        message = found.message
        assert (message.markDeleteLedgerId, message.markDeleteEntryId) == (123456, 789)
        whole = [item for item in message.individualDeletedMessages if item.IsInitialized()]
        assert whole == list(cursor().individualDeletedMessages)[: len(whole)]
        assert whole


def test_every_cut_of_each_codec_gives_a_prefix_of_the_ranges() -> None:
    expected = list(cursor(40).individualDeletedMessages)
    for codec in CODECS:
        value = wrap_envelope(cursor(40).SerializeToString(), codec)
        opened = open_envelope(value)
        assert opened is not None
        for end in range(2, len(value)):
            found = salvage(ManagedCursorInfo, value[:end])
            message = found.message
            assert not found.complete
            ranges = [item for item in message.individualDeletedMessages if item.IsInitialized()]
            assert ranges == expected[: len(ranges)], (codec, end)
            if message.HasField("markDeleteEntryId"):
                assert message.markDeleteEntryId == 789, (codec, end)


@pytest.mark.parametrize("value", [b"", b"\xff garbage", b"\x47\x78", b"\x47\x78garbage in an envelope"])
def test_garbage_gives_nothing(value: bytes) -> None:
    found = salvage(ManagedCursorInfo, value)
    assert (found.message, found.complete, found.how) == (ManagedCursorInfo(), False, "")


def test_a_record_that_is_only_too_large_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    record = cursor()
    record.cursorProperties.add(name="x", value="x" * 3_000_000)
    value = wrap_envelope(record.SerializeToString(), "zstd")
    assert salvage(ManagedCursorInfo, value).complete
    monkeypatch.setattr(LIMITS, "max_unpacked", 1 << 20)
    with pytest.raises(LimitError):
        salvage(ManagedCursorInfo, value)
