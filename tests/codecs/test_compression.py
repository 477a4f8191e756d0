"""The sizes that compressed bytes may claim."""

from __future__ import annotations

import pytest

from pulsar_meta.codecs.compression import CODECS, compress, decompress
from pulsar_meta.codecs.errors import DecodeError

# Sizes that 1000 stored bytes can't reach in any codec but zstd: none, LZ4, zlib, zstd, Snappy.
IMPOSSIBLE = dict(zip(CODECS, (1065, 255_065, 1_032_065, 131_072_065, 22_065), strict=True))


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_the_stored_bytes_cannot_reach_is_refused_before_they_are_read(codec: str) -> None:
    # These bytes are corrupt in every codec, so that only the check of the size can give this message.
    with pytest.raises(DecodeError, match=f"1000 bytes cannot hold the {IMPOSSIBLE[codec]} bytes"):
        decompress(codec, b"\xff" * 1000, IMPOSSIBLE[codec])
    with pytest.raises(DecodeError) as caught:
        decompress(codec, b"\xff" * 1000, IMPOSSIBLE[codec] - 1)
    assert "cannot hold" not in str(caught.value)


@pytest.mark.parametrize("codec", CODECS)
def test_the_densest_values_that_a_codec_makes_are_accepted(codec: str) -> None:
    for size in (0, 1, 64, 5000, 3_000_000):
        assert decompress(codec, compress(codec, bytes(size)), size) == bytes(size)


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_itself_is_allowed(codec: str) -> None:
    stored = compress(codec, bytes(100))
    assert decompress(codec, stored, 100, max_size=100) == bytes(100)
    with pytest.raises(DecodeError, match="claims 100 bytes, the limit is 99"):
        decompress(codec, stored, 100, max_size=99)
    with pytest.raises(DecodeError, match="claims a negative size, -1"):
        decompress(codec, stored, -1)
