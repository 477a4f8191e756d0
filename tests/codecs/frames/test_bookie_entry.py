"""Bookie entries with every digest type, given or detected, and damaged entries."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_meta.codecs.errors import DecodeError
from pulsar_meta.codecs.frames.bookie_entry import (
    DIGEST_SIZES,
    DigestType,
    decode_bookie_entry,
    encode_bookie_entry,
)

FRAME = bytes.fromhex(
    "0e02000000090880d095ffbc3110040e01064f18510000000f0a02703110071880d095ffbc31480568656c6c6f"
)
KINDS: tuple[DigestType, ...] = get_args(DigestType)


def test_golden_bytes_are_decoded_and_encoded() -> None:
    data = encode_bookie_entry(5, 0, -1, len(FRAME), FRAME)
    assert data[32:36].hex() == "8a11beb2"
    assert len(data) == 81
    entry = decode_bookie_entry(data)
    assert (entry.ledger_id, entry.entry_id, entry.last_confirmed, entry.length) == (5, 0, -1, 45)
    assert (entry.digest_type, entry.digest, bytes(entry.data)) == ("CRC32C", "ok", FRAME)


@pytest.mark.parametrize("kind", KINDS)
def test_each_digest_type_is_checked_and_detected(kind: DigestType) -> None:
    data = encode_bookie_entry(1, 2, 1, 45, FRAME, digest_type=kind)
    for digest_type in (kind, None):
        entry = decode_bookie_entry(data, digest_type)
        assert (entry.digest_type, bytes(entry.data)) == (kind, FRAME)
        assert entry.digest == ("absent" if kind == "DUMMY" else "ok")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "DUMMY"])
def test_each_changed_byte_is_detected(kind: DigestType) -> None:
    data = encode_bookie_entry(1, 2, 1, 45, FRAME, digest_type=kind)
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 0x10
        assert decode_bookie_entry(broken, kind, password=b"").digest == "bad"
        assert decode_bookie_entry(broken).digest != "ok"


def test_an_hmac_with_an_unknown_password_stays_unchecked() -> None:
    data = encode_bookie_entry(1, 2, 1, 45, FRAME, digest_type="HMAC", password=b"secret")
    assert decode_bookie_entry(data, "HMAC").digest == "unchecked"
    assert decode_bookie_entry(data, "HMAC", password=b"secret").digest == "ok"
    assert decode_bookie_entry(data, "HMAC", password=b"other").digest == "bad"
    entry = decode_bookie_entry(data)
    assert (entry.digest_type, entry.digest, bytes(entry.data)) == ("HMAC", "unchecked", FRAME)


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_entries_are_decode_errors(kind: DigestType) -> None:
    data = encode_bookie_entry(1, 2, 1, 45, FRAME, digest_type=kind)
    for length in range(32 + DIGEST_SIZES[kind]):
        with pytest.raises(DecodeError):
            decode_bookie_entry(data[:length], kind)
    for length in range(32, len(data)):
        assert decode_bookie_entry(data[:length]).digest != "ok"


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_decode_or_raise_a_decode_error(data: bytes) -> None:
    for kind in (None, *KINDS):
        try:
            decode_bookie_entry(data, kind)
        except DecodeError:
            continue


i64 = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(i64, i64, i64, i64, st.binary(max_size=100), st.sampled_from(KINDS), st.binary(max_size=8))
def test_entries_survive_a_round_trip(
    ledger: int, entry: int, confirmed: int, length: int, data: bytes, kind: DigestType, password: bytes
) -> None:
    encoded = encode_bookie_entry(ledger, entry, confirmed, length, data, digest_type=kind, password=password)
    decoded = decode_bookie_entry(encoded, kind, password=password)
    assert (decoded.ledger_id, decoded.entry_id, decoded.last_confirmed, decoded.length) == (
        ledger, entry, confirmed, length,
    )  # fmt: skip
    assert (bytes(decoded.data), decoded.digest) == (data, "absent" if kind == "DUMMY" else "ok")
