"""Pulsar's compression codecs and ours read each other's output, and refuse alike what is wrong."""

from __future__ import annotations

import random
from functools import cache

import pytest

from pulsar_meta.codecs.compression import CODECS, compress, decompress
from pulsar_meta.codecs.errors import DecodeError
from tests.interop.generated import SEED, mutations
from tests.servers.jvm import Jvm
from tests.servers.versions import size

pytestmark = pytest.mark.interop

MODULE = "tests.interop.oracle.frames"


@cache
def raw_values(count: int) -> list[bytes]:
    """Bytes that compress well, badly and not at all; a few large ones."""
    source = random.Random(SEED)
    values = [b"\0", b"a" * 70_000, bytes(range(256)) * 300, source.randbytes(200_000), b"ab" * 1_000_000]
    for _ in range(count):
        word = source.randbytes(source.randrange(1, 12))
        noise = source.randbytes(source.randrange(30))
        values.append(word * source.randrange(40) + noise + word * source.randrange(5))
    return values


@pytest.mark.parametrize("codec", CODECS)
def test_pulsar_reads_what_we_compress(codec: str, oracle: Jvm) -> None:
    values = raw_values(size(2000, 20_000))
    given = [(compress(codec, value), len(value)) for value in values]
    assert oracle.call(f"{MODULE}:decompress", codec, given) == values


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_pulsar_compresses(codec: str, oracle: Jvm) -> None:
    values = raw_values(size(2000, 20_000))
    theirs = oracle.call(f"{MODULE}:compress", codec, values)
    assert [
        decompress(codec, their, len(value)) for their, value in zip(theirs, values, strict=True)
    ] == values


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "none"])
def test_what_both_read_of_damaged_data_is_the_same(codec: str, oracle: Jvm) -> None:
    """Where both see data, it is the same data; we may refuse what Pulsar lets pass, and do so more often."""
    whole = [compress(codec, value) for value in raw_values(300) if len(value) < 1000]
    damaged = [(value, 300) for value in mutations(whole, size(3000, 20_000))]
    damaged += [(value, size_) for value in whole[:100] for size_ in (0, 1, 299, 301)]
    for (value, size_), their in zip(
        damaged, oracle.call(f"{MODULE}:decompress", codec, damaged), strict=True
    ):
        try:
            ours = decompress(codec, value, size_)
        except DecodeError:
            continue
        assert isinstance(their, str) or their == ours, (codec, value.hex(), size_)
