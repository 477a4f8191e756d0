"""Salvaging a damaged compressed value gives a prefix of the original, and never hangs."""

from __future__ import annotations

import random

import pytest

from pulsar_meta.codecs.compression import compress
from pulsar_meta.codecs.documents.document import decode_document
from pulsar_meta.codecs.metadata.envelope import wrap_envelope
from pulsar_meta.codecs.salvage import salvage
from pulsar_meta.proto.MLDataFormats_pb2 import ManagedLedgerInfo

pytestmark = pytest.mark.usefixtures("backend")
CODECS = ("lz4", "zlib", "zstd", "snappy")
NUMBERS = b"".join(number.to_bytes(4, "big") for number in range(100_000))


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_value_yields_a_long_prefix(codec: str) -> None:
    compressed = compress(codec, NUMBERS)
    salvaged = salvage(codec, compressed[: len(compressed) // 2], len(NUMBERS))
    assert len(salvaged) > 10_000
    assert NUMBERS.startswith(salvaged)


@pytest.mark.parametrize("codec", CODECS)
def test_a_value_truncated_anywhere_yields_a_prefix(codec: str) -> None:
    raw = b"".join(f"ledger {number} of {number % 7}; ".encode() for number in range(100))
    compressed = compress(codec, raw)
    for end in range(len(compressed)):
        assert raw.startswith(salvage(codec, compressed[:end], len(raw)))
    assert salvage(codec, compressed, len(raw)) == raw


@pytest.mark.parametrize("codec", CODECS)
def test_random_bytes_are_salvaged_within_the_limit(codec: str) -> None:
    source = random.Random(4778)
    packed = bytearray(compress(codec, NUMBERS[:4000]))
    for _ in range(300):
        damaged = bytearray(packed)
        for _ in range(source.randrange(1, 9)):
            damaged[source.randrange(len(damaged))] = source.randrange(256)
        assert len(salvage(codec, bytes(damaged), 4000)) <= 4000
        assert len(salvage(codec, source.randbytes(source.randrange(200)), 50)) <= 50


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_ledger_list_shows_its_first_ledgers(codec: str) -> None:
    info = ManagedLedgerInfo()
    for number in range(20_000):
        info.ledgerInfo.add(ledgerId=number * 7919, entries=number % 50_000, size=number * 31)
    stored = wrap_envelope(info.SerializeToString(), codec)
    decoded = decode_document(
        stored[: len(stored) * 3 // 4], source="x", path="/managed-ledgers/a/b/persistent/t"
    )
    ledgers = decoded.document["value"]["ledgerInfo"]
    assert decoded.error is not None
    assert 1000 < len(ledgers) < 20_000
    # The last ledger may be incomplete.
    complete = [int(ledger["ledgerId"]) for ledger in ledgers[:-1]]
    assert complete == [at * 7919 for at in range(len(complete))]
