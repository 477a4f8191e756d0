"""The compression envelope with each codec, and with hostile numbers in every field."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import lz4.block
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs import backends
from pulsar_meta.codecs.compression import CODECS, DEFAULT_MAX_SIZE, Limits, compress, decompress
from pulsar_meta.codecs.errors import DecodeError, LimitError, UsageError
from pulsar_meta.codecs.metadata.envelope import open_envelope, read_header, stored_form, wrap_envelope
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfoMetadata
from tests.nightly import examples

codecs = pytest.mark.parametrize("codec", CODECS)
RAW = b"ledger" * 50 + bytes(range(256))


def envelope(header: bytes, body: bytes, *, size: int | None = None) -> bytes:
    header_size = len(header) if size is None else size
    return b"Gx" + header_size.to_bytes(4, "big", signed=True) + header + body


def header(codec: int, raw_size: int) -> bytes:
    message = ManagedLedgerInfoMetadata(uncompressedSize=raw_size)
    message.MergeFromString(bytes([0x08, codec]))
    return message.SerializePartialToString()


@pytest.mark.usefixtures("backend")
@codecs
@settings(max_examples=examples(40), deadline=None)
@given(raw=st.binary(max_size=3000) | st.binary(min_size=1, max_size=3).map(lambda part: part * 500))
def test_envelopes_survive_a_round_trip(codec: str, raw: bytes) -> None:
    sealed = wrap_envelope(raw, codec)
    opened = open_envelope(sealed)
    assert opened is not None
    assert (opened.codec, opened.payload) == (codec, raw)
    assert (opened.stored_size, opened.raw_size) == (len(sealed), len(raw))


@pytest.mark.usefixtures("backend")
@codecs
def test_a_truncated_envelope_is_an_error(codec: str) -> None:
    sealed = wrap_envelope(RAW, codec)
    for size in range(2, len(sealed)):
        with pytest.raises(DecodeError) as caught:
            open_envelope(sealed[:size])
        assert caught.value.offset is not None
        assert caught.value.offset <= size


@pytest.mark.usefixtures("backend")
@codecs
def test_extra_bytes_after_the_compressed_message_are_an_error(codec: str) -> None:
    with pytest.raises(DecodeError):
        open_envelope(wrap_envelope(RAW, codec) + b"\x00")


@pytest.mark.parametrize("codec", CODECS[1:])
def test_an_empty_message_survives(codec: str) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(DecodeError):
        decompress(codec, compress(codec, b"") + b"\x00", 0)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 2**31 - 1, 1000])
def test_a_hostile_header_size_is_an_error(size: int) -> None:
    with pytest.raises(DecodeError, match="envelope"):
        open_envelope(envelope(header(3, 10), compress("zstd", b"0123456789"), size=size))


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("raw_size", [-1, -(2**31), 0, 5, 11, 200, 2**31 - 1])
def test_a_hostile_raw_size_is_an_error(codec: int, raw_size: int) -> None:
    body = compress(CODECS[codec], b"0123456789")
    with pytest.raises(DecodeError):
        open_envelope(envelope(header(codec, raw_size), body))


@pytest.mark.parametrize("codec", [5, 9, 127])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(DecodeError, match=f"unknown compression type {codec}"):
        open_envelope(envelope(header(codec, 10), b"0123456789"))


@pytest.mark.parametrize("bytes_of_header", [b"", b"\x08\x03", b"\x10\x05", b"\xff\xff", b"\x08"])
def test_a_header_without_its_fields_is_an_error(bytes_of_header: bytes) -> None:
    with pytest.raises(DecodeError, match="envelope"):
        read_header(envelope(bytes_of_header, b"abc"))


@pytest.mark.usefixtures("backend")
def test_a_claim_of_two_gigabytes_takes_no_memory() -> None:
    bomb = envelope(header(3, 2**31 - 1), compress("zstd", bytes(100)))
    tracemalloc.start()
    with pytest.raises(DecodeError, match=r"2147483647.*max-size"):
        open_envelope(bomb)
    with pytest.raises(DecodeError, match="2147483647"):
        open_envelope(bomb, max_size=2**31 - 1)
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()


@pytest.mark.usefixtures("backend")
@codecs
def test_the_caller_sets_the_size_limit(codec: str) -> None:
    assert decompress(codec, compress(codec, RAW), len(RAW), max_size=len(RAW)) == RAW
    with pytest.raises(DecodeError, match="max-size"):
        decompress(codec, compress(codec, RAW), len(RAW), max_size=len(RAW) - 1)
    assert DEFAULT_MAX_SIZE == 256 * 1024 * 1024


@pytest.mark.usefixtures("backend")
def test_streams_of_java_and_other_writers_are_read() -> None:
    flushed = zlib.compressobj()
    stream = flushed.compress(RAW) + flushed.flush(zlib.Z_SYNC_FLUSH)
    assert stream.endswith(b"\x00\x00\xff\xff")
    assert decompress("zlib", stream, len(RAW)) == RAW
    for damaged in (*(stream[:-cut] for cut in range(1, 5)), stream + b"\x00", stream + b"garbage"):
        with pytest.raises(DecodeError):
            decompress("zlib", damaged, len(RAW))
    assert decompress("zlib", b"", 0) == b""
    for has_size, checksum in [(True, True), (True, False), (False, True), (False, False)]:
        writer = zstandard.ZstdCompressor(write_content_size=has_size, write_checksum=checksum)
        frame = writer.compress(RAW)
        assert decompress("zstd", frame, len(RAW)) == RAW
        for cut in range(len(frame)):
            with pytest.raises(DecodeError):
                decompress("zstd", frame[:cut], len(RAW))
    assert decompress("lz4", lz4.block.compress(RAW, store_size=False), len(RAW)) == RAW
    assert decompress("snappy", snappy.compress(RAW), len(RAW)) == RAW


def test_small_libraries_replace_those_that_are_not_installed(backend: str) -> None:
    is_fast = backend == "fast"
    assert (backends.lz4().error.__name__ == "LZ4BlockError") == is_fast
    assert (type(backends.zstd().stream()).__module__.split(".")[0] in ("zstandard", "zstd")) == is_fast
    assert (backends.crc32c_library().value.__module__ == "google_crc32c._crc32c") == is_fast


@pytest.mark.usefixtures("backend")
def test_a_short_lz4_block_is_an_error() -> None:
    block = lz4.block.compress(RAW, store_size=False)
    with pytest.raises(DecodeError, match=f"only {len(RAW)} of the {len(RAW) + 1}"):
        decompress("lz4", block, len(RAW) + 1)


@pytest.mark.parametrize("size", [0, 100, 101])
def test_only_values_over_the_threshold_are_compressed(size: int) -> None:
    stored = stored_form(bytes(size), "zstd", threshold=100)
    assert (stored[:2] == b"Gx") == (size > 100)


def test_codec_none_and_empty_values_get_no_envelope() -> None:
    assert stored_form(RAW, "none") == RAW
    assert stored_form(b"", "zstd") == b""
    assert stored_form(b"a", "zstd")[:2] == b"Gx"


def test_an_unknown_codec_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="lz4, zlib, zstd, snappy"):
        wrap_envelope(RAW, "brotli")
    with pytest.raises(UsageError, match="lz4, zlib, zstd, snappy"):
        compress("brotli", RAW)


def test_a_run_may_unpack_more_only_with_a_higher_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    value = wrap_envelope(bytes(1 << 20), "zstd")
    limits = Limits(max_unpacked=17 << 20)
    monkeypatch.setattr("pulsar_meta.codecs.metadata.envelope.LIMITS", limits)
    with pytest.raises(
        LimitError, match=r"the limit is 139264 \(raise the limit with PULSAR_META_MAX_UNPACKED"
    ):
        open_envelope(value)
    limits.start_run(max_unpacked=128 << 20)
    for _ in range(16):
        assert open_envelope(value)
    with pytest.raises(LimitError, match="this run's limit is 16777216"):
        open_envelope(value)
    # A value that shrank as records usually do is never too large.
    usual = wrap_envelope(random.Random(7).randbytes(20_000) * 50, "lz4")
    assert open_envelope(usual)


def test_a_wrong_claim_is_damage_and_not_a_limit() -> None:
    value = bytearray(wrap_envelope(bytes(8 << 20), "zstd"))
    assert value[6:12] == b"\x08\x03\x10\x80\x80\x80"
    value[11] += 1
    with pytest.raises(DecodeError, match="are claimed") as caught:
        open_envelope(bytes(value))
    assert not isinstance(caught.value, LimitError)
